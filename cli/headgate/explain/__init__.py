"""Explains why a rule fired or did not: finds the events, evaluates the rule again, and collects other reasons.

Promises: the number of records read is bounded; a note says if an explanation used only a part of the events; the app
is not changed.
"""
