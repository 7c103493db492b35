"""The state table of live sessions.

The columns have an entry per session. The entries of a key form a linked list, and an index finds the entries whose
sessions end. Key and start identify the stored row of a session; when the start changes, the table writes a tombstone
for the row with the old start. A session that ends needs no tombstone, because its end follows from the watermark.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from streamcore.columnar.deadlines import DeadlineIndex
from streamcore.columnar.grouping import distinct, resized, run_starts
from streamcore.columnar.hash_table import Ints
from streamcore.columnar.key_slots import KeySlots
from streamcore.operators.windows.aggregate_set import AggregateSet, Columns, take_rows
from streamcore.operators.windows.general.window_table import END, FIRST, KeyedJournaledTable

_NONE = np.empty(0, dtype=np.int64)


class SessionWindowTable(KeyedJournaledTable):
    """The live sessions of a shard. ``cold_count``: how many more are on disk.

    ``key_slot``, ``start``, ``end``, ``columns`` and ``marks`` are arrays by entry.

    ``key_slot``: the key slot. ``start`` and ``end`` are in milliseconds; ``end`` is ``FREE`` for an unused entry.
    ``columns``: the partials. ``marks``: further whole numbers of a session by column name, 0 in a new session.
    """

    FREE = -(2**63)

    def __init__(self, keys: KeySlots, aggregate_set: AggregateSet, gap_ms: int, marks: Sequence[str] = ()) -> None:
        numbers = dict.fromkeys([FIRST, END, *marks], pl.Int64())
        super().__init__(keys, {**numbers, **aggregate_set.partial_types}, [FIRST])
        self.aggregate_set = aggregate_set
        self.count = self.cold_count = 0
        self.key_slot, self.start, self.end, self._next = (_NONE.copy() for _ in range(4))
        self.columns: Columns = take_rows(aggregate_set.empty_partial(), _NONE)
        self.marks = {name: _NONE.copy() for name in marks}
        self._head = _NONE
        self._free = _NONE
        self._size = 0
        self._ends = DeadlineIndex(gap_ms)
        self._dirty: list[Ints] = []
        self._moved: list[tuple[Ints, Ints]] = []

    # --- by key -------------------------------------------------------------------------------------------------

    def entries_for(self, key_slots: Ints) -> tuple[Ints, Ints]:
        """Return the entries of distinct keys, and for each entry the index of its key in ``key_slots``."""
        self._reserve_heads()
        entry, key_index = self._head[key_slots], np.arange(len(key_slots))
        entries, key_indexes = [_NONE], [_NONE]
        while (linked := np.flatnonzero(entry >= 0)).size:
            entry, key_index = entry[linked], key_index[linked]
            entries.append(entry)
            key_indexes.append(key_index)
            entry = self._next[entry]
        return np.concatenate(entries), np.concatenate(key_indexes)

    def link(self, key_slots: Ints, entries: Ints, key_indexes: Ints) -> None:
        """Replace the linked lists of these keys.

        ``key_indexes``, of shape (entries,): the index in ``key_slots`` of each entry's key, in ascending order.
        """
        self._reserve_heads()
        self._head[key_slots] = -1
        if not entries.size:
            return
        same_key = key_indexes[1:] == key_indexes[:-1]
        self._next[entries] = -1
        self._next[entries[:-1][same_key]] = entries[1:][same_key]
        starts = np.concatenate([[True], ~same_key])
        self._head[key_slots[key_indexes[starts]]] = entries[starts]

    # --- writing ------------------------------------------------------------------------------------------------

    def new(self, key_slots: Ints) -> Ints:
        """Allocate an entry for each of these keys and return the entries. Call ``write`` for each."""
        reused_count = min(len(self._free), len(key_slots))
        reused, self._free = self._free[len(self._free) - reused_count :], self._free[: len(self._free) - reused_count]
        entries = np.concatenate([reused, np.arange(self._size, self._size + len(key_slots) - reused_count)])
        self._size += len(key_slots) - reused_count
        self._reserve()
        self.key_slot[entries] = key_slots
        for mark in self.marks.values():
            mark[entries] = 0
        self.count += len(key_slots)
        self.keys.hold(key_slots)
        return entries

    def write(self, entries: Ints, start: Ints, end: Ints, partials: Columns) -> None:
        """Set the bounds and partials of distinct entries."""
        self.start[entries], self.end[entries] = start, end
        for name, values in partials.items():
            self.columns[name][entries] = values
        self._dirty.append(entries)
        self._ends.put(end, entries)

    def absorb(self, entries: Ints, into: Ints) -> None:
        """Handle entries that are about to be merged into the entries ``into``. The base class does nothing."""

    def merge_order(self, group: Ints, entries: Ints) -> Ints:  # noqa: ARG002 - any entry of a group may survive
        """Return the order of these entries by group. The first entry of a group survives the merge."""
        return np.argsort(group, kind="stable")

    def record_moved(self, key_slots: Ints, starts: Ints) -> None:
        """Record that the sessions of these keys no longer begin at these starts, so that their rows get deleted."""
        if key_slots.size:
            self._moved.append((key_slots, starts))

    def remove(self, entries: Ints) -> None:
        """Free distinct entries."""
        self.end[entries] = self.FREE
        self._free = np.concatenate([self._free, entries])
        self.count -= len(entries)
        self.keys.release(self.key_slot[entries])

    def take_ended(self, watermark_ms: int) -> Ints:
        """Return the entries whose sessions end at or before the watermark, in any order.

        The caller must remove them; a later call does not return them again.
        """
        candidates = self._ends.take(watermark_ms, self.end, self._size)
        due: Ints = candidates[self.end[candidates] != self.FREE]
        return due

    # --- state --------------------------------------------------------------------------------------------------

    def _take_changes(self) -> pl.DataFrame | None:
        if not self._dirty and not self._moved:
            return None
        moved, self._moved = self._moved, []
        dirty, self._dirty = np.concatenate([_NONE, *self._dirty]), []
        dirty = dirty[distinct(dirty, self._size)[1]]
        key_slots = np.concatenate([_NONE, *(key_slots for key_slots, _ in moved)])
        starts = np.concatenate([_NONE, *(starts for _, starts in moved)])
        tombstones = self.tombstones(key_slots, {FIRST: starts})
        return pl.concat([tombstones, self._rows(dirty[self.end[dirty] != self.FREE])])

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        entries = np.flatnonzero(self.end[: self._size] != self.FREE)
        return self._rows(entries[self.keys.in_bucket(self.key_slot[entries], bucket, buckets)])

    def rows_of(self, key_slots: Ints) -> pl.DataFrame:
        """Return the sessions of these keys."""
        return self._rows(self.entries_for(key_slots)[0])

    def drop(self, key_slots: Ints) -> None:
        """Forget the sessions of these keys, which are written."""
        self.remove(self.entries_for(key_slots)[0])
        self._head[key_slots] = -1

    def restore(self, rows: pl.DataFrame) -> None:
        """Load all live rows of keys that have none in the table, when no change is unwritten."""
        key_slots = self.keys.assign(rows)
        entries = self.new(key_slots)
        self.write(entries, rows[FIRST].to_numpy(), rows[END].to_numpy(), self.aggregate_set.load(rows))
        for name, mark in self.marks.items():
            mark[entries] = rows[name].to_numpy()
        order = np.argsort(key_slots, kind="stable")
        starts = run_starts(key_slots[order])
        key_indexes = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(key_slots))))
        self.link(key_slots[order[starts]], entries[order], key_indexes)
        self._dirty = []

    def _rows(self, entries: Ints) -> pl.DataFrame:
        bounds = [pl.Series(FIRST, self.start[entries]), pl.Series(END, self.end[entries])]
        marks = [pl.Series(name, mark[entries]) for name, mark in self.marks.items()]
        return self.frame(
            self.key_slot[entries], [*bounds, *marks, *self.aggregate_set.store(take_rows(self.columns, entries))]
        )

    def _reserve(self) -> None:
        if self._size <= len(self.key_slot):
            return
        capacity = 2 * self._size
        self.key_slot, self.start, self._next = (
            resized(column, capacity) for column in (self.key_slot, self.start, self._next)
        )
        end = np.full(capacity, self.FREE)
        end[: len(self.end)] = self.end
        self.end = end
        self.columns = {name: resized(column, capacity) for name, column in self.columns.items()}
        self.marks = {name: resized(mark, capacity) for name, mark in self.marks.items()}

    def _reserve_heads(self) -> None:
        if len(self._head) < self.keys.size:
            head = np.full(2 * self.keys.size, -1)
            head[: len(self._head)] = self._head
            self._head = head
