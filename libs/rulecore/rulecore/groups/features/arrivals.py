"""The events of a cut by key: the order in which a feature counts them, and running values over that order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rulecore.groups.windows.aggregation import Array, Combine, Partial
from rulecore.groups.windows.running import running

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: Before every event time.
NEVER = -(2**62)
LATEST_TIME = Partial("m", Combine.MAX, whole=True)


@dataclass(frozen=True, slots=True)
class KeyedArrivals:
    """Events sorted by key slot and then by arrival.

    ``order``: the index of each event in order of arrival; ``place``: its inverse, by event in order of arrival its
    place among the sorted ones. ``slots``, ``times``: of each sorted event. ``key``: the
    number of its key, ascending; ``key_slots``, ``first`` and ``counts``: by number of key, its slot, its first sorted
    event and how many it has.
    """

    order: Ints
    place: Ints
    slots: Ints
    times: Ints
    key: Ints
    key_slots: Ints
    first: Ints
    counts: Ints

    @classmethod
    def sort(cls, slots: Ints, times: Ints) -> KeyedArrivals:
        """Sort events, given in order of arrival."""
        order = np.argsort(slots, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        sorted_slots = slots[order]
        first = np.flatnonzero(np.diff(sorted_slots, prepend=-1))
        counts = np.diff(np.append(first, len(slots)))
        key = np.repeat(np.arange(len(first)), counts)
        return cls(order, place, sorted_slots, times[order], key, sorted_slots[first], first, counts)

    def latest(self, counted: Mask, stored: Ints, *, including_this: bool) -> Ints:
        """Return the latest time of the counted events of the key before each event (or with it), ``NEVER`` if there
        is none. ``counted``: of each sorted event. ``stored``: by number of key, the latest time before this cut."""
        times = np.where(counted, self.times, NEVER)
        return running(LATEST_TIME, times, self.key, stored, before=not including_this)

    def latest_event(self, counted: Mask, stored: Ints, *, including_this: bool) -> Ints:
        """Return the sorted event that ``latest`` has the time of, -1 if it is not of this cut. Of equal times it is
        the one that arrived last."""
        before = self.latest(counted, stored, including_this=False)
        newer = counted & (self.times >= before)
        none = np.full(len(self.first), -1)
        events = np.where(newer, np.arange(len(self.times)), -1)
        return running(LATEST_TIME, events, self.key, none, before=not including_this)

    def last(self, after: Array) -> Array:
        """Return by number of key the running value after its last event."""
        ends: Array = after[self.first + self.counts - 1]
        return ends
