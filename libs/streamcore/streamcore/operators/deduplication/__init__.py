"""Deduplication: passes the first of the rows that share an id and whose event times are within a horizon.

The package removes repeated events with bounded memory. It promises that each row leaves by exactly one port, and that
an event sent twice passes at most once.
"""
