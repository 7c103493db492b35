"""Merging of overlapping intervals: for many keys at once in columns, or for one key, interval by interval."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np

from streamcore.columnar.grouping import sorted_pairs
from streamcore.columnar.hash_table import Ints


@dataclass(frozen=True, slots=True)
class MergedIntervals:
    """Intervals of several keys after overlapping ones of the same key were merged into groups.

    ``key``, ``start``, ``end``, of shape (groups,): the key's index and the bounds of each group, by key and start.
    ``group``, of shape (intervals,): the group that each input interval became part of.
    """

    key: Ints
    start: Ints
    end: Ints
    group: Ints

    @classmethod
    def merge(cls, key: Ints, start: Ints, end: Ints) -> MergedIntervals:
        """Merge half-open intervals that overlap; intervals that only touch stay apart.

        ``key``, ``start``, ``end``, all of shape (intervals,): the index of each interval's key, not negative, and its
        bounds. There is at least one interval.
        """
        order = sorted_pairs(key, start)
        least, span = int(start.min()), int(end.max()) - int(start.min()) + 1
        # Each key gets a range of numbers of its own, so that one running maximum serves all keys.
        offsets = key[order] * span if (int(key.max()) + 1) * span < 2**62 else key[order].astype(object) * span
        reach = np.maximum.accumulate(offsets + (end[order] - least))
        begins = np.ones(len(order), dtype=bool)
        begins[1:] = offsets[1:] + (start[order][1:] - least) >= reach[:-1]
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(order)) - 1
        group = np.empty(len(order), dtype=np.int64)
        group[order] = np.cumsum(begins) - 1
        ends = (reach[last] - offsets[last]).astype(np.int64) + least
        return cls(key[order][first], start[order][first], ends, group)


class IntervalSet:
    """Disjoint half-open intervals of one key, in order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def overlaps(self, start: int, end: int) -> bool:
        """Return whether some interval of the set overlaps this one."""
        before = bisect_left(self._starts, end)
        return before > 0 and self._ends[before - 1] > start

    def add(self, start: int, end: int) -> None:
        """Add an interval and merge it with those that it overlaps."""
        low, high = bisect_right(self._ends, start), bisect_left(self._starts, end)
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high], self._ends[low:high] = [start], [end]
