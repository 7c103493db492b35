"""Finds many literals in columns of texts, and decides conditions on what it found, compiled by numba.

It is beside the walk because only that package knows a compiler. ``automaton`` finds the literals of one column in all
rows. ``conditions`` decides, for the rows and conditions that have a chance, whether a condition is true. Neither
knows rules or expressions.
"""
