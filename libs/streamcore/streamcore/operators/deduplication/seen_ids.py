"""Which ids were seen, and when: columns of 24 bytes an entry and an index of 12 to 24, no Python object.

An id is kept as a fingerprint of 128 bits. With 64 bits, two of 100 million ids would share one with a probability of
2.7e-4 (n**2 / 2 / 2**64), and a real event would be taken for a repeat; with 128 it is 1.5e-23.

Entries are columns in order of arrival, found through an index: a table of entry numbers, open-addressed with double
hashing (Knuth: "The Art of Computer Programming", 6.4), probed and filled a column at a time. Entries expire a slice of
event time at a time: their number is taken off at once, their columns are cleared when a third of them is expired.
The caller passes the first time that still counts, so it does not matter when the columns are cleared.

Ids that were chosen to collide in both hashes can make probing slow. The module does not know duplicates, ports and
watermarks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.hashing import UInt64Array, bucket_for, mix
from streamcore.schema import EVENT_MS
from streamcore.state.table import HASH

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Number = TypeVar("Number", np.uint64, np.int64)

CHECK = "check"
#: Into how many slices a horizon is cut; memory is given back slice by slice.
SLICES = 64
#: Event time is part of an entry's place in the index, in cells of so many horizons: however often an id comes back,
#: no more than these entries of it lie on one path.
_CELL_HORIZONS = 16
_CELL_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_LEAST = 1024


@dataclass(frozen=True, slots=True)
class IdHashes:
    """Rows as columns: two hashes of the id (``hashing.fingerprint_columns``), and the event time."""

    hashes: UInt64Array
    checks: UInt64Array
    event_ms: Ints

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, rows: Ints | Mask | slice) -> IdHashes:
        """Return the rows at these indexes."""
        return IdHashes(self.hashes[rows], self.checks[rows], self.event_ms[rows])

    def where(self, mask: Mask) -> IdHashes:
        """Return the rows of the mask. If these are all rows, as usual, nothing is copied."""
        return self if mask.all() else self.take(mask)


_NONE = IdHashes(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64))


class SeenIds:
    """A ``StateTable`` of (id, event time). Times of one id are further apart than the horizon."""

    def __init__(self, horizon_ms: int) -> None:
        self.horizon_ms = horizon_ms
        self.slice_ms = -(-horizon_ms // SLICES)
        self._cell_ms = _CELL_HORIZONS * (horizon_ms + 1)
        self._slices: dict[int, int] = {}  # live entries by slice of event time
        self._first_slice = -(2**62)
        self._entries, self._count, self._written = _NONE, 0, 0
        self._index = np.empty(0, np.int32)
        self._rebuild(_NONE)

    def __len__(self) -> int:
        """Return the number of live entries."""
        return sum(self._slices.values())

    def contains(self, ids: IdHashes, since_ms: int) -> Mask:
        """Return, for each id, whether there is an entry within the horizon of its time, and not before
        ``since_ms``."""
        cell = ids.event_ms // self._cell_ms
        found = self._find(ids, cell, since_ms)
        into = ids.event_ms - cell * self._cell_ms
        other = cell - (into < self.horizon_ms) + (into + self.horizon_ms >= self._cell_ms)
        near = np.flatnonzero((other != cell) & ~found)
        found[near] = self._find(ids.take(near), other[near], since_ms)
        return found

    def add(self, ids: IdHashes) -> None:
        """Add ids that are not in the table."""
        before, self._count = self._count, self._count + len(ids)
        self._reserve(before)
        for whole, part in zip(_columns(self._entries), _columns(ids), strict=True):
            whole[before : self._count] = part
        for number, count in _by_slice(ids, self.slice_ms):
            self._slices[number] = self._slices.get(number, 0) + count
        if 2 * self._count > len(self._index):
            self._clear()
        else:
            self._place(np.arange(before, self._count, dtype=np.int32))

    def forget(self, before_ms: int) -> int:
        """Drop the slices that end at or before this time; return the number of dropped entries."""
        self._first_slice = max(self._first_slice, before_ms // self.slice_ms)
        gone = sum(self._slices.pop(n) for n in [n for n in self._slices if n < self._first_slice])
        if self._count - len(self) > max(_LEAST, self._count // 2):
            self._clear()
        return gone

    def floor_for(self, ids: IdHashes, limit: int) -> int | None:
        """Return the time to forget before, so that with these ids no more than ``limit`` remain; None when they fit.

        The newest slice is never given up."""
        total = len(self) + len(ids)
        if total <= limit:
            return None
        slices = dict(self._slices)
        for number, count in _by_slice(ids, self.slice_ms):
            slices[number] = slices.get(number, 0) + count
        oldest_first = sorted(slices)
        first = 0
        while total > limit and first < len(oldest_first) - 1:
            total -= slices[oldest_first[first]]
            first += 1
        return oldest_first[first] * self.slice_ms

    # --- StateTable ---------------------------------------------------------------------------------------------

    def changes(self) -> pl.DataFrame:
        new = self._entries.take(slice(self._written, self._count))
        self._written = self._count
        return _frame(new.where(self._live(new)))

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        held = self._current_entries()
        return _frame(held.take((bucket_for(held.hashes, buckets) == bucket) & self._live(held)))

    def load(self, rows: pl.DataFrame) -> None:
        self.add(IdHashes(rows[HASH].to_numpy(), rows[CHECK].to_numpy(), rows[EVENT_MS].to_numpy()))
        self._written = self._count

    # --- columns ------------------------------------------------------------------------------------------------

    def _current_entries(self) -> IdHashes:
        return self._entries.take(slice(0, self._count))

    def _live(self, ids: IdHashes) -> Mask:
        return ids.event_ms >= self._first_slice * self.slice_ms

    def _reserve(self, used: int) -> None:
        """Make room for ``_count`` entries; the first ``used`` are kept."""
        if self._count > len(self._entries):
            size = max(_LEAST, self._count + self._count // 4)
            kept = self._entries.take(slice(0, used))
            self._entries = IdHashes(
                _resize(kept.hashes, size), _resize(kept.checks, size), _resize(kept.event_ms, size)
            )

    def _clear(self) -> None:
        """Free the memory of expired ids, and rebuild the index."""
        live = self._live(self._current_entries())
        self._written = int(np.count_nonzero(live[: self._written]))
        self._rebuild(self._current_entries().where(live))

    # --- index --------------------------------------------------------------------------------------------------

    def _rebuild(self, entries: IdHashes) -> None:
        """Keep only these entries, with an index that is a sixth to a third full."""
        self._entries, self._count = entries, len(entries)
        self._index = np.full(1 << (max(_LEAST, 3 * self._count) - 1).bit_length(), -1, dtype=np.int32)
        self._place(np.arange(self._count, dtype=np.int32))

    def _path(self, ids: IdHashes, cell: Ints) -> tuple[Ints, Ints]:
        """Return, both of shape (ids,), the first index slot of each id's probe path and its step, which is odd."""
        mask = np.uint64(len(self._index) - 1)
        with np.errstate(over="ignore"):
            start = mix(ids.hashes ^ (cell.view(np.uint64) * _CELL_FACTOR)) & mask
        return start.view(np.int64), ((ids.checks | np.uint64(1)) & mask).view(np.int64)

    def _place(self, numbers: npt.NDArray[np.int32]) -> None:
        """Write each entry number to the first free slot of its path. If several meet, one of them is stored."""
        if not numbers.size:
            return
        index, mask = self._index, len(self._index) - 1
        entries = self._entries.take(slice(int(numbers[0]), int(numbers[-1]) + 1))
        place, step = self._path(entries, entries.event_ms // self._cell_ms)
        while numbers.size:
            free = index[place] < 0
            index[place[free]] = numbers[free]
            lost = np.flatnonzero(index[place] != numbers)
            numbers, step = numbers[lost], step[lost]
            place = (place[lost] + step) & mask

    def _find(self, ids: IdHashes, cell: Ints, since_ms: int) -> Mask:
        """Follow every id's path up to a matching entry or a free slot."""
        found = np.zeros(len(ids), dtype=bool)
        entries, index, mask = self._entries, self._index, len(self._index) - 1
        place, step = self._path(ids, cell)
        rows = np.arange(len(ids))
        while rows.size:
            entry = index[place]
            taken = np.flatnonzero(entry >= 0)
            rows, entry, place, step = rows[taken], entry[taken], place[taken], step[taken]
            alike = np.flatnonzero(entries.hashes[entry] == ids.hashes[rows])
            row, same = rows[alike], entry[alike]
            at_ms = entries.event_ms[same]
            fits = (entries.checks[same] == ids.checks[row]) & (at_ms >= since_ms)
            found[row[fits & (np.abs(at_ms - ids.event_ms[row]) <= self.horizon_ms)]] = True
            on = np.flatnonzero(~found[rows])
            rows, step = rows[on], step[on]
            place = (place[on] + step) & mask
        return found


def _by_slice(ids: IdHashes, slice_ms: int) -> Iterable[tuple[int, int]]:
    slices, counts = np.unique(ids.event_ms // slice_ms, return_counts=True)
    return zip(slices.tolist(), counts.tolist(), strict=True)


def _columns(ids: IdHashes) -> tuple[UInt64Array, UInt64Array, Ints]:
    return ids.hashes, ids.checks, ids.event_ms


def _resize(column: npt.NDArray[Number], size: int) -> npt.NDArray[Number]:
    larger = np.empty(size, dtype=column.dtype)
    larger[: len(column)] = column
    return larger


def _frame(ids: IdHashes) -> pl.DataFrame:
    return pl.DataFrame({HASH: ids.hashes, CHECK: ids.checks, EVENT_MS: ids.event_ms})
