"""Patterns of events: what complex event processing finds in the events of a key, in their order."""
