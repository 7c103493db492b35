"""Data structures over NumPy and Polars columns: hash tables, key slots, grouping, intervals, deadlines, timers.

The package exists so that state with millions of keys needs no Python object for each of them: operators address keys
by small numbers (*key slots*) and work on whole arrays. It promises results that depend on the inputs and their order
alone, and a cost that follows the rows of a call. It does not know operators, event time, checkpoints or apps.
"""
