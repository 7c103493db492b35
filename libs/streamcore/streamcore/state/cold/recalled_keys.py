"""The keys that are in memory while runs still have old rows of them: those rows do not count.

The set is a table of the state log, so that a restart knows which cold rows are out of date.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from streamcore.columnar.hash_table import HashTable
from streamcore.hashing import UInt64Array, bucket_for
from streamcore.state.cold.paged_state import Ints
from streamcore.state.table import HASH

_IS_MEMBER = "member"


class RecalledKeys:
    """A ``StateTable`` of hashes: a row that is no member deletes its hash."""

    def __init__(self) -> None:
        self._table = HashTable()
        self._next = 0
        self._changed: list[tuple[UInt64Array, bool]] = []

    def __len__(self) -> int:
        return len(self._table)

    def contains(self, hashes: UInt64Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return a mask of the members."""
        return np.asarray(self._table.find(hashes) >= 0)

    def add(self, hashes: UInt64Array) -> None:
        """Add distinct hashes that are no members."""
        self._insert(hashes)
        self._changed.append((hashes, True))

    def remove(self, hashes: UInt64Array) -> None:
        """Remove distinct members."""
        self._table.remove(hashes)
        self._changed.append((hashes, False))

    def all(self) -> UInt64Array:
        """Return all hashes, in any order."""
        return self._table.items()[0]

    def _insert(self, hashes: UInt64Array) -> None:
        values: Ints = (self._next + np.arange(len(hashes))) & 0x7FFFFFFF  # the table needs distinct values
        self._next = (self._next + len(hashes)) & 0x7FFFFFFF
        self._table.add(hashes, values)

    # --- StateTable ---------------------------------------------------------------------------------------------

    def changes(self) -> pl.DataFrame:
        changed, self._changed = self._changed, []
        if not changed:
            return _frame(np.empty(0, np.uint64), np.empty(0, bool))
        hashes = np.concatenate([hashes for hashes, _ in changed])
        members = np.concatenate([np.full(len(hashes), member) for hashes, member in changed])
        return _frame(hashes, members)

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        hashes = self.all()
        hashes = hashes[bucket_for(hashes, buckets) == bucket]
        return _frame(hashes, np.ones(len(hashes), dtype=bool))

    def load(self, rows: pl.DataFrame) -> None:
        last = rows.unique(subset=[HASH], keep="last", maintain_order=True)
        hashes, members = last[HASH].to_numpy(), last[_IS_MEMBER].to_numpy()
        known = self.contains(hashes)
        self._insert(hashes[members & ~known])
        self._table.remove(hashes[~members & known])


def _frame(hashes: UInt64Array, members: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pl.DataFrame:
    return pl.DataFrame({HASH: pl.Series(hashes, dtype=pl.UInt64), _IS_MEMBER: pl.Series(members, dtype=pl.Boolean)})
