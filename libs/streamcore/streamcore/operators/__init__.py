"""The stateful steps that a topology is made of: windows, keyed functions, joins, deduplication."""
