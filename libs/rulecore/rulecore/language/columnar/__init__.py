"""Expressions as Polars expressions over whole columns.

Promises: the result equals the reference evaluator's for every row, runs no Python per row and never raises on data.
Knows nothing of text, rules and lists.
"""
