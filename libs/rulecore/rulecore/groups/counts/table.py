"""Panes of so many events of a key, in order of arrival, instead of panes of event time.

A key's events are numbered as they arrive, and every ``unit`` of them make a pane. A key that had no event for long
begins anew: its next event opens a pane far behind the last one, so no window holds both. Promises: panes and the
values that a window holds at each event follow from the order of the key's events alone; doubles are added in that
order.
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

#: Panes between two stretches of a key's events: more than any window has.
APART = 1 << 17
_SMALL = 4096  # entries that are not worth looking through


@dataclass(frozen=True, slots=True)
class NumberedEvents:
    """Events of a cut by key and then arrival: ``order`` leads there, all else is in that order.

    ``codes``: slot and pane of each event; ``segment``: its pane among the distinct ``panes``; ``latest``: the latest
    event time of its key by then; ``last``: whether it is the last of its pane.
    """

    order: Ints
    codes: Ints
    segment: Ints
    panes: Ints
    latest: Ints
    last: Mask


@dataclass(frozen=True, slots=True)
class PaneContents:
    """By partial: the value of each event's pane including the event, and of each of the cut's panes after the cut."""

    seen: Mapping[str, Array]
    finals: Mapping[str, Array]


class CountTable(PaneTable):
    """Panes of so many events. ``counter`` and ``latest`` name the partials that count a pane's events and hold the
    latest event time of its key."""

    def __init__(self, dtypes: Mapping[str, pl.DataType], unit: int, counter: str, latest: str) -> None:
        super().__init__(dtypes, unit)
        self.unit = unit
        self.counter = counter
        self.latest = latest
        self.panes = 1  # of the longest window
        self.idle_before_ms = -(2**62)  # keys whose latest event is before this are over
        self._kept = 0

    # --- reading ------------------------------------------------------------------------------------------------

    def number(self, slots: Ints, times: Ints, idle_ms: int) -> NumberedEvents:
        """Assign panes to events in order of arrival. Nothing is written."""
        order = np.argsort(slots, kind="stable")
        slots, times = slots[order], times[order]
        key_first = np.flatnonzero(np.diff(slots, prepend=-1))
        key_of = np.repeat(np.arange(len(key_first)), np.diff(np.append(key_first, len(slots))))
        pane, held, latest = self._ends(slots[key_first])
        most = running(self.partials[self.latest], times, key_of, latest)
        before = np.concatenate([[0], most[:-1]])
        before[key_first] = latest
        anew = (times - before >= idle_ms) & (before > -(2**62))
        stretch_first = np.flatnonzero(anew | (np.diff(slots, prepend=-1) != 0))
        size = np.diff(np.append(stretch_first, len(slots)))
        key = key_of[stretch_first]
        begins = np.where(anew[stretch_first], 0, held[key])  # events in the pane before the stretch's first
        ends = (begins + size - 1) // self.unit
        jump = np.where(anew[stretch_first], APART, 0)
        stretch_of_key = np.searchsorted(stretch_first, key_first)
        steps = np.cumsum(jump + ends) - ends  # panes before each stretch, over all keys
        steps -= (steps - jump)[stretch_of_key][key]
        stretch = np.repeat(np.arange(len(size)), size)
        within = begins[stretch] + np.arange(len(slots)) - stretch_first[stretch]
        codes = (slots << SHIFT) | ((pane[key] + steps)[stretch] + within // self.unit)
        first = np.flatnonzero(np.diff(codes, prepend=-1))
        segment = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(codes))))
        return NumberedEvents(order, codes, segment, codes[first], most, within % self.unit == self.unit - 1)

    def contents(self, numbered: NumberedEvents, values: Mapping[str, Array]) -> PaneContents:
        """Compute the panes as each event sees them. ``values`` are in the order of ``numbered``."""
        places = self.runs.locate(numbered.panes)
        last = np.flatnonzero(np.diff(numbered.segment, append=-1))
        seen, finals = {}, {}
        for name, column in values.items():
            partial = self.partials[name]
            base = self.runs.read(name, places, partial.identity)
            seen[name] = running(partial, column.astype(partial.dtype), numbered.segment, base)
            finals[name] = seen[name][last]
        return PaneContents(seen, finals)

    def totals(self, numbered: NumberedEvents, contents: PaneContents, panes: int) -> dict[str, Array]:
        """Return the totals of windows of so many panes that end with each event."""
        if panes == 1:
            return dict(contents.seen)
        window, code, here = self._earlier(numbered.panes, panes)
        first = np.flatnonzero(np.diff(window, prepend=-1))
        places = self.runs.locate(code)
        found = {}
        for name, seen in contents.seen.items():
            partial = self.partials[name]
            held = self.runs.read(name, places, partial.identity)
            held = np.where(here >= 0, contents.finals[name][here], held)
            before = np.full(len(numbered.panes), partial.identity, partial.dtype)
            if len(first):
                before[window[first]] = partial.combine.operation.reduceat(held, first)
            found[name] = partial.combine.operation(before[numbered.segment], seen)
        return found

    def _earlier(self, codes: Ints, panes: int) -> tuple[Ints, Ints, Ints]:
        """Find the earlier panes of each window that ends at these codes: the number of the window, the code, and
        the place among these (-1 for one that is only stored), by window and code."""
        low = np.maximum(codes - panes + 1, (codes >> SHIFT) << SHIFT)
        window, code = self.runs.members(low, codes)
        place = np.minimum(np.searchsorted(codes, code), len(codes) - 1)
        only = codes[place] != code
        start = np.searchsorted(codes, low)
        count = np.arange(len(codes)) - start
        new_window = np.repeat(np.arange(len(codes)), count)
        new = np.repeat(start - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
        windows = np.concatenate([window[only], new_window])
        found = np.concatenate([code[only], codes[new]])
        here = np.concatenate([np.full(int(only.sum()), -1), new])
        order = np.lexsort((found, windows))
        return windows[order], found[order], here[order]

    def _ends(self, slots: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the last pane of each key, how many events it holds, and the latest event time of the key."""
        which, code = self.runs.members(slots << SHIFT, (slots + 1) << SHIFT)
        last = np.zeros(len(slots), np.int64)
        np.maximum.at(last, which, code & PANE_MASK)
        places = self.runs.locate((slots << SHIFT) | last)
        latest = self.runs.read(self.latest, places, self.partials[self.latest].identity)
        return last, self.runs.read(self.counter, places, 0), latest

    # --- writing ------------------------------------------------------------------------------------------------

    def write(self, numbered: NumberedEvents, contents: PaneContents) -> None:
        """Store the panes as the events changed them."""
        known = self.runs.contains(numbered.panes)
        self.runs.insert(numbered.panes[~known])
        places = self.runs.locate(numbered.panes)
        for name, values in contents.finals.items():
            self.runs.write(name, places, values)
        self._dirty.append(numbered.panes)

    def tidy(self) -> Ints | None:
        """Drop panes that no window will read again, once they may equal the rest in number; return the panes left.

        ``free_keys`` is to follow, when others that use the slots have forgotten the same.
        """
        if len(self.runs) <= 2 * self._kept + _SMALL:
            return None
        codes = self.runs.codes()
        self.runs.retain(self._living(codes))
        self._kept = len(self.runs)
        return self.runs.codes()

    def free_keys(self) -> None:
        """Forget the keys that have no panes left."""
        self.keys.keep(np.unique(self.runs.codes() >> SHIFT))

    def _living(self, codes: Ints) -> Mask:
        """Return which of all panes a window may still look at. ``codes``: all of them."""
        if not len(codes):
            return np.zeros(0, bool)
        slots = codes >> SHIFT
        ends = np.flatnonzero(np.diff(slots, append=-1))
        latest = self.runs.read(self.latest, self.runs.locate(codes[ends]), 0)
        floor = np.where(latest < self.idle_before_ms, codes[ends] + 1, codes[ends] - self.panes + 1)
        living: Mask = codes >= np.repeat(floor, np.diff(np.append(-1, ends)))
        return living

    # --- StateTable ---------------------------------------------------------------------------------------------

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        codes = self.runs.codes()
        codes = codes[self._living(codes)]
        return self._frame(codes[self.keys.in_bucket(codes >> SHIFT, bucket, buckets)])


def distinct_totals(table: DistinctTable, numbered: NumberedEvents, values: Sequence[object], panes: int) -> Ints:
    """Return the distinct values in the windows of so many panes that end with each event; ``values`` in its order."""
    counts = np.empty(len(values), np.int64)
    own: dict[int, set[object]] = {}  # of the cut's panes, with what was stored
    current, before, mine = -1, set[object](), set[object]()
    for i, (code, value) in enumerate(zip(numbered.codes.tolist(), values, strict=True)):
        if code != current:
            current = code
            mine = own[code] = set(table.values(code))
            start = max(code - panes + 1, (code >> SHIFT) << SHIFT)
            before = set[object]().union(*(own[c] if c in own else table.values(c) for c in range(start, code)))
            before |= mine
        if value is not None and value not in mine and len(mine) < table.max_values:
            mine.add(value)
            before.add(value)
        counts[i] = len(before)
    return counts
