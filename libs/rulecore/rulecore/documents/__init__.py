"""The documents that users write: rules, releases, their YAML, statuses and control keys, as checked models.

Promises: a document becomes either a model or a problem with file, line and column; no text raises anything else.
Expressions stay text here: ``compile`` parses them and checks them against a stream.
"""
