"""The index that matches the events of a cut with all rules of a stream at once.

The result is that of evaluating every rule on every event, in order of row and rule. The package knows conditions only:
no windows, no alerts, no control records.
"""
