"""From a firing to its alert: budgets, lanes, suppression, trials of versions, and the bytes.

Promises: the same firing has the same identity however often it is computed. Does not know how rules fire.
"""
