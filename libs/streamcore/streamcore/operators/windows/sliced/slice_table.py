"""The state table of slices: for each slice of event time, its keys and the partials of their elements.

An element is added once, whatever the number of windows it belongs to. Slices are ordered by number, so the cost of a
due window is that of its entries. Expired slices need no tombstone, because their expiry follows from the watermark.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from streamcore.columnar.grouping import distinct, resized, sorted_distinct, with_capacity
from streamcore.columnar.hash_table import Hashes, HashTable, Ints
from streamcore.columnar.key_slots import KeySlots
from streamcore.hashing import bucket_for
from streamcore.operators.windows.aggregate_set import AggregateSet, Columns, concat_rows, take_rows
from streamcore.operators.windows.general.window_table import KeyedJournaledTable

SLICE = "__piece"
_DENSE = 16


class EntryIndex:
    """Finds entries by key slot: by a hash table while there are few, then by an array indexed by key slot."""

    def __init__(self) -> None:
        self._few: HashTable | None = HashTable()
        self._by_key_slot = np.empty(0, dtype=np.int32)

    def find(self, key_slots: Ints) -> Ints:
        """Return the entry of each key slot, -1 if it has none."""
        if self._few is not None:
            return self._few.find(key_slots.view(np.uint64))
        if key_slots.size and int(key_slots.max()) >= len(self._by_key_slot):
            self._extend(int(key_slots.max()) + 1)
        return self._by_key_slot[key_slots].astype(np.int64)

    def add(self, key_slots: Ints, entries: Ints) -> None:
        """Add distinct key slots that have no entry."""
        highest = int(key_slots.max()) + 1
        if self._few is not None:
            self._few.add(key_slots.view(np.uint64), entries)
            if _DENSE * len(self._few) > highest:
                indexed_key_slots, indexed_entries = self._few.items()
                self._few = None
                self._extend(max(highest, int(indexed_key_slots.max()) + 1))
                self._by_key_slot[indexed_key_slots.view(np.int64)] = indexed_entries
            return
        self._extend(highest)
        self._by_key_slot[key_slots] = entries

    def _extend(self, size: int) -> None:
        if size > len(self._by_key_slot):
            larger = np.full(size + size // 2, -1, dtype=np.int32)
            larger[: len(self._by_key_slot)] = self._by_key_slot
            self._by_key_slot = larger


class _Buckets:
    """The state bucket of each entry, computed once, because every cut needs the entries of one bucket."""

    def __init__(self) -> None:
        self._buckets = 0
        self._numbers = np.empty(0, dtype=np.uint16)
        self._length = 0

    def entries(self, key_slots: Ints, hashes: Hashes, bucket: int, buckets: int) -> Ints:
        if buckets != self._buckets:
            self._buckets, self._length = buckets, 0
        if self._length < len(key_slots):
            new = bucket_for(hashes[key_slots[self._length :]], buckets)
            self._numbers = with_capacity(self._numbers, len(key_slots))
            self._numbers[self._length : len(key_slots)] = new
            self._length = len(key_slots)
        return np.flatnonzero(self._numbers[: len(key_slots)] == bucket)


class Slice:
    """The entries of one slice, one per key, in order of arrival."""

    def __init__(self, aggregate_set: AggregateSet, key_slots: Ints, partials: Columns) -> None:
        self._bundle = aggregate_set
        self._entries = EntryIndex()
        self._key_slots = key_slots
        self._columns = dict(partials)
        self._length = len(key_slots)
        self._buckets = _Buckets()
        self.dirty: list[Ints] = [np.arange(len(key_slots))]
        self._entries.add(key_slots, self.dirty[0])

    def __len__(self) -> int:
        return self._length

    @property
    def key_slots(self) -> Ints:
        """Return the key slot of each entry."""
        return self._key_slots[: self._length]

    @property
    def partials(self) -> Columns:
        """Return the partials of each entry."""
        return {name: column[: self._length] for name, column in self._columns.items()}

    def take_changed_entries(self) -> Ints:
        """Return the entries written since the last call, and reset the list."""
        dirty, self.dirty = self.dirty, []
        return sorted_distinct(np.concatenate(dirty))

    def in_bucket(self, hashes: Hashes, bucket: int, buckets: int) -> Ints:
        """Return the entries of one state bucket. ``hashes``: by key slot."""
        return self._buckets.entries(self.key_slots, hashes, bucket, buckets)

    def find(self, key_slots: Ints) -> Ints:
        """Return the entry of each key slot, -1 if it has none."""
        return self._entries.find(key_slots)

    def merge(self, entries: Ints, partials: Columns) -> None:
        """Merge partials into distinct existing entries."""
        merged = self._bundle.merge(take_rows(self._columns, entries), partials)
        for name, values in merged.items():
            self._columns[name][entries] = values
        self.dirty.append(entries)

    def add(self, key_slots: Ints, partials: Columns) -> None:
        """Add an entry for each of these key slots, which have none."""
        entries = np.arange(self._length, self._length + len(key_slots))
        self._entries.add(key_slots, entries)
        self._length += len(key_slots)
        self._key_slots = with_capacity(self._key_slots, self._length)
        self._key_slots[entries] = key_slots
        for name, values in partials.items():
            self._columns[name] = with_capacity(self._columns[name], self._length)
            self._columns[name][entries] = values
        self.dirty.append(entries)


class SliceTable(KeyedJournaledTable):
    """The slices of a shard by number. ``entries``: how many entries they have together."""

    def __init__(self, keys: KeySlots, aggregate_set: AggregateSet) -> None:
        super().__init__(keys, {SLICE: pl.Int64(), **aggregate_set.partial_types}, [SLICE])
        self.aggregate_set = aggregate_set
        self.entries = 0
        self._numbers: list[int] = []
        self._slices: dict[int, Slice] = {}
        self._dirty: dict[int, None] = {}

    def between(self, first: int, end: int) -> list[int]:
        """Return the numbers of the slices from ``first`` to before ``end``."""
        return self._numbers[bisect_left(self._numbers, first) : bisect_left(self._numbers, end)]

    def before(self, end: int) -> list[int]:
        """Return the numbers of the slices before ``end``."""
        return self._numbers[: bisect_left(self._numbers, end)]

    def __getitem__(self, number: int) -> Slice:
        return self._slices[number]

    def find(self, number: int, key_slots: Ints) -> Ints:
        """Return the entry of each key slot in a slice, -1 if it has none."""
        time_slice = self._slices.get(number)
        return np.full(len(key_slots), -1) if time_slice is None else time_slice.find(key_slots)

    def put(self, number: int, key_slots: Ints, entries: Ints, partials: Columns) -> None:
        """Merge into existing ``entries`` (as ``find`` returned them), and add where they are -1. Keys are distinct."""
        new = entries < 0
        self._dirty[number] = None
        if not new.all():
            existing = np.flatnonzero(~new)
            self._slices[number].merge(entries[existing], take_rows(partials, existing))
        if not new.any():
            return
        added = np.flatnonzero(new)
        self.keys.hold(key_slots[added])
        self.entries += len(added)
        if number in self._slices:
            self._slices[number].add(key_slots[added], take_rows(partials, added))
        else:
            self._slices[number] = Slice(self.aggregate_set, key_slots[added], take_rows(partials, added))
            insort(self._numbers, number)

    def remove(self, end: int) -> None:
        """Drop the slices before ``end``."""
        dropped = self.before(end)
        del self._numbers[: len(dropped)]
        for number in dropped:
            time_slice = self._slices.pop(number)
            self.entries -= len(time_slice)
            self.keys.release(time_slice.key_slots)

    def _take_changes(self) -> pl.DataFrame | None:
        dirty, self._dirty = self._dirty, {}
        changed = [(number, self._slices[number]) for number in dirty if number in self._slices]
        return (
            self._rows([(number, time_slice, time_slice.take_changed_entries()) for number, time_slice in changed])
            if changed
            else None
        )

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        hashes = self.keys.hashes
        return self._rows(
            [(number, time_slice, time_slice.in_bucket(hashes, bucket, buckets)) for number, time_slice in self._all()]
        )

    def rows_for(self, key_slots: Ints) -> pl.DataFrame:
        """Return the entries of these keys."""
        return self._rows([(number, one, _present(one.find(key_slots))) for number, one in self._all()])

    def drop(self, key_slots: Ints) -> None:
        """Forget the entries of these keys, which are written."""
        dropped = np.zeros(self.keys.size, dtype=bool)
        dropped[key_slots] = True
        for number, time_slice in [*self._all()]:
            leaving = dropped[time_slice.key_slots]
            if leaving.any():
                self.keys.release(time_slice.key_slots[leaving])
                self.entries -= int(leaving.sum())
                self._replace(number, time_slice, np.flatnonzero(~leaving))

    def _replace(self, number: int, time_slice: Slice, kept: Ints) -> None:
        """Replace a slice by one with these of its entries."""
        if not kept.size:
            del self._slices[number]
            self._numbers.remove(number)
            return
        smaller = Slice(self.aggregate_set, time_slice.key_slots[kept], take_rows(time_slice.partials, kept))
        smaller.dirty = []
        self._slices[number] = smaller

    def restore(self, rows: pl.DataFrame) -> None:
        """Load all live rows of keys that have none in the table, when no change is unwritten."""
        for (number,), slice_rows in rows.group_by([SLICE], maintain_order=True):
            assert isinstance(number, int)
            key_slots = self.keys.assign(slice_rows)
            self.put(number, key_slots, np.full(len(key_slots), -1), self.aggregate_set.load(slice_rows))
        for _, time_slice in self._all():
            time_slice.dirty = []
        self._dirty = {}

    def _all(self) -> Iterator[tuple[int, Slice]]:
        return ((number, self._slices[number]) for number in self._numbers)

    def _rows(self, chosen: Sequence[tuple[int, Slice, Ints]]) -> pl.DataFrame:
        """Return the chosen entries, with the numbers of their slices, as one frame.

        One frame per slice would be slow: there can be hundreds of slices with few entries each.
        """
        nonempty = [item for item in chosen if item[2].size]
        if not nonempty:
            return pl.DataFrame(schema=self.schema)
        numbers = np.repeat([number for number, _, _ in nonempty], [entries.size for _, _, entries in nonempty])
        key_slots = np.concatenate([time_slice.key_slots[entries] for _, time_slice, entries in nonempty])
        partials = concat_rows([take_rows(time_slice.partials, entries) for _, time_slice, entries in nonempty])
        return self.frame(key_slots, [pl.Series(SLICE, numbers, dtype=pl.Int64()), *self.aggregate_set.store(partials)])


def _present(entries: Ints) -> Ints:
    return entries[entries >= 0]


def combine_slices(slices: list[Slice], keys: KeySlots, aggregate_set: AggregateSet) -> tuple[Ints, Columns]:
    """Return the key slots of some slices, ordered by hash, and their partials merged over the slices."""
    all_key_slots = np.concatenate([time_slice.key_slots for time_slice in slices])
    group, first = distinct(all_key_slots, keys.size)
    key_slots = all_key_slots[first]
    order = np.lexsort((key_slots, keys.hashes[key_slots])) if keys.share_hashes else np.argsort(keys.hashes[key_slots])
    return key_slots[order], take_rows(_merge_slices(slices, group, len(first), aggregate_set), order)


def _merge_slices(slices: list[Slice], group: Ints, groups: int, aggregate_set: AggregateSet) -> Columns:
    """Return the partials of each group over all slices.

    ``group``, of shape (entries of all slices,), slice by slice: the group of each entry, numbered by first appearance.
    """
    columns = {name: resized(column, groups) for name, column in slices[0].partials.items()}
    group_count, end = len(slices[0]), len(slices[0])
    for time_slice in slices[1:]:
        start, end = end, end + len(time_slice)
        slice_groups, partials = group[start:end], time_slice.partials
        new, existing = np.flatnonzero(slice_groups >= group_count), np.flatnonzero(slice_groups < group_count)
        merged = aggregate_set.merge(take_rows(columns, slice_groups[existing]), take_rows(partials, existing))
        for name, column in columns.items():
            column[slice_groups[existing]] = merged[name]
            column[slice_groups[new]] = partials[name][new]
        group_count += len(new)
    return columns
