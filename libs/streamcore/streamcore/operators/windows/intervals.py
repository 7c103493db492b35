"""Intervals that become one where they overlap: many keys at once in columns, or one key, interval by interval."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np

from streamcore.operators.windows.grouping import sorted_pairs
from streamcore.operators.windows.table import Ints


@dataclass(frozen=True, slots=True)
class Joined:
    """Intervals of several keys, with those that overlap made one. ``place`` and bounds by group, in order; ``group``:
    of each interval."""

    place: Ints
    start: Ints
    end: Ints
    group: Ints

    @classmethod
    def of(cls, place: Ints, start: Ints, end: Ints) -> Joined:
        """``place``: the key of each interval, not negative. Intervals that only touch do not overlap."""
        order = sorted_pairs(place, start)
        least, span = int(start.min()), int(end.max()) - int(start.min()) + 1
        lanes = place[order] * span if (int(place.max()) + 1) * span < 2**62 else place[order].astype(object) * span
        reach = np.maximum.accumulate(lanes + (end[order] - least))  # each key has a lane of numbers for itself
        begins = np.ones(len(order), dtype=bool)
        begins[1:] = lanes[1:] + (start[order][1:] - least) >= reach[:-1]
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(order)) - 1
        group = np.empty(len(order), dtype=np.int64)
        group[order] = np.cumsum(begins) - 1
        until = (reach[last] - lanes[last]).astype(np.int64) + least
        return cls(place[order][first], start[order][first], until, group)


class Living:
    """Disjoint intervals of one key, in order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def meets(self, start: int, end: int) -> bool:
        """Whether some interval overlaps this one."""
        before = bisect_left(self._starts, end)
        return before > 0 and self._ends[before - 1] > start

    def join(self, start: int, end: int) -> None:
        """Add an interval; what it overlaps becomes one with it."""
        low, high = bisect_right(self._ends, start), bisect_left(self._starts, end)
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high], self._ends[low:high] = [start], [end]
