"""Limits of what rules keep in a shard. Values that travel to the workers; imports nothing that takes time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Limits of what groups keep. ``distinct``: values that a distinct count keeps per key and pane.

    ``partials``: beginnings of a sequence that are kept per rule and key. ``events``: kept per rule and key while they
    wait for the watermark. ``idle_ms``: a count window whose key has no event for so long of event time is dropped, and
    the key's next event begins a new one.
    """

    distinct: int = 10_000
    partials: int = 100
    events: int = 10_000
    idle_ms: int = 30 * 86_400_000
