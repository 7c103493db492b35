"""Entries by a time at which they are to be looked at, found a stretch of time at a go.

What the time of an entry is says an array that changes beside this; an entry is looked at when a time comes that it was
put under, and answered if its time has come by then.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from streamcore.operators.windows.grouping import distinct, runs
from streamcore.operators.windows.table import Ints

_NONE = np.empty(0, dtype=np.int64)


class Deadlines:
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
        starts = runs(stretch[order])
        for name, some in zip(stretch[order[starts]].tolist(), np.split(entries[order], starts[1:]), strict=True):
            self._plan(name, some)

    def take(self, until_ms: int, time_ms: Ints, size: int) -> Ints:
        """The entries whose time, by entry in ``time_ms``, has come by then, each once; entries are below ``size``."""
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
