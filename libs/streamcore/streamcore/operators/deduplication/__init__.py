"""Deduplication: of the rows with one id within a horizon of event time, the first passes.

The package exists to remove repeated events with bounded memory. It promises that each row leaves by exactly one port
and that an event sent twice passes at most once. It does not know why rows repeat.
"""
