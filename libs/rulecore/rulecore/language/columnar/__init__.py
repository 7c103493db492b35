"""Expressions as Polars expressions over whole columns.

Promises: the result equals that of the reference evaluator for every row; no Python runs per row; no data raises.
"""
