"""Rules that share state: one contract (``base``), one registry, and a package for each kind.

Promises: firings follow from the events, their order and the watermark, not from how the input is cut into batches.
Does not know alerts, lanes and control records.
"""
