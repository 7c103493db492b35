"""Checked rules with everything that evaluation needs, computed once per version.

Promises: compiling is a pure function of the rule, the stream's schema, the limits and the lists, and raises nothing
but ``RuleError``. Knows no events and no state.
"""
