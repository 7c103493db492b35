"""The pieces of event time that hold data: for each, the keys in it and the partials of their elements.

An element is added once, whatever the number of windows it belongs to. Pieces are found by their number, in order, so
that a window that is due costs what is in it. A ``StateTable``; that a piece is over follows from the watermark.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from streamcore.hashing import bucket_of
from streamcore.operators.windows.bundle import Bundle, Columns, at, joined
from streamcore.operators.windows.grouping import distinct, grown, roomy, sorted_distinct
from streamcore.operators.windows.keys import KeySlots
from streamcore.operators.windows.table import Hashes, Ints, NumberTable
from streamcore.operators.windows.tables import KeyedJournal

PIECE = "__piece"
_DENSE = 16


class Entries:
    """From slot to entry: a hash table while there are few, then an array by slot."""

    def __init__(self) -> None:
        self._few: NumberTable | None = NumberTable()
        self._by_slot = np.empty(0, dtype=np.int32)

    def find(self, slots: Ints) -> Ints:
        """The entry of each slot, -1 where it has none."""
        if self._few is not None:
            return self._few.find(slots.view(np.uint64))
        if slots.size and int(slots.max()) >= len(self._by_slot):
            self._extend(int(slots.max()) + 1)
        return self._by_slot[slots].astype(np.int64)

    def add(self, slots: Ints, entries: Ints) -> None:
        """Add slots that are distinct and have no entry."""
        highest = int(slots.max()) + 1
        if self._few is not None:
            self._few.add(slots.view(np.uint64), entries)
            if _DENSE * len(self._few) > highest:
                held, values = self._few.items()
                self._few = None
                self._extend(max(highest, int(held.max()) + 1))
                self._by_slot[held.view(np.int64)] = values
            return
        self._extend(highest)
        self._by_slot[slots] = entries

    def _extend(self, size: int) -> None:
        if size > len(self._by_slot):
            room = np.full(size + size // 2, -1, dtype=np.int32)
            room[: len(self._by_slot)] = self._by_slot
            self._by_slot = room


class _Buckets:
    """The bucket of each entry, computed once: every cut asks for one bucket of all entries."""

    def __init__(self) -> None:
        self._buckets = 0
        self._numbers = np.empty(0, dtype=np.uint16)
        self._length = 0

    def entries(self, slots: Ints, hashes: Hashes, bucket: int, buckets: int) -> Ints:
        if buckets != self._buckets:
            self._buckets, self._length = buckets, 0
        if self._length < len(slots):
            new = bucket_of(hashes[slots[self._length :]], buckets)
            self._numbers = roomy(self._numbers, len(slots))
            self._numbers[self._length : len(slots)] = new
            self._length = len(slots)
        return np.flatnonzero(self._numbers[: len(slots)] == bucket)


class Piece:
    """The entries of one piece, an entry a key, in order of arrival."""

    def __init__(self, bundle: Bundle, slots: Ints, partials: Columns) -> None:
        self._bundle = bundle
        self._entries = Entries()
        self._slots = slots
        self._columns = dict(partials)
        self._length = len(slots)
        self._buckets = _Buckets()
        self.dirty: list[Ints] = [np.arange(len(slots))]
        self._entries.add(slots, self.dirty[0])

    def __len__(self) -> int:
        return self._length

    @property
    def slots(self) -> Ints:
        """The key of each entry."""
        return self._slots[: self._length]

    @property
    def partials(self) -> Columns:
        """The partials of each entry."""
        return {name: column[: self._length] for name, column in self._columns.items()}

    def changed(self) -> Ints:
        """The entries that were written since the last call."""
        dirty, self.dirty = self.dirty, []
        return sorted_distinct(np.concatenate(dirty))

    def in_bucket(self, hashes: Hashes, bucket: int, buckets: int) -> Ints:
        """The entries of one bucket of the state. ``hashes``: by slot."""
        return self._buckets.entries(self.slots, hashes, bucket, buckets)

    def find(self, slots: Ints) -> Ints:
        """The entry of each key, -1 where it has none."""
        return self._entries.find(slots)

    def merge(self, entries: Ints, partials: Columns) -> None:
        """Add to distinct entries that are there."""
        merged = self._bundle.merge(at(self._columns, entries), partials)
        for name, values in merged.items():
            self._columns[name][entries] = values
        self.dirty.append(entries)

    def add(self, slots: Ints, partials: Columns) -> None:
        """New entries, of keys that have none."""
        entries = np.arange(self._length, self._length + len(slots))
        self._entries.add(slots, entries)
        self._length += len(slots)
        self._slots = roomy(self._slots, self._length)
        self._slots[entries] = slots
        for name, values in partials.items():
            self._columns[name] = roomy(self._columns[name], self._length)
            self._columns[name][entries] = values
        self.dirty.append(entries)


class Pieces(KeyedJournal):
    """All pieces, by number."""

    def __init__(self, keys: KeySlots, bundle: Bundle) -> None:
        super().__init__(keys, {PIECE: pl.Int64(), **bundle.dtypes}, [PIECE])
        self.bundle = bundle
        self.entries = 0
        self._numbers: list[int] = []
        self._pieces: dict[int, Piece] = {}
        self._dirty: dict[int, None] = {}

    def between(self, first: int, end: int) -> list[int]:
        """The numbers of those from ``first`` up to, not including, ``end``."""
        return self._numbers[bisect_left(self._numbers, first) : bisect_left(self._numbers, end)]

    def before(self, end: int) -> list[int]:
        """The numbers of those before ``end``."""
        return self._numbers[: bisect_left(self._numbers, end)]

    def __getitem__(self, number: int) -> Piece:
        return self._pieces[number]

    def find(self, number: int, slots: Ints) -> Ints:
        """The entry of each key in a piece, -1 where it has none."""
        piece = self._pieces.get(number)
        return np.full(len(slots), -1) if piece is None else piece.find(slots)

    def put(self, number: int, slots: Ints, entries: Ints, partials: Columns) -> None:
        """Merge where ``entries`` (as ``find`` answered) are there, and add where they are -1. Keys are distinct."""
        new = entries < 0
        self._dirty[number] = None
        if not new.all():
            there = np.flatnonzero(~new)
            self._pieces[number].merge(entries[there], at(partials, there))
        if not new.any():
            return
        added = np.flatnonzero(new)
        self.keys.hold(slots[added])
        self.entries += len(added)
        if number in self._pieces:
            self._pieces[number].add(slots[added], at(partials, added))
        else:
            self._pieces[number] = Piece(self.bundle, slots[added], at(partials, added))
            insort(self._numbers, number)

    def remove(self, end: int) -> None:
        """Forget all before ``end``."""
        gone = self.before(end)
        del self._numbers[: len(gone)]
        for number in gone:
            piece = self._pieces.pop(number)
            self.entries -= len(piece)
            self.keys.release(piece.slots)

    def _changed(self) -> pl.DataFrame | None:
        dirty, self._dirty = self._dirty, {}
        live = [(number, self._pieces[number]) for number in dirty if number in self._pieces]
        return self._rows([(number, piece, piece.changed()) for number, piece in live]) if live else None

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        hashes = self.keys.hashes
        return self._rows([(number, piece, piece.in_bucket(hashes, bucket, buckets)) for number, piece in self._all()])

    def restore(self, rows: pl.DataFrame) -> None:
        """Take all live rows."""
        for (number,), part in rows.group_by([PIECE], maintain_order=True):
            assert isinstance(number, int)
            slots = self.keys.assign(part)
            self.put(number, slots, np.full(len(slots), -1), self.bundle.load(part))
        for _, piece in self._all():
            piece.dirty = []
        self._dirty = {}

    def _all(self) -> Iterator[tuple[int, Piece]]:
        return ((number, self._pieces[number]) for number in self._numbers)

    def _rows(self, chosen: Sequence[tuple[int, Piece, Ints]]) -> pl.DataFrame:
        """Some entries of some pieces, each with its number, as one frame: there may be hundreds of pieces, with a few
        entries of each, and a frame costs what it costs however few rows it has."""
        found = [one for one in chosen if one[2].size]
        if not found:
            return pl.DataFrame(schema=self.schema)
        numbers = np.repeat([number for number, _, _ in found], [entries.size for _, _, entries in found])
        slots = np.concatenate([piece.slots[entries] for _, piece, entries in found])
        partials = joined([at(piece.partials, entries) for _, piece, entries in found])
        return self.frame(slots, [pl.Series(PIECE, numbers, dtype=pl.Int64()), *self.bundle.store(partials)])


def together(pieces: list[Piece], keys: KeySlots, bundle: Bundle) -> tuple[Ints, Columns]:
    """The keys of some pieces, in the order of their hashes, and what all pieces hold of each."""
    every = np.concatenate([piece.slots for piece in pieces])
    group, first = distinct(every, keys.size)
    slots = every[first]
    order = np.lexsort((slots, keys.hashes[slots])) if keys.share_hashes else np.argsort(keys.hashes[slots])
    return slots[order], at(_merged(pieces, group, len(first), bundle), order)


def _merged(pieces: list[Piece], group: Ints, groups: int, bundle: Bundle) -> Columns:
    """What all pieces hold of each group. ``group``: of all entries, piece by piece, numbered as they come."""
    columns = {name: grown(column, groups) for name, column in pieces[0].partials.items()}
    known, end = len(pieces[0]), len(pieces[0])
    for piece in pieces[1:]:
        start, end = end, end + len(piece)
        mine, partials = group[start:end], piece.partials
        new, again = np.flatnonzero(mine >= known), np.flatnonzero(mine < known)
        merged = bundle.merge(at(columns, mine[again]), at(partials, again))
        for name, column in columns.items():
            column[mine[again]] = merged[name]
            column[mine[new]] = partials[name][new]
        known += len(new)
    return columns
