"""Events that came before the watermark had settled the time between them: stretches of event time without a gap.

A key's events are a chain as long as each is at most ``reach`` after the one before. Only the two ends of a chain
matter: an event inside changes nothing. So however many events a key has, the state kept for those that the watermark
has not reached is one row for each gap. Refuses to know keys and rules: an *entry* is a number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

_NONE: Ints = np.empty(0, dtype=np.int64)


class Intervals(NamedTuple):
    """First and last event time of each, and whose it is."""

    entry: Ints
    start: Ints
    end: Ints

    def take(self, rows: npt.NDArray[np.bool_] | Ints) -> Intervals:
        """Return some of the intervals."""
        return Intervals(self.entry[rows], self.start[rows], self.end[rows])


NO_INTERVALS = Intervals(_NONE, _NONE, _NONE)


def join(*parts: Intervals) -> Intervals:
    """Return all of them, in the order given."""
    return Intervals(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def merge_within_reach(parts: Intervals, reach: Ints) -> Intervals:
    """Join intervals of one entry that are at most ``reach`` (by row of ``parts``) apart; by entry and start."""
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
    """The stretches of all entries, by entry and start."""

    def __init__(self) -> None:
        self.held = NO_INTERVALS

    def mark(self, size: int) -> npt.NDArray[np.bool_]:
        """Return for each entry below ``size`` whether it has any."""
        marked = np.zeros(size, dtype=bool)
        marked[self.held.entry] = True
        return marked

    def pull(self, wanted: npt.NDArray[np.bool_]) -> Intervals:
        """Take out those of the entries that are marked."""
        mine = wanted[self.held.entry]
        pulled, self.held = self.held.take(mine), self.held.take(~mine)
        return pulled

    def put(self, stretches: Intervals) -> None:
        """Add stretches of entries that have none here."""
        if len(stretches.entry):
            every = join(self.held, stretches)
            self.held = every.take(np.lexsort((every.start, every.entry)))

    def pull_first(self, until_ms: int) -> Intervals:
        """Take out the first stretch of each entry, where it begins at ``until_ms`` or before."""
        entry = self.held.entry
        if not len(entry):
            return NO_INTERVALS
        mine = np.concatenate([[True], entry[1:] != entry[:-1]]) & (self.held.start <= until_ms)
        pulled = self.held.take(mine)
        if len(pulled.entry):
            self.held = self.held.take(~mine)
        return pulled
