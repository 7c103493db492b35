"""The identity of a cut, and its times."""
