"""Input and output of the command on a terminal: text and JSON, tables, progress, messages, lazy import of commands.

Promises: results go to stdout, everything else to stderr. Does not know Kafka, rules or services.
"""
