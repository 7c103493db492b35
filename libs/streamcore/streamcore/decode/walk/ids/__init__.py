"""Looks ids up in an index with open addressing, one after the other, for the deduplication of events."""
