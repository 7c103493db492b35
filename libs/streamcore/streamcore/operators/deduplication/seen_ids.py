"""The table of the ids that passed and their event times: per entry 24 bytes of columns, 8 more with the hash of its
row's content, and 12 to 24 bytes of index.

An id is stored as a fingerprint of 128 bits. With 64 bits, two of 100 million ids would share a fingerprint with a
probability of 2.7e-4 (n**2 / 2 / 2**64), and the second event would be taken for a duplicate; with 128 bits the
probability is 1.5e-23.

The columns hold the entries in order of arrival. The index is an open-addressed table of entry numbers with double
hashing (Knuth: "The Art of Computer Programming", 6.4), whose probes are compiled (``streamcore.decode.walk.ids``).
Entries expire by slices of event time: they stop counting at once, and the columns free their memory when more than
half of the entries have expired. ``find`` takes the first event time that still matters, so its result does not
depend on when memory is freed.

Ids that were chosen to collide in both hashes can make lookups slow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.hashing import UInt64Array, mix, rows_in_bucket
from streamcore.schema import EVENT_MS
from streamcore.state.cold.paged_state import is_member
from streamcore.state.table import HASH

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Number = TypeVar("Number", np.uint64, np.int64)

CHECK = "check"
CONTENT = "content"
#: The same for contents with nested values: versions that hashed these in another way have stored ``CONTENT``.
NESTED_CONTENT = "nested_content"
#: The number of slices in a horizon. Entries expire one slice at a time.
SLICES = 64
#: The index hashes an id together with its cell: a stretch of event time of this many horizons. So a probe path holds
#: at most this many entries of one id, however often the id arrives.
_CELL_HORIZONS = 16
_CELL_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_MIN_ENTRIES = 1024


@dataclass(frozen=True, slots=True)
class IdHashes:
    """Rows as columns: two hashes of the id (``hashing.fingerprint_columns``), the event time, and the hash of the
    content, if contents are compared."""

    hashes: UInt64Array
    checks: UInt64Array
    event_ms: Ints
    contents: UInt64Array | None = None

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, rows: Ints | Mask | slice) -> IdHashes:
        """Return the rows at these indexes."""
        contents = None if self.contents is None else self.contents[rows]
        return IdHashes(self.hashes[rows], self.checks[rows], self.event_ms[rows], contents)

    def where(self, mask: Mask) -> IdHashes:
        """Return the rows of the mask. If these are all rows, as usual, nothing is copied."""
        return self if mask.all() else self.take(mask)


#: In place of an entry number: there is none. As in ``streamcore.decode.walk.ids``, which is loaded with the compiler.
NO_ENTRY = -1


class SeenIds:
    """The state table of ids and event times. The event times of one id are further apart than the horizon.

    ``content``: the name of the stored column with the hash of the content; None: the entries have none.
    """

    def __init__(self, horizon_ms: int, *, content: str | None = None) -> None:
        self.horizon_ms = horizon_ms
        self._content = content
        self._none = IdHashes(
            np.empty(0, np.uint64),
            np.empty(0, np.uint64),
            np.empty(0, np.int64),
            None if content is None else np.empty(0, np.uint64),
        )
        self.slice_ms = -(-horizon_ms // SLICES)
        self._cell_ms = _CELL_HORIZONS * (horizon_ms + 1)
        self._slices: dict[int, int] = {}  # live entries in memory by slice of event time
        self.cold_slices: dict[int, int] = {}  # live entries that are cold
        self._first_slice = -(2**62)
        self._entries, self._count, self._written = self._none, 0, 0
        self._outside = 0  # the first entries, which are in no run of the log
        self._index = np.empty(0, np.int32)
        self._rebuild(self._none)

    def __len__(self) -> int:
        """Return the number of live entries, with the cold ones."""
        return sum(self._slices.values()) + sum(self.cold_slices.values())

    @property
    def memory_bytes(self) -> int:
        """Return the bytes of the columns, as far as they are used, and of the index."""
        used = self._current_entries()
        return sum(column.nbytes for column in _columns(used)) + self._index.nbytes if self._count else 0

    def find(self, ids: IdHashes, since_ms: int) -> Ints:
        """Return the number of an entry of each id whose event time is within the horizon of the id's and at or after
        ``since_ms``; ``NO_ENTRY`` if there is none. The numbers are valid until the next change of the table."""
        cell = ids.event_ms // self._cell_ms
        found = self._find(ids, cell, since_ms)
        offset_ms = ids.event_ms - cell * self._cell_ms
        neighbour_cell = cell - (offset_ms < self.horizon_ms) + (offset_ms + self.horizon_ms >= self._cell_ms)
        near = np.flatnonzero((neighbour_cell != cell) & (found == NO_ENTRY))
        found[near] = self._find(ids.take(near), neighbour_cell[near], since_ms)
        return found

    def contents(self, entries: Ints) -> UInt64Array:
        """Return the hashes of the contents of these entries."""
        assert self._entries.contents is not None, "a table with contents"
        return self._entries.contents[entries]

    def add(self, ids: IdHashes) -> None:
        """Add ids that are not in the table."""
        before, self._count = self._count, self._count + len(ids)
        self._reserve(before)
        for column, added in zip(_columns(self._entries), _columns(ids), strict=True):
            column[before : self._count] = added
        _count_slices(self._slices, ids, self.slice_ms, 1)
        if 2 * self._count > len(self._index):
            self._compact()
        else:
            self._insert(before)

    def forget(self, before_ms: int) -> int:
        """Drop the slices that end at or before this time; return the number of dropped entries."""
        self._first_slice = max(self._first_slice, before_ms // self.slice_ms)
        dropped = 0
        for slices in (self._slices, self.cold_slices):
            dropped += sum(slices.pop(n) for n in [n for n in slices if n < self._first_slice])
        if self._count - sum(self._slices.values()) > max(_MIN_ENTRIES, self._count // 2):
            self._compact()
        return dropped

    def floor_for(self, ids: IdHashes, limit: int) -> int | None:
        """Return the event time to ``forget`` before, so that at most ``limit`` entries remain after ``add(ids)``.

        Return None if nothing is to be forgotten. The newest slice is never forgotten.
        """
        total = len(self) + len(ids)
        if total <= limit:
            return None
        slices = dict(Counter(self._slices) + Counter(self.cold_slices))
        _count_slices(slices, ids, self.slice_ms, 1)
        oldest_first = sorted(slices)
        first = 0
        while total > limit and first < len(oldest_first) - 1:
            total -= slices[oldest_first[first]]
            first += 1
        return oldest_first[first] * self.slice_ms if first else None

    # --- StateTable ---------------------------------------------------------------------------------------------

    def changes(self) -> pl.DataFrame:
        new = self._entries.take(slice(self._written, self._count))
        self._written = self._count
        return self._frame(new.where(self._is_live(new)))

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        return self._select_rows(self._current_entries(), bucket, buckets)

    def load(self, rows: pl.DataFrame) -> None:
        is_outside = self._outside == self._count
        self.load_run(rows)
        if is_outside:
            self._outside = self._count

    # --- RunTable -----------------------------------------------------------------------------------------------

    def load_run(self, rows: pl.DataFrame) -> None:
        self.add(self._ids(rows))
        self._written = self._count

    def rows_outside_runs(self, bucket: int, buckets: int) -> pl.DataFrame:
        return self._select_rows(self._entries.take(slice(0, self._outside)), bucket, buckets)

    def leave_runs(self) -> None:
        self._outside = self._count

    def newest_ms(self, rows: pl.DataFrame) -> int:
        newest = rows[EVENT_MS].max()
        assert isinstance(newest, int), "there are rows"
        return newest

    def is_expired(self, newest_ms: int) -> bool:
        return newest_ms < self._first_slice * self.slice_ms

    def live(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.filter(pl.Series(self._is_live(self._ids(rows))))

    def _select_rows(self, entries: IdHashes, bucket: int, buckets: int) -> pl.DataFrame:
        entries = entries.take(rows_in_bucket(entries.hashes, bucket, buckets))
        return self._frame(entries.where(self._is_live(entries)))

    # --- paging -------------------------------------------------------------------------------------------------

    def hashes(self) -> UInt64Array:
        """Return the hashes of the ids in memory."""
        return self._current_entries().hashes

    def evict(self, share: float) -> pl.DataFrame:
        """Forget this share of the entries, the first to arrive, with all others of their hashes; return the live."""
        entries = self._current_entries()
        first = entries.hashes[: max(1, round(share * self._count))]
        return self._take_out(is_member(entries.hashes, first))

    def forget_hashes(self, hashes: UInt64Array) -> None:
        """Forget the entries of these hashes."""
        self._take_out(is_member(self._current_entries().hashes, hashes))

    def _take_out(self, chosen: Mask) -> pl.DataFrame:
        entries = self._current_entries()
        taken, kept = entries.take(chosen), entries.take(~chosen)
        taken = taken.where(self._is_live(taken))
        self._slices = {}
        kept = kept.where(self._is_live(kept))
        _count_slices(self._slices, kept, self.slice_ms, 1)
        self._rebuild(kept)
        self._written = self._outside = self._count
        return self._frame(taken)

    def count_cold(self, rows: pl.DataFrame, sign: int) -> None:
        """Count these rows as cold (``sign`` 1), or as not cold any more (-1)."""
        ids = self._ids(rows)
        _count_slices(self.cold_slices, ids.where(self._is_live(ids)), self.slice_ms, sign)

    def _ids(self, rows: pl.DataFrame) -> IdHashes:
        contents = None if self._content is None else rows[self._content].to_numpy()
        return IdHashes(rows[HASH].to_numpy(), rows[CHECK].to_numpy(), rows[EVENT_MS].to_numpy(), contents)

    def _frame(self, ids: IdHashes) -> pl.DataFrame:
        names = (HASH, CHECK, EVENT_MS, *(() if self._content is None else (self._content,)))
        return pl.DataFrame(dict(zip(names, _columns(ids), strict=True)))

    # --- columns ------------------------------------------------------------------------------------------------

    def _current_entries(self) -> IdHashes:
        return self._entries.take(slice(0, self._count))

    def _is_live(self, ids: IdHashes) -> Mask:
        return ids.event_ms >= self._first_slice * self.slice_ms

    def _reserve(self, used: int) -> None:
        """Enlarge the columns for ``_count`` entries, and copy the first ``used``.

        They double, so that an entry is copied about once. The system gives memory to what is used of them alone.
        """
        if self._count > len(self._entries):
            size = max(_MIN_ENTRIES, 2 * self._count)
            copied = self._entries.take(slice(0, used))
            self._entries = IdHashes(
                _resize(copied.hashes, size),
                _resize(copied.checks, size),
                _resize(copied.event_ms, size),
                None if copied.contents is None else _resize(copied.contents, size),
            )

    def _compact(self) -> None:
        """Free the memory of expired ids, and rebuild the index."""
        is_live = self._is_live(self._current_entries())
        self._written = int(np.count_nonzero(is_live[: self._written]))
        self._outside = int(np.count_nonzero(is_live[: self._outside]))
        self._rebuild(self._current_entries().where(is_live))

    # --- index --------------------------------------------------------------------------------------------------

    def _rebuild(self, entries: IdHashes) -> None:
        """Replace all entries by these, with an index that is a sixth to a third full."""
        self._entries, self._count = entries, len(entries)
        self._index = np.full(1 << (max(_MIN_ENTRIES, 3 * self._count) - 1).bit_length(), -1, dtype=np.int32)
        self._insert(0)

    def _probe_path(self, ids: IdHashes, cell: Ints) -> tuple[Ints, Ints]:
        """Return, both of shape (ids,), the first index slot of each id's probe path and its step, which is odd."""
        mask = np.uint64(len(self._index) - 1)
        with np.errstate(over="ignore"):
            start = mix(ids.hashes ^ (cell.view(np.uint64) * _CELL_FACTOR)) & mask
        return start.view(np.int64), ((ids.checks | np.uint64(1)) & mask).view(np.int64)

    def _insert(self, first: int) -> None:
        """Write the numbers of the entries from ``first`` on to the index."""
        from streamcore.decode.walk.ids.probes import insert_entries  # loads the compiler

        entries = self._entries.take(slice(first, self._count))
        slot, step = self._probe_path(entries, entries.event_ms // self._cell_ms)
        insert_entries(self._index, slot, step, first)

    def _find(self, ids: IdHashes, cell: Ints, since_ms: int) -> Ints:
        """Return the first matching entry on the probe path of each id, before its first free slot, or ``NO_ENTRY``."""
        from streamcore.decode.walk.ids.probes import find_entries  # loads the compiler

        found, entries = np.empty(len(ids), dtype=np.int64), self._current_entries()
        slot, step = self._probe_path(ids, cell)
        find_entries(
            self._index,
            _words(entries.hashes),
            _words(entries.checks),
            entries.event_ms,
            slot,
            step,
            _words(ids.hashes),
            _words(ids.checks),
            np.ascontiguousarray(ids.event_ms),
            since_ms,
            self.horizon_ms,
            found,
        )
        return found


def _words(hashes: UInt64Array) -> Ints:
    return np.ascontiguousarray(hashes).view(np.int64)


def _count_slices(slices: dict[int, int], ids: IdHashes, slice_ms: int, sign: int) -> None:
    for number, count in _by_slice(ids, slice_ms):
        slices[number] = slices.get(number, 0) + sign * count


def _by_slice(ids: IdHashes, slice_ms: int) -> Iterable[tuple[int, int]]:
    slices, counts = np.unique(ids.event_ms // slice_ms, return_counts=True)
    return zip(slices.tolist(), counts.tolist(), strict=True)


def _columns(ids: IdHashes) -> tuple[npt.NDArray[Any], ...]:
    columns = (ids.hashes, ids.checks, ids.event_ms)
    return columns if ids.contents is None else (*columns, ids.contents)


def _resize(column: npt.NDArray[Number], size: int) -> npt.NDArray[Number]:
    larger = np.empty(size, dtype=column.dtype)
    larger[: len(column)] = column
    return larger
