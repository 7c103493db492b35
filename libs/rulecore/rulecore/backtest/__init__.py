"""Rules over past events: the alerts that they would have raised, counted and compared with the live versions.

Promises: production code evaluates the rules. Refuses to know where the events come from.
"""
