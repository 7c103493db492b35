"""The index that joins a batch of events with all rules of a stream at once.

Promises: the result is that of evaluating every rule on every event, in order of row and rule. Knows conditions only:
no windows, no alerts, no control records.
"""
