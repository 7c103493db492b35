"""Counts of distinct values: for each key and pane, how many values were last seen in the pane."""

from __future__ import annotations

import numpy as np
import polars as pl

from rulecore.groups.features.arrivals import NEVER, Ints, KeyedArrivals, Mask
from rulecore.groups.features.latest import ValueTimes
from rulecore.groups.features.panes import PaneSpans, distinct_sorted
from rulecore.groups.windows.aggregation import Array, Combine, Partial
from rulecore.groups.windows.pane_runs import Runs
from rulecore.groups.windows.pane_table import PANE_MASK, SHIFT
from streamcore.columnar.key_slots import KeySlots

_N = "n"
_COUNT = Partial(_N, Combine.SUM, whole=True)


class DistinctTimes(ValueTimes):
    """The values of each key, and how many there are by the pane of their latest event, which is not stored.

    ``owners``: the key slots of the group. Its codes are as in ``PaneTable``.
    """

    def __init__(self, owners: KeySlots, dtype: pl.DataType, pane_ms: int) -> None:
        super().__init__(owners.dtypes, dtype)
        self.owners = owners
        self.pane_ms = pane_ms
        self._counts = Runs()
        self._counted = False

    def count(self, spans: PaneSpans, values: KeyedArrivals, by_event: Ints, *, including_this: bool) -> Array:
        """Return the number of values of the key at each event of ``spans``.

        ``values``: the events that have a value, by value. ``by_event``: for each sorted event of the spans, its index
        in ``values``, -1 without a value that counts.
        """
        self._count_all()
        ranges = self._counts.ranges((spans.slots << SHIFT) | spans.oldest, (spans.slots + 1) << SHIFT)
        stored = self._counts.combine(_N, Combine.SUM, ranges)
        adds = np.zeros(len(spans.event), np.int64)
        pairs = np.flatnonzero(by_event[spans.event] >= 0)
        value = values.key[by_event[spans.event[pairs]]]
        span = spans.span[pairs]
        first = np.unique(span * len(values.first) + value, return_index=True)[1]
        latest = self.stored(values.key_slots)[value[first]]
        new = latest // self.pane_ms < spans.oldest[span[first]]
        adds[pairs[first[new]]] = 1
        return spans.run(_COUNT, adds, stored, including_this=including_this)

    def write(self, arrivals: KeyedArrivals, counted: Mask) -> None:
        """Keep the latest time of each value, and move it to the pane of that time."""
        self._count_all()
        before = self.stored(arrivals.key_slots).copy()
        super().write(arrivals, counted)
        after = self.stored(arrivals.key_slots)
        owner = self.owners.assign(self.keys.frame(arrivals.key_slots).select(self.by))
        moved = after != before
        known = moved & (before > NEVER)
        self._add(owner[known], before[known], -1)
        self._add(owner[moved], after[moved], 1)

    def merge(self, rows: pl.DataFrame) -> None:
        """Add older events: the key columns, ``VALUE`` and ``TIME``, each value of a key once."""
        self._counted = False
        super().merge(rows)

    def _add(self, owner: Ints, times: Ints, change: int) -> None:
        codes, counts = np.unique((owner << SHIFT) | (times // self.pane_ms), return_counts=True)
        self._counts.insert(codes[~self._counts.contains(codes)])
        self._counts.merge(_N, Combine.SUM, self._counts.locate(codes), change * counts)

    def _count_all(self) -> None:
        """Count the values, if they were loaded or dropped."""
        if self._counted:
            return
        self._counted = True
        self._counts = Runs()
        self._counts.set_columns({_N: (np.int64, 0)})
        keys, times = self.entries()
        self._add(self.owners.assign(keys), times, 1)

    def expire(self, before_ms: int) -> bool:
        """Drop the values that were last seen before this time; return whether there was one."""
        dropped = super().expire(before_ms)
        if dropped and self._counted:
            self._counts.retain((self._counts.codes() & PANE_MASK) >= before_ms // self.pane_ms)
        return dropped

    def used(self) -> Ints:
        """Return the key slots of the group that have values, in ascending order."""
        self._count_all()
        return distinct_sorted(self._counts.codes() >> SHIFT)

    def load(self, rows: pl.DataFrame) -> None:
        self._counted = False
        super().load(rows)
