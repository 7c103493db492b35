"""Explains why a rule fired or did not: finds the events, evaluates the rule again, and collects other reasons.

Promises: the number of records read is bounded; an explanation that used only a part of the events has a note; the
app is not changed.
"""
