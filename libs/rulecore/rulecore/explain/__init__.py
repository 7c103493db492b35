"""Why a rule fired or did not: its conditions, windows and reasons for an event, a time or a key.

Promises: production code or the reference evaluator evaluates every clause.
"""
