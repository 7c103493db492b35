"""Entries by deadline, in columns, found one stretch of time at once.

The current deadlines are an array that the owner changes; an entry is examined when a time comes that it was put under,
and returned if its current deadline has passed by then.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from streamcore.columnar.grouping import distinct, run_starts
from streamcore.columnar.hash_table import Ints

_NONE = np.empty(0, dtype=np.int64)


class DeadlineIndex:
    """``near_ms``: how far apart times usually are from now; stretches are a part of it."""

    def __init__(self, near_ms: int) -> None:
        self._bits = max(0, (near_ms // 16).bit_length() - 1)
        self._due: dict[int, list[Ints]] = {}
        self._stretches: list[int] = []  # a heap of the names in ``_due``

    def put(self, time_ms: Ints, entries: Ints) -> None:
        """Look at each entry when its time has come."""
        if not entries.size:
            return
        stretch = time_ms >> self._bits
        order = np.argsort(stretch)
        starts = run_starts(stretch[order])
        for name, some in zip(stretch[order[starts]].tolist(), np.split(entries[order], starts[1:]), strict=True):
            self._plan(name, some)

    def take(self, until_ms: int, time_ms: Ints, size: int) -> Ints:
        """Return the entries whose time, by entry in ``time_ms``, has come by then, each once; entries are below
        ``size``."""
        last = until_ms >> self._bits
        parts = [_NONE]
        while self._stretches and self._stretches[0] <= last:
            parts += self._due.pop(heappop(self._stretches))
        found = np.concatenate(parts)
        found = found[distinct(found, size)[1]]
        later = found[(time_ms[found] > until_ms) & (time_ms[found] >> self._bits == last)]
        if later.size:
            self._plan(last, later)
        return found[time_ms[found] <= until_ms]

    def _plan(self, stretch: int, entries: Ints) -> None:
        if stretch not in self._due:
            heappush(self._stretches, stretch)
        self._due.setdefault(stretch, []).append(entries)
