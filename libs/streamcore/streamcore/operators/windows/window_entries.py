"""The state table of live windows in columns: an entry per window, and the entries of a key as a linked list.

An index finds the entries whose windows end. A subclass decides how an entry is stored.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from streamcore.columnar.deadlines import DeadlineIndex
from streamcore.columnar.grouping import resized, run_starts
from streamcore.columnar.hash_table import Ints
from streamcore.columnar.key_slots import KeySlots
from streamcore.operators.windows.aggregate_set import AggregateSet, Columns, take_rows
from streamcore.operators.windows.general.window_table import KeyedJournaledTable

NO_ENTRIES = np.empty(0, dtype=np.int64)


class WindowEntryTable(KeyedJournaledTable):
    """The live windows of a shard. ``key_slot``, ``start``, ``end``, ``columns`` and ``marks`` are arrays by entry.

    ``key_slot``: the key slot. ``start``, ``end``: the bounds of the window; ``end`` is ``FREE`` for an unused entry.
    ``columns``: the partials. ``marks``: further whole numbers of a window by name, 0 in a new window.
    """

    FREE = -(2**63)

    def __init__(
        self,
        keys: KeySlots,
        aggregate_set: AggregateSet,
        stored: Mapping[str, pl.DataType],
        name: Sequence[str],
        near_ms: int,
        marks: Sequence[str],
    ) -> None:
        """``stored``: the columns of a row before its partials. ``near_ms``: how far ahead a window usually ends."""
        super().__init__(keys, {**stored, **aggregate_set.partial_types}, name)
        self.aggregate_set = aggregate_set
        self.count = 0
        self.key_slot, self.start, self.end, self._next = (NO_ENTRIES.copy() for _ in range(4))
        self.columns: Columns = take_rows(aggregate_set.empty_partial(), NO_ENTRIES)
        self.marks = {mark: NO_ENTRIES.copy() for mark in marks}
        self._head = NO_ENTRIES
        self._free = NO_ENTRIES
        self._size = 0
        self._ends = DeadlineIndex(near_ms)
        self._dirty: list[Ints] = []

    # --- by key -------------------------------------------------------------------------------------------------

    def entries_for(self, key_slots: Ints) -> tuple[Ints, Ints]:
        """Return the entries of distinct keys, and for each entry the index of its key in ``key_slots``."""
        self._reserve_heads()
        entry, key_index = self._head[key_slots], np.arange(len(key_slots))
        entries, key_indexes = [NO_ENTRIES], [NO_ENTRIES]
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

    def link_all(self, key_slots: Ints, entries: Ints) -> None:
        """Replace the linked lists of these keys. ``key_slots``, of shape (entries,): the key slot of each entry."""
        order = np.argsort(key_slots, kind="stable")
        starts = run_starts(key_slots[order])
        key_indexes = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(key_slots))))
        self.link(key_slots[order[starts]], entries[order], key_indexes)

    def unlink_removed(self, key_slots: Ints) -> None:
        """Take removed entries out of the linked lists of these distinct keys."""
        remaining, entry_keys = self.entries_for(key_slots)
        live = np.flatnonzero(self.end[remaining] != self.FREE)
        live = live[np.argsort(entry_keys[live], kind="stable")]
        self.link(key_slots, remaining[live], entry_keys[live])

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

    def live_entries(self) -> Ints:
        """Return the entries of all live windows."""
        return np.flatnonzero(self.end[: self._size] != self.FREE)

    # --- state --------------------------------------------------------------------------------------------------

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        entries = self.live_entries()
        return self._rows(entries[self.keys.in_bucket(self.key_slot[entries], bucket, buckets)])

    @abstractmethod
    def _rows(self, entries: Ints) -> pl.DataFrame:
        """Return the stored rows of these entries."""

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
