"""Rules over past events: from Parquet files or from a range of a topic.

Promises: events are decoded and rules are evaluated by the code of production; a backfill from a topic is exact.
Does not know how results of a running app are shown.
"""
