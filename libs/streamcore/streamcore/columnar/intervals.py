"""Merges overlapping intervals: of many keys at once in arrays, or of one key, interval by interval."""

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
        min_start, span = int(start.min()), int(end.max()) - int(start.min()) + 1
        # Each key gets its own range of numbers, so that one running maximum is correct for all keys.
        offsets = key[order] * span if (int(key.max()) + 1) * span < 2**62 else key[order].astype(object) * span
        furthest_end = np.maximum.accumulate(offsets + (end[order] - min_start))
        starts_group = np.ones(len(order), dtype=bool)
        starts_group[1:] = offsets[1:] + (start[order][1:] - min_start) >= furthest_end[:-1]
        first = np.flatnonzero(starts_group)
        last = np.append(first[1:], len(order)) - 1
        group = np.empty(len(order), dtype=np.int64)
        group[order] = np.cumsum(starts_group) - 1
        ends = (furthest_end[last] - offsets[last]).astype(np.int64) + min_start
        return cls(key[order][first], start[order][first], ends, group)


class IntervalSet:
    """The disjoint half-open intervals of one key, in order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def overlaps(self, start: int, end: int) -> bool:
        """Return whether some interval of the set overlaps this one."""
        index = bisect_left(self._starts, end)
        return index > 0 and self._ends[index - 1] > start

    def add(self, start: int, end: int) -> None:
        """Add an interval and merge it with those that it overlaps."""
        low, high = bisect_right(self._ends, start), bisect_left(self._starts, end)
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high], self._ends[low:high] = [start], [end]
