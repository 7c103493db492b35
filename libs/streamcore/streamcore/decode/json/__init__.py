"""JSON records by columns: shapes of records that are learned from samples, and the decoder that uses them.

Promises the values and reasons of the reference (``streamcore.decode.scalar``); learned shapes change only the cost.
"""
