"""Why a rule fired or did not: its conditions, windows and reasons for an event, a time or a key.

Promises: production code or the reference evaluates every clause. Refuses to know Kafka, files and terminals.
"""
