"""The operator that finds a pattern in the events of each key."""
