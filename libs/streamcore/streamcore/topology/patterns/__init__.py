"""The interface for patterns over a keyed stream."""
