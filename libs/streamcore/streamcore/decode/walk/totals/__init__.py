"""Combines values one after the other: the sums, least and largest values that rules read at each event."""
