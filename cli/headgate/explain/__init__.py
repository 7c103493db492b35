"""Explains why a rule fired or did not: finds the events, evaluates the rule again, and collects other reasons.

Promises: reads are bounded, and an explanation that rests on a part of the events is marked so. Does not change the
app.
"""
