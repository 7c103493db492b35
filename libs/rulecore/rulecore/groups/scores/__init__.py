"""Scores: sums of the weights of other rules' signals for a key, their storage and their rules.

Promises: a signal counts once. Does not know how rules match: signals come from the kernel.
"""
