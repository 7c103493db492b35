"""Panes of a number of events of a key, in order of arrival, instead of panes of event time.

A key's events are numbered as they arrive, and every ``unit`` of them make a pane. After an idle time, the next event
of a key begins a new *stretch*: its pane is ``APART`` panes after the last one, so no window holds both. Panes, and the
values that a window holds at each event, depend only on the order of the key's events; doubles are added in that order.

The code of a pane is ``key_slot << SHIFT | pane``, where ``key_slot`` is the key's number in ``KeySlots``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.groups.windows.aggregation import Array
from rulecore.groups.windows.distinct_table import DistinctTable
from rulecore.groups.windows.pane_table import PANE_MASK, SHIFT, PaneTable
from rulecore.groups.windows.running import running

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: Panes between two stretches of a key's events, which an idle time separates: more than any window has.
APART = 1 << 17
_SMALL = 4096  # a table with so few panes is not searched for panes to drop


@dataclass(frozen=True, slots=True)
class NumberedEvents:
    """The events of a cut, sorted by key and then by arrival.

    ``order``: the index of each event in order of arrival; the other arrays are in sorted order. ``codes``: the pane
    code of each event. ``panes``: the distinct codes; ``segment``: the index of each event's code in ``panes``.
    ``latest``: the latest event time of the key up to the event, in ms. ``last``: whether the event completes its pane.
    """

    order: Ints
    codes: Ints
    segment: Ints
    panes: Ints
    latest: Ints
    last: Mask


@dataclass(frozen=True, slots=True)
class PaneContents:
    """By partial: ``seen``, the value of each event's pane just after the event; ``finals``, the value of each pane of
    ``NumberedEvents.panes`` after the cut."""

    seen: Mapping[str, Array]
    finals: Mapping[str, Array]


class CountTable(PaneTable):
    """A table of panes of ``unit`` events.

    ``counter`` names the partial that counts a pane's events, ``latest`` the one with the key's latest event time.
    """

    def __init__(self, dtypes: Mapping[str, pl.DataType], unit: int, counter: str, latest: str) -> None:
        super().__init__(dtypes, unit)
        self.unit = unit
        self.counter = counter
        self.latest = latest
        self.panes = 1  # the panes of the longest window
        self.idle_before_ms = -(2**62)  # keys whose latest event is before this time are idle
        self._kept = 0  # the panes left by the last ``tidy``

    # --- reading ------------------------------------------------------------------------------------------------

    def number(self, key_slots: Ints, times: Ints, idle_ms: int) -> NumberedEvents:
        """Assign panes to events, given in order of arrival, without changing the table.

        An event ``idle_ms`` or more after its key's latest event time begins a new stretch.
        """
        order = np.argsort(key_slots, kind="stable")
        key_slots, times = key_slots[order], times[order]
        key_first = np.flatnonzero(np.diff(key_slots, prepend=-1))
        key_of = np.repeat(np.arange(len(key_first)), np.diff(np.append(key_first, len(key_slots))))
        pane, held, latest = self._ends(key_slots[key_first])
        latest_by_event = running(self.partials[self.latest], times, key_of, latest)
        before = np.concatenate([[0], latest_by_event[:-1]])  # the latest event time before each event
        before[key_first] = latest
        after_idle = (times - before >= idle_ms) & (before > -(2**62))
        stretch_first = np.flatnonzero(after_idle | (np.diff(key_slots, prepend=-1) != 0))
        size = np.diff(np.append(stretch_first, len(key_slots)))
        key = key_of[stretch_first]
        begins = np.where(after_idle[stretch_first], 0, held[key])  # events in the pane before the stretch's first
        ends = (begins + size - 1) // self.unit
        jump = np.where(after_idle[stretch_first], APART, 0)
        stretch_of_key = np.searchsorted(stretch_first, key_first)
        steps = np.cumsum(jump + ends) - ends  # panes before each stretch, over all keys
        steps -= (steps - jump)[stretch_of_key][key]
        stretch = np.repeat(np.arange(len(size)), size)
        within = begins[stretch] + np.arange(len(key_slots)) - stretch_first[stretch]
        codes = (key_slots << SHIFT) | ((pane[key] + steps)[stretch] + within // self.unit)
        first = np.flatnonzero(np.diff(codes, prepend=-1))
        segment = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(codes))))
        return NumberedEvents(order, codes, segment, codes[first], latest_by_event, within % self.unit == self.unit - 1)

    def contents(self, numbered: NumberedEvents, values: Mapping[str, Array]) -> PaneContents:
        """Compute the contents of the panes after each event, without changing the table.

        ``values``: by partial, the contribution of each event, in the order of ``numbered``.
        """
        locations = self.runs.locate(numbered.panes)
        last = np.flatnonzero(np.diff(numbered.segment, append=-1))
        seen, finals = {}, {}
        for name, column in values.items():
            partial = self.partials[name]
            base = self.runs.read(name, locations, partial.identity)
            seen[name] = running(partial, column.astype(partial.dtype), numbered.segment, base)
            finals[name] = seen[name][last]
        return PaneContents(seen, finals)

    def totals(self, numbered: NumberedEvents, contents: PaneContents, panes: int) -> dict[str, Array]:
        """Return, by partial, the totals of the windows of ``panes`` panes that end with each event."""
        if panes == 1:
            return dict(contents.seen)
        window, code, cut_index = self._earlier(numbered.panes, panes)
        first = np.flatnonzero(np.diff(window, prepend=-1))
        locations = self.runs.locate(code)
        totals = {}
        for name, seen in contents.seen.items():
            partial = self.partials[name]
            held = self.runs.read(name, locations, partial.identity)
            held = np.where(cut_index >= 0, contents.finals[name][cut_index], held)
            before = np.full(len(numbered.panes), partial.identity, partial.dtype)
            if len(first):
                before[window[first]] = partial.combine.operation.reduceat(held, first)
            totals[name] = partial.combine.operation(before[numbered.segment], seen)
        return totals

    def _earlier(self, codes: Ints, panes: int) -> tuple[Ints, Ints, Ints]:
        """Return the earlier panes of each window that ends at one of ``codes``, one row per pane, by window and code.

        Each row has the window, as an index of ``codes``, the code of the pane, and the index of this code in ``codes``
        (-1 for a stored pane without events in this cut).
        """
        low = np.maximum(codes - panes + 1, (codes >> SHIFT) << SHIFT)
        window, code = self.runs.members(low, codes)
        nearest = np.minimum(np.searchsorted(codes, code), len(codes) - 1)
        only_stored = codes[nearest] != code
        start = np.searchsorted(codes, low)
        count = np.arange(len(codes)) - start
        new_window = np.repeat(np.arange(len(codes)), count)
        new = np.repeat(start - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
        windows = np.concatenate([window[only_stored], new_window])
        pane_codes = np.concatenate([code[only_stored], codes[new]])
        cut_index = np.concatenate([np.full(int(only_stored.sum()), -1), new])
        order = np.lexsort((pane_codes, windows))
        return windows[order], pane_codes[order], cut_index[order]

    def _ends(self, key_slots: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the last pane of each key, how many events it holds, and the latest event time of the key."""
        key_index, code = self.runs.members(key_slots << SHIFT, (key_slots + 1) << SHIFT)
        last = np.zeros(len(key_slots), np.int64)
        np.maximum.at(last, key_index, code & PANE_MASK)
        locations = self.runs.locate((key_slots << SHIFT) | last)
        latest = self.runs.read(self.latest, locations, self.partials[self.latest].identity)
        return last, self.runs.read(self.counter, locations, 0), latest

    # --- writing ------------------------------------------------------------------------------------------------

    def write(self, numbered: NumberedEvents, contents: PaneContents) -> None:
        """Store the contents of the cut's panes after the cut."""
        known = self.runs.contains(numbered.panes)
        self.runs.insert(numbered.panes[~known])
        locations = self.runs.locate(numbered.panes)
        for name, values in contents.finals.items():
            self.runs.write(name, locations, values)
        self._dirty.append(numbered.panes)

    def tidy(self) -> Ints | None:
        """Drop the panes that no window will read again, and return the codes of the panes left.

        Return None, and drop nothing, while the table has not doubled since the last call that dropped panes. Call
        ``free_keys`` afterwards, once the other tables that use the key slots have dropped the panes too.
        """
        if len(self.runs) <= 2 * self._kept + _SMALL:
            return None
        codes = self.runs.codes()
        self.runs.retain(self.living(codes))
        self._kept = len(self.runs)
        return self.runs.codes()

    def free_keys(self) -> None:
        """Free the key slots of the keys without panes."""
        self.keys.keep(np.unique(self.runs.codes() >> SHIFT))

    def living(self, codes: Ints) -> Mask:
        """Return which panes a window may still read. ``codes``: the codes of all panes."""
        if not len(codes):
            return np.zeros(0, bool)
        key_slots = codes >> SHIFT
        ends = np.flatnonzero(np.diff(key_slots, append=-1))
        latest = self.runs.read(self.latest, self.runs.locate(codes[ends]), 0)
        floor = np.where(latest < self.idle_before_ms, codes[ends] + 1, codes[ends] - self.panes + 1)
        living: Mask = codes >= np.repeat(floor, np.diff(np.append(-1, ends)))
        return living

    # --- StateTable ---------------------------------------------------------------------------------------------

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        codes = self.runs.codes()
        codes = codes[self.living(codes)]
        return self._frame(codes[self.keys.in_bucket(codes >> SHIFT, bucket, buckets)])


def distinct_totals(table: DistinctTable, numbered: NumberedEvents, values: Sequence[object], panes: int) -> Ints:
    """Return the number of distinct values in the windows of ``panes`` panes that end with each event.

    ``values``: the value of each event, in the order of ``numbered``; None is not counted.
    """
    counts = np.empty(len(values), np.int64)
    by_code: dict[int, set[object]] = {}  # the stored and new values of each pane of the cut
    current, in_window, in_pane = -1, set[object](), set[object]()
    for i, (code, value) in enumerate(zip(numbered.codes.tolist(), values, strict=True)):
        if code != current:
            current = code
            in_pane = by_code[code] = set(table.values(code))
            start = max(code - panes + 1, (code >> SHIFT) << SHIFT)
            earlier = (by_code[c] if c in by_code else table.values(c) for c in range(start, code))
            in_window = set[object]().union(*earlier)
            in_window |= in_pane
        if value is not None and value not in in_pane and len(in_pane) < table.max_values:
            in_pane.add(value)
            in_window.add(value)
        counts[i] = len(in_window)
    return counts
