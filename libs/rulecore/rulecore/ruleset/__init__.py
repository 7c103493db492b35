"""All rules with their versions as a value: updates from control records, the history, and the diff of two states.

Promises: a rule set is a pure function of the control log. Does not know events and the state of groups.
"""
