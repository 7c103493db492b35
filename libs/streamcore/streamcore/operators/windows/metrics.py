"""Counters of the windowed operators: those of the reference, and the assignments that limits rejected."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class WindowMetrics:
    """Counters since the last ``take``.

    Those of ``windowing.WindowCounts``, and ``rejected``: assignments to windows beyond the limit, and
    ``truncated``: values of panes from which an aggregate has left something out because of its own limit. ``failed``:
    elements and panes for which a call of the user's code failed.

    The law: ``assignments == on_time + late_accepted + dropped_expired + dropped_closed + rejected``.
    """

    elements: int = 0
    assignments: int = 0
    on_time: int = 0
    late_accepted: int = 0
    dropped_expired: int = 0
    dropped_closed: int = 0
    evicted: int = 0
    rejected: int = 0
    truncated: int = 0
    failed: int = 0

    def take(self) -> dict[str, int]:
        """Return the counts by name and reset them to 0."""
        counts = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in counts:
            setattr(self, name, 0)
        return counts
