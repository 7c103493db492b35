"""The earliest event of each key and pane, with a value of it: the state of ``first``."""

from __future__ import annotations

import numpy as np
import polars as pl

from rulecore.groups.features.arrivals import Ints, KeyedArrivals, Mask
from rulecore.groups.features.latest import TIME, VALUE, LatestTable
from rulecore.groups.features.panes import PaneSpans, distinct_sorted
from rulecore.groups.windows.aggregation import Combine, Partial
from rulecore.groups.windows.pane_runs import Runs
from rulecore.groups.windows.pane_table import PANE, PANE_MASK, SHIFT
from rulecore.state_size import StateSize
from streamcore.columnar.key_slots import KeySlots

_TIME, _ROW = "t", "row"
_LATER = Partial("t", Combine.MIN, whole=True)


class FirstTable:
    """A ``StateTable`` with a row for each key and pane: the time of its earliest event, and the value of that.

    ``owners``: the key slots of the group. ``_index`` has the time and the row of each key and pane by their code, as
    in ``PaneTable``; it is not stored.
    """

    def __init__(self, owners: KeySlots, dtype: pl.DataType, pane_ms: int) -> None:
        self.owners = owners
        self.pane_ms = pane_ms
        self.keys = KeySlots({**owners.dtypes, PANE: pl.Int64()})
        self._events = LatestTable(self.keys, dtype)
        self._index = Runs()
        self._indexed = False

    # --- reading and writing ------------------------------------------------------------------------------------

    def read(
        self, spans: PaneSpans, arrivals: KeyedArrivals, counted: Mask, values: pl.Series, *, including_this: bool
    ) -> pl.Series:
        """Return the value of the earliest counted event before each sorted event, NULL if there is none.

        ``values``: of each sorted event.
        """
        index = self._find_index()
        ranges = index.ranges((spans.slots << SHIFT) | spans.oldest, (spans.slots + 1) << SHIFT)
        stored = index.combine(_TIME, Combine.MIN, ranges)
        rank = _rank(arrivals.times)
        # Of equal times the stored event arrived first.
        earlier = counted[spans.event] & (arrivals.times[spans.event] < stored[spans.span])
        candidates = np.where(earlier, rank[spans.event], _LATER.identity)
        none = np.full(len(spans.slots), _LATER.identity)
        found = spans.run(_LATER, candidates, none, including_this=including_this)
        by_rank = np.empty(len(rank), np.int64)
        by_rank[rank] = np.arange(len(rank))
        of_cut = found < len(rank)
        own = spans.span[spans.own]
        known = stored < _LATER.identity
        codes = (spans.slots[known] << SHIFT) | (stored[known] // self.pane_ms)
        row = np.full(len(spans.slots), -1)
        row[known] = index.read(_ROW, index.locate(codes), -1)
        kept = self._events.values_at(row[known])
        both = pl.concat([kept, values.cast(kept.dtype), pl.Series(values.name, [None], dtype=kept.dtype)])
        place = np.full(len(spans.slots), len(both) - 1)
        place[known] = np.arange(len(kept))
        where = np.where(of_cut, len(kept) + by_rank[np.where(of_cut, found, 0)], place[own])
        result: pl.Series = both.gather(where)
        return result

    def write(self, arrivals: KeyedArrivals, counted: Mask, values: pl.Series) -> None:
        """Keep the earliest counted event of each key and pane."""
        index = self._find_index()
        at = np.flatnonzero(counted)
        codes = (arrivals.slots[at] << SHIFT) | (arrivals.times[at] // self.pane_ms)
        order = np.lexsort((arrivals.times[at], codes))
        codes, first = np.unique(codes[order], return_index=True)
        event = at[order[first]]
        earlier = arrivals.times[event] < index.read(_TIME, index.locate(codes), _LATER.identity)
        codes, event = codes[earlier], event[earlier]
        keyed = self.owners.frame(codes >> SHIFT).with_columns(pl.Series(PANE, codes & PANE_MASK))
        rows = self.keys.assign(keyed)
        self._events.put(rows, arrivals.times[event], values.gather(event).to_list())
        self._enter(codes, arrivals.times[event], rows)

    def merge(self, rows: pl.DataFrame) -> None:
        """Add older events: the key columns, ``PANE``, ``TIME`` and ``VALUE``, each pane of a key once."""
        self._indexed = False
        slots = self.keys.assign(rows)
        self._events.merge(slots, rows[TIME].to_numpy(), rows[VALUE].to_list(), earliest=True)

    def _enter(self, codes: Ints, times: Ints, rows: Ints) -> None:
        self._index.insert(codes[~self._index.contains(codes)])
        at = self._index.locate(codes)
        self._index.write(_TIME, at, times)
        self._index.write(_ROW, at, rows)

    def _find_index(self) -> Runs:
        """Return the index, made anew if rows were loaded."""
        if not self._indexed:
            self._indexed = True
            self._index = Runs()
            self._index.set_columns({_TIME: (np.int64, _LATER.identity), _ROW: (np.int64, -1)})
            rows = self._events.used()
            keyed = self.keys.frame(rows)
            codes = (self.owners.assign(keyed) << SHIFT) | keyed[PANE].to_numpy()
            order = np.argsort(codes)
            self._enter(codes[order], self._events.at(rows)[order], rows[order])
        return self._index

    def expire(self, before_ms: int) -> bool:
        """Drop the panes before this time, which is the beginning of one; return whether there was one."""
        dropped = self._events.expire(before_ms)
        if dropped:
            self.keys.keep(self._events.used())
            if self._indexed:
                self._index.retain((self._index.codes() & PANE_MASK) >= before_ms // self.pane_ms)
        return dropped

    def used(self) -> Ints:
        """Return the key slots of the group that have panes, in ascending order."""
        return distinct_sorted(self._find_index().codes() >> SHIFT)

    # --- size ---------------------------------------------------------------------------------------------------

    def state_size(self) -> StateSize:
        """Return the size of all rows, or more."""
        return self._events.state_size()

    def exact_size(self) -> StateSize:
        """Return the size of all rows."""
        return self._events.exact_size()

    # --- StateTable ---------------------------------------------------------------------------------------------

    def changes(self) -> pl.DataFrame:
        return self._events.changes()

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        return self._events.rows(bucket, buckets)

    def load(self, rows: pl.DataFrame) -> None:
        self._indexed = False
        self._events.load(rows)


def _rank(times: Ints) -> Ints:
    """Return the place of each sorted event in order of time; of equal times, in order of arrival."""
    rank = np.empty(len(times), np.int64)
    rank[np.argsort(times, kind="stable")] = np.arange(len(times))
    return rank
