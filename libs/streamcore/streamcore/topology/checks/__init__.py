"""Checks of a step where it is written: the columns of its expressions and of its function, on a few made-up rows.

Promises: a step that passes can run on any rows with its columns, or fails on single rows only. Runs no topology.
"""
