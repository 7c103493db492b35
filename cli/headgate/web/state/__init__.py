"""What the topics of an app say: its rules and their history, alerts, dead letters, its process. Values, and caches of
topics that are read on; nothing here writes."""
