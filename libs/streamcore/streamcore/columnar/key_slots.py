"""The keys that have state, as small numbers: slots. Arrays by slot take the place of an object per key.

A key is found by its stable hash and then compared, column by column. Keys that share all 64 bits of a hash are kept
in a dictionary: correct, and slow only for such keys. Null is a key like any other, and one NaN equals the other.
Slots are private to one process.

The owner of the slots decides when a key is forgotten and its slot given out again, in one of three ways: it counts
the users of each slot (``hold``, ``release``, ``sweep``), names all slots that are in use (``keep``), or names those
that are not (``forget``).
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
_SLACK = 4096
_FEW = 1 << 18


class KeySlots:
    """A dictionary from key to slot, in columns. ``dtypes``: the key's columns, in order."""

    def __init__(self, dtypes: Mapping[str, pl.DataType]) -> None:
        self.dtypes = dict(dtypes)
        self.hashes: Hashes = np.empty(0, dtype=np.uint64)
        self._buckets = 0
        self._bucket = np.empty(0, dtype=np.uint16)  # by slot: the state's bucket of its key, once that was asked for
        self._held: Ints = _NONE  # by slot: how many hold it
        self._row: Ints = _NONE  # by slot: its key's row in the store, -1 for a free slot
        self._size = 0
        self._free: Ints = _NONE
        self._unsure: list[Ints] = []  # slots that may be held by nothing, lately
        self._older: list[Ints] = []  # and before the last sweep
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
        """Return the exclusive upper bound of the slots."""
        return self._size

    def used(self) -> Ints:
        """Return the slots that have a key, in order."""
        return np.flatnonzero(self._row[: self._size] >= 0)

    def assign(self, frame: pl.DataFrame) -> Ints:
        """Return the slot of every row's key. A new key has one until it is swept, and for longer if it is held by
        then."""
        keys = frame.select(list(self.dtypes))
        hashes = hash_columns(keys.get_columns(), frame.height)
        slots = self._table.find(hashes)
        odd = self._odd(hashes)
        new = np.flatnonzero((slots < 0) & ~odd)
        if new.size:
            first, back = _first_rows(hashes[new])
            added = self._add(keys[new[first]] if self.dtypes else keys, hashes[new[first]])
            self._table.add(hashes[new[first]], added)
            slots[new] = added[back]
        self._compare(keys, hashes, slots, odd)
        return slots

    def frame(self, slots: Ints) -> pl.DataFrame:
        """Return the key columns of these slots."""
        if not self.dtypes:
            return pl.DataFrame()
        rows = self._row[slots]
        recent = rows >= self._large.height
        if not recent.any():
            return self._large[rows]
        if recent.all():
            return self._small[rows - self._large.height]
        there, here = np.flatnonzero(~recent), np.flatnonzero(recent)
        back = np.empty(len(rows), dtype=np.int64)
        back[there], back[here] = np.arange(len(there)), len(there) + np.arange(len(here))
        found = [self._large[rows[there]], self._small[rows[here] - self._large.height]]
        return pl.concat(found, rechunk=True)[back]

    def in_bucket(self, slots: Ints, bucket: int, buckets: int) -> Mask:
        """Return whether each slot's key is in that bucket of the state. Every cut asks this of all that is stored."""
        if buckets != self._buckets:
            self._buckets, self._bucket = buckets, bucket_for(self.hashes, buckets).astype(np.uint16)
        mine: Mask = self._bucket[slots] == bucket
        return mine

    def hold(self, slots: Ints) -> None:
        """Count one more user of each slot; a slot may be held many times, also in one call."""
        np.add.at(self._held, slots, 1)

    def release(self, slots: Ints) -> None:
        """Count one user less of each slot."""
        np.subtract.at(self._held, slots, 1)
        self._unsure.append(slots)

    def sweep(self) -> None:
        """Once a cut. Forgets keys that nothing holds, in batches, and not those that were held a short while ago: most
        keys come back. The forgotten and the unheld together stay fewer than some part of all."""
        if 2 * sum(map(len, self._unsure)) <= self._size:
            return
        unsure, self._older, self._unsure = self._older, self._unsure, []
        slots = np.concatenate([_NONE, *unsure])
        slots = slots[(self._held[slots] == 0) & (self._row[slots] >= 0)]
        self.forget(slots[distinct(slots, self._size)[1]])

    def keep(self, used: Ints) -> None:
        """Forget at once every key but those of these slots, for owners that do not count what they hold."""
        unused = self._row[: self._size] >= 0
        unused[used] = False
        self._unsure, self._older = [], []
        self.forget(np.flatnonzero(unused))

    def take_added(self) -> Ints:
        """Return the slots given out since the last call, for an owner that calls ``forget`` and never ``sweep``."""
        added, self._unsure = self._unsure, []
        return np.concatenate([_NONE, *added])

    def forget(self, slots: Ints) -> None:
        """Forget the keys of these slots, which are distinct and in use."""
        if not slots.size:
            return
        hashes = self.hashes[slots]
        odd = self._odd(hashes)
        for key in self.frame(slots[odd]).rows():
            del self._same_hash[key]
        self._table.remove(hashes[~odd])
        self._row[slots] = -1
        self._free = np.concatenate([self._free, slots])
        if self._large.height > 2 * len(self) + _SLACK:
            live = self.used()
            self._large, self._small = self.frame(live), self._small.clear()
            self._row[live] = np.arange(len(live))

    def _odd(self, hashes: Hashes) -> Mask:
        if not self._same_hashes:
            return np.zeros(len(hashes), dtype=bool)
        return np.isin(hashes, np.fromiter(self._same_hashes, np.uint64, len(self._same_hashes)))

    def _compare(self, keys: pl.DataFrame, hashes: Hashes, slots: Ints, odd: Mask) -> None:
        """Look by key where a hash has several keys: those known (``odd``), and where a slot is another key's."""
        if not self.dtypes:
            return
        usual = slice(None) if not odd.any() else np.flatnonzero(~odd)
        stored, here = self.frame(slots[usual]), keys[usual]
        if stored.equals(here) and not self._same_hashes:
            return
        wrong = np.zeros(stored.height, dtype=bool)
        for name in self.dtypes:
            wrong |= ~here[name].eq_missing(stored[name]).to_numpy()
        for number in set(hashes[usual][wrong].tolist()):
            self._share(number)
        if not self._same_hashes:
            return
        rows = np.flatnonzero(self._odd(hashes))
        for row, key in zip(rows.tolist(), keys[rows].rows(), strict=True):
            if key not in self._same_hash:
                self._same_hash[key] = int(self._add(keys[[row]], hashes[[row]])[0])
            slots[row] = self._same_hash[key]

    def _share(self, number: int) -> None:
        """Find keys of this hash by the dictionary from now on."""
        self._same_hashes.add(number)
        hashes = np.array([number], dtype=np.uint64)
        slot = self._table.find(hashes)
        if slot[0] >= 0:
            self._table.remove(hashes)
            self._same_hash[self.frame(slot).row(0)] = int(slot[0])

    def _add(self, keys: pl.DataFrame, hashes: Hashes) -> Ints:
        again = min(len(self._free), len(hashes))
        reused, self._free = self._free[len(self._free) - again :], self._free[: len(self._free) - again]
        slots = np.concatenate([reused, np.arange(self._size, self._size + len(hashes) - again)])
        self._size += len(hashes) - again
        if self._size > len(self._row):
            room = 2 * self._size
            self.hashes = np.resize(self.hashes, room)
            self._held = np.concatenate([self._held, np.zeros(room - len(self._held), np.int64)])
            self._row = np.concatenate([self._row, np.full(room - len(self._row), -1)])
        self.hashes[slots] = hashes
        if self._buckets:
            if len(self._bucket) < len(self.hashes):
                self._bucket = np.resize(self._bucket, len(self.hashes))
            self._bucket[slots] = bucket_for(hashes, self._buckets)
        self._row[slots] = self._large.height + self._small.height + np.arange(len(slots))
        self._unsure.append(slots)
        if self.dtypes:
            self._append(keys)
        return slots

    def _append(self, keys: pl.DataFrame) -> None:
        """Create new keys are copied each time; old ones while they are few, and when the new ones have become a
        part of them.

        One table is read three times as fast as two.
        """
        self._small = pl.concat([self._small, keys], rechunk=True)
        if self._large.height < _FEW or self._small.height > self._large.height // 8:
            self._large = pl.concat([self._large, self._small], rechunk=True)
            self._small = self._small.clear()


def _first_rows(hashes: Hashes) -> tuple[Ints, Ints]:
    """Return the first row of each hash, in order, and for each row which of them is its own."""
    order = np.argsort(hashes)
    ordered = hashes[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    first = np.minimum.reduceat(order, starts)
    back = np.empty(len(hashes), dtype=np.int64)
    back[order] = np.repeat(np.arange(len(first)), np.diff(np.append(starts, len(hashes))))
    return first, back
