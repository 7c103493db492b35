"""Combines values one after the other, for what rules need at each event: sums, least and largest values so far."""
