"""Numbers the keys that have state: the *key slot* of a key is the index of its state in arrays.

Arrays by key slot take the place of an object per key. A key is found by its stable hash and then compared, column by
column. Keys that share all 64 bits of a hash are kept in a dictionary, which is slow only for these keys. Null is a key
like any other, and NaN equals NaN. A key slot has no meaning outside the process.

The owner decides when a key is forgotten and its key slot reused, in one of three ways: it counts the users of each key
slot (``hold``, ``release``, ``sweep``), names all key slots in use (``keep``), or names the key slots not in use
(``forget``).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.columnar.grouping import distinct
from streamcore.columnar.hash_table import Hashes, HashTable, Ints
from streamcore.hashing import bucket_for, hash_columns

Mask = npt.NDArray[np.bool_]

_NONE = np.empty(0, dtype=np.int64)
_MAX_EXTRA_ROWS = 4096
_SINGLE_FRAME_ROWS = 1 << 18


class KeySlots:
    """A dictionary from key to key slot, for frames of keys.

    ``dtypes``: the key columns, in order. ``hashes``: by key slot.
    """

    def __init__(self, dtypes: Mapping[str, pl.DataType]) -> None:
        self.dtypes = dict(dtypes)
        self.hashes: Hashes = np.empty(0, dtype=np.uint64)
        self._buckets = 0
        # By key slot: the state bucket of its key, after the first ``in_bucket``.
        self._bucket = np.empty(0, dtype=np.uint16)
        self._held: Ints = _NONE  # by key slot: the number of its users
        self._row: Ints = _NONE  # by key slot: the row of its key in ``_large`` and ``_small``, -1 if free
        self._size = 0
        self._free: Ints = _NONE
        self._possibly_unheld: list[Ints] = []  # key slots that were added or released since the last sweep
        self._previously_unheld: list[Ints] = []  # those before the last sweep
        self._last_use: Ints | None = None  # by key slot: the number of the last ``assign`` that had its key
        self._assigned = 0
        self._table = HashTable()
        self._same_hash: dict[tuple[object, ...], int] = {}
        self._same_hashes: set[int] = set()
        self._large = pl.DataFrame(schema=self.dtypes)
        self._small = pl.DataFrame(schema=self.dtypes)

    def __len__(self) -> int:
        return self._size - len(self._free)

    @property
    def share_hashes(self) -> bool:
        """Return whether some keys have the same hash."""
        return bool(self._same_hashes)

    @property
    def size(self) -> int:
        """Return the exclusive upper bound of the key slots."""
        return self._size

    @property
    def frame_bytes(self) -> int:
        """Return the bytes of the columns of all keys, in constant time; forgotten keys may count."""
        return int(self._large.estimated_size() + self._small.estimated_size())

    def used(self) -> Ints:
        """Return the key slots that have a key, in ascending order."""
        return np.flatnonzero(self._row[: self._size] >= 0)

    def with_equal_hashes(self, key_slots: Ints) -> Ints:
        """Return these distinct key slots, and all others whose keys have one of their hashes."""
        if not self._same_hashes:
            return key_slots
        used = self.used()
        return used[np.isin(self.hashes[used], self.hashes[key_slots])]

    def assign(self, frame: pl.DataFrame) -> Ints:
        """Return the key slot of each row's key; a new key gets one. ``sweep`` forgets keys that are not held."""
        keys = frame.select(list(self.dtypes))
        hashes = hash_columns(keys.get_columns(), frame.height)
        key_slots = self._table.find(hashes)
        has_shared_hash = self._have_shared_hash(hashes)
        new = np.flatnonzero((key_slots < 0) & ~has_shared_hash)
        if new.size:
            first, group = _first_rows(hashes[new])
            added = self._add(keys[new[first]] if self.dtypes else keys, hashes[new[first]])
            self._table.add(hashes[new[first]], added)
            key_slots[new] = added[group]
        self._compare(keys, hashes, key_slots, has_shared_hash)
        if self._last_use is not None:
            self._record_use(key_slots)
        return key_slots

    def track_use(self) -> None:
        """Record from now on when keys are assigned, for ``least_used``."""
        if self._last_use is None:
            self._last_use = np.zeros(len(self._row), np.int64)

    def _record_use(self, key_slots: Ints) -> None:
        assert self._last_use is not None, "called while the use is tracked"
        if len(self._last_use) < len(self._row):
            self._last_use = np.concatenate([self._last_use, np.zeros(len(self._row) - len(self._last_use), np.int64)])
        self._assigned += 1
        self._last_use[key_slots] = self._assigned

    def least_used(self, share: float) -> Ints:
        """Return the key slots of this share of the keys, those that were assigned least recently, with all others of
        their hashes. ``track_use`` must have been called; keys from before it count as never assigned."""
        used = self.used()
        count = min(len(used), max(1, round(share * len(used))))
        if count < len(used):
            self._record_use(_NONE)
            assert self._last_use is not None, "just recorded"
            used = used[np.argpartition(self._last_use[used], count - 1)[:count]]
        return self.with_equal_hashes(used)

    def frame(self, key_slots: Ints) -> pl.DataFrame:
        """Return the key columns of these key slots."""
        if not self.dtypes:
            return pl.DataFrame()
        rows = self._row[key_slots]
        recent = rows >= self._large.height
        if not recent.any():
            return self._large[rows]
        if recent.all():
            return self._small[rows - self._large.height]
        return pl.concat([self._large, self._small])[rows]

    def in_bucket(self, key_slots: Ints, bucket: int, buckets: int) -> Mask:
        """Return, for each key slot, whether its key is in that state bucket.

        Buckets are cached: every cut needs one.
        """
        if buckets != self._buckets:
            self._buckets, self._bucket = buckets, bucket_for(self.hashes, buckets).astype(np.uint16)
        in_bucket: Mask = self._bucket[key_slots] == bucket
        return in_bucket

    def hold(self, key_slots: Ints) -> None:
        """Add one user to each key slot. A key slot may be repeated in one call."""
        np.add.at(self._held, key_slots, 1)

    def release(self, key_slots: Ints) -> None:
        """Remove one user from each key slot. A key slot may be repeated in one call."""
        np.subtract.at(self._held, key_slots, 1)
        self._possibly_unheld.append(key_slots)

    def sweep(self) -> None:
        """Forget keys without users; call it once per cut.

        Keys are forgotten in batches, and only if they had no user for a while, because most keys return soon. The
        number of keys without users stays below a constant share of all keys.
        """
        if 2 * sum(map(len, self._possibly_unheld)) <= self._size:
            return
        candidates, self._previously_unheld, self._possibly_unheld = self._previously_unheld, self._possibly_unheld, []
        key_slots = np.concatenate([_NONE, *candidates])
        key_slots = key_slots[(self._held[key_slots] == 0) & (self._row[key_slots] >= 0)]
        self.forget(key_slots[distinct(key_slots, self._size)[1]])

    def keep(self, used: Ints) -> None:
        """Forget every key except those of these key slots, for owners that do not count users."""
        unused = self._row[: self._size] >= 0
        unused[used] = False
        self._possibly_unheld, self._previously_unheld = [], []
        self.forget(np.flatnonzero(unused))

    def take_added(self) -> Ints:
        """Return the key slots of the keys added since the last call, for owners that never call ``sweep``."""
        added, self._possibly_unheld = self._possibly_unheld, []
        return np.concatenate([_NONE, *added])

    def forget(self, key_slots: Ints) -> None:
        """Forget the keys of these key slots, which are distinct and in use."""
        if not key_slots.size:
            return
        hashes = self.hashes[key_slots]
        has_shared_hash = self._have_shared_hash(hashes)
        for key in self.frame(key_slots[has_shared_hash]).rows():
            del self._same_hash[key]
        self._table.remove(hashes[~has_shared_hash])
        self._row[key_slots] = -1
        self._free = np.concatenate([self._free, key_slots])
        if self._large.height > 2 * len(self) + _MAX_EXTRA_ROWS:
            used = self.used()
            self._large, self._small = self.frame(used), self._small.clear()
            self._row[used] = np.arange(len(used))

    def _have_shared_hash(self, hashes: Hashes) -> Mask:
        if not self._same_hashes:
            return np.zeros(len(hashes), dtype=bool)
        return np.isin(hashes, np.fromiter(self._same_hashes, np.uint64, len(self._same_hashes)))

    def _compare(self, keys: pl.DataFrame, hashes: Hashes, key_slots: Ints, has_shared_hash: Mask) -> None:
        """Correct ``key_slots`` for rows whose hash several keys share: known ones, and those that comparison finds."""
        if not self.dtypes:
            return
        unshared = slice(None) if not has_shared_hash.any() else np.flatnonzero(~has_shared_hash)
        stored, requested = self.frame(key_slots[unshared]), keys[unshared]
        if stored.equals(requested) and not self._same_hashes:
            return
        differs = np.zeros(stored.height, dtype=bool)
        for name in self.dtypes:
            differs |= ~requested[name].eq_missing(stored[name]).to_numpy()
        for key_hash in set(hashes[unshared][differs].tolist()):
            self._resolve_by_key(key_hash)
        if not self._same_hashes:
            return
        rows = np.flatnonzero(self._have_shared_hash(hashes))
        for row, key in zip(rows.tolist(), keys[rows].rows(), strict=True):
            if key not in self._same_hash:
                self._same_hash[key] = int(self._add(keys[[row]], hashes[[row]])[0])
            key_slots[row] = self._same_hash[key]

    def _resolve_by_key(self, key_hash: int) -> None:
        """Use the dictionary for the keys of this hash from now on."""
        self._same_hashes.add(key_hash)
        hashes = np.array([key_hash], dtype=np.uint64)
        key_slot = self._table.find(hashes)
        if key_slot[0] >= 0:
            self._table.remove(hashes)
            self._same_hash[self.frame(key_slot).row(0)] = int(key_slot[0])

    def _add(self, keys: pl.DataFrame, hashes: Hashes) -> Ints:
        reused_count = min(len(self._free), len(hashes))
        reused, self._free = self._free[len(self._free) - reused_count :], self._free[: len(self._free) - reused_count]
        key_slots = np.concatenate([reused, np.arange(self._size, self._size + len(hashes) - reused_count)])
        self._size += len(hashes) - reused_count
        if self._size > len(self._row):
            room = 2 * self._size
            self.hashes = np.resize(self.hashes, room)
            self._held = np.concatenate([self._held, np.zeros(room - len(self._held), np.int64)])
            self._row = np.concatenate([self._row, np.full(room - len(self._row), -1)])
        self.hashes[key_slots] = hashes
        if self._buckets:
            if len(self._bucket) < len(self.hashes):
                self._bucket = np.resize(self._bucket, len(self.hashes))
            self._bucket[key_slots] = bucket_for(hashes, self._buckets)
        self._row[key_slots] = self._large.height + self._small.height + np.arange(len(key_slots))
        self._possibly_unheld.append(key_slots)
        if self.dtypes:
            self._append(keys)
        return key_slots

    def _append(self, keys: pl.DataFrame) -> None:
        """Append new keys to the small frame, and merge it into the large frame when it is large enough.

        While there are few keys there is only one frame, which is three times as fast to read as two.
        """
        self._small = pl.concat([self._small, keys], rechunk=True)
        if self._large.height < _SINGLE_FRAME_ROWS or self._small.height > self._large.height // 8:
            self._large = pl.concat([self._large, self._small], rechunk=True)
            self._small = self._small.clear()


def _first_rows(hashes: Hashes) -> tuple[Ints, Ints]:
    """Return the first row of each distinct hash, in order of the hashes, and for each row the index of its hash."""
    order = np.argsort(hashes)
    ordered = hashes[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    first = np.minimum.reduceat(order, starts)
    group = np.empty(len(hashes), dtype=np.int64)
    group[order] = np.repeat(np.arange(len(first)), np.diff(np.append(starts, len(hashes))))
    return first, group
