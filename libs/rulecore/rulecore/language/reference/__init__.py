"""The reference evaluator: one expression, one row, plain Python.

It defines the semantics of the language; the evaluation on columns is tested against it and shares no code with it.
It uses Polars only for regular expressions.
"""
