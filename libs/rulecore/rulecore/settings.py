"""Limits of what rules keep in a shard. Values that travel to the workers; imports nothing that takes time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Limits of what groups keep. ``distinct``: values that a distinct count keeps per key and pane.

    ``partials``: beginnings of a sequence that are kept per rule and key. ``events``: kept per rule and key while they
    wait for the watermark. ``population``: keys that absence rules expect an event of, and keys that scores are added
    for, by population or group of rules. ``repeats``: alerts of an absence rule for one key in one cut.
    """

    distinct: int = 10_000
    partials: int = 100
    events: int = 10_000
    population: int = 1_000_000
    repeats: int = 100
