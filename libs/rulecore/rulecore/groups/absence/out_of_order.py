"""The events that the watermark has not passed, as intervals of event time without a gap.

Events of a key form one interval if each is at most ``reach`` after the one before. Only the two ends of an interval
matter; an event inside it changes nothing. So the state is one interval per gap, however many events a key has. The
module knows neither keys nor rules: an *entry* is a number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

_NONE: Ints = np.empty(0, dtype=np.int64)


class Intervals(NamedTuple):
    """Intervals of event time: the entry of each, and its first and last event time."""

    entry: Ints
    start: Ints
    end: Ints

    def take(self, rows: npt.NDArray[np.bool_] | Ints) -> Intervals:
        """Return the intervals at this mask or these indexes."""
        return Intervals(self.entry[rows], self.start[rows], self.end[rows])


NO_INTERVALS = Intervals(_NONE, _NONE, _NONE)


def join(*parts: Intervals) -> Intervals:
    """Return the concatenated intervals."""
    return Intervals(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def merge_within_reach(parts: Intervals, reach: Ints) -> Intervals:
    """Merge intervals of an entry that are at most ``reach`` apart; sort by entry and start.

    ``reach``: in milliseconds, for each interval of ``parts``.
    """
    if not len(parts.entry):
        return parts
    order = np.lexsort((parts.start, parts.entry))
    (entry, start, end), reach = parts.take(order), reach[order]
    other = entry[1:] != entry[:-1]
    latest = _running_maximum(end, np.concatenate([[0], np.cumsum(other)]))
    first = np.flatnonzero(np.concatenate([[True], other | (start[1:] - latest[:-1] > reach[1:])]))
    return Intervals(entry[first], start[first], latest[np.append(first[1:], len(entry)) - 1])


def _running_maximum(values: Ints, group: Ints) -> Ints:
    """Return the largest value of the group so far. ``group``: ascending from 0. By rank, so nothing overflows."""
    order = np.argsort(values, kind="stable")
    rank = np.empty(len(values), dtype=np.int64)
    rank[order] = np.arange(len(values))
    highest = np.maximum.accumulate(group * len(values) + rank) - group * len(values)
    result: Ints = values[order][highest]
    return result


class OutOfOrderEvents:
    """The intervals of all entries, sorted by entry and start."""

    def __init__(self) -> None:
        self.held = NO_INTERVALS

    def mark(self, size: int) -> npt.NDArray[np.bool_]:
        """Return for each entry below ``size`` whether it has intervals."""
        marked = np.zeros(size, dtype=bool)
        marked[self.held.entry] = True
        return marked

    def pull(self, wanted: npt.NDArray[np.bool_]) -> Intervals:
        """Remove and return the intervals of the marked entries."""
        matching = wanted[self.held.entry]
        pulled, self.held = self.held.take(matching), self.held.take(~matching)
        return pulled

    def put(self, stretches: Intervals) -> None:
        """Add intervals of entries that have none yet."""
        if len(stretches.entry):
            every = join(self.held, stretches)
            self.held = every.take(np.lexsort((every.start, every.entry)))

    def pull_first(self, until_ms: int) -> Intervals:
        """Remove and return the first interval of each entry, if it begins at or before ``until_ms``."""
        entry = self.held.entry
        if not len(entry):
            return NO_INTERVALS
        due = np.concatenate([[True], entry[1:] != entry[:-1]]) & (self.held.start <= until_ms)
        pulled = self.held.take(due)
        if len(pulled.entry):
            self.held = self.held.take(~due)
        return pulled
