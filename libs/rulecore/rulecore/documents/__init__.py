"""The documents that users write: rules, releases, their YAML, statuses and control keys, as checked models.

Promises: a document either becomes a model or a problem with file, line and column; no text raises anything else.
Knows no streams, no expressions and no state: ``compile`` reads those.
"""
