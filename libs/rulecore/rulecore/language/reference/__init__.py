"""The reference evaluator: one expression, one row, plain Python.

It defines the language; every faster way of evaluation is tested against it and shares no code with it. Knows no
columns and no Polars, but for regular expressions.
"""
