"""A state table of text keys and byte values: rules, positions, settings, suppressed alerts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from streamcore.compact import compact
from streamcore.hashing import bucket_for, hash_columns
from streamcore.state.scope import KEYED, TableScope
from streamcore.state.table import HASH


class KeyValueTable:
    """A dictionary as ``StateTable``. A deleted key is stored with a null value until its bucket is rewritten.

    ``scope``: keyed, if its keys are those of the events; otherwise the owner declares which shard has a row.
    """

    def __init__(self, scope: TableScope = KEYED) -> None:
        self.scope = scope
        self._values: dict[str, bytes | None] = {}
        self._dirty: set[str] = set()
        self._count = 0  # of buckets
        self._buckets: dict[int, set[str]] = {}  # the keys of each bucket, except for the new ones
        self._new: list[str] = []

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Yield the pairs in the order of their keys."""
        for key in sorted(self._values):
            value = self._values[key]
            if value is not None:
                yield key, value

    def get(self, key: str) -> bytes | None:
        """Return the value, or None."""
        return self._values.get(key)

    def put(self, key: str, value: bytes | None) -> None:
        """Set a value; None deletes the key. Setting an equal value changes nothing."""
        if self._values.get(key) != value:
            if key not in self._values:
                self._new.append(key)
            self._values[key] = None if value is None else compact(value)
            self._dirty.add(key)

    def changes(self) -> pl.DataFrame:
        keys, self._dirty = sorted(self._dirty), set()
        return self._frame(keys)

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        keys = self._keys_in_bucket(bucket, buckets)
        deleted = [k for k in keys if self._values[k] is None]
        for key in deleted:
            del self._values[key]
            self._buckets[bucket].discard(key)
        return self._frame([k for k in keys if k in self._values])

    def load(self, rows: pl.DataFrame) -> None:
        values = dict(zip(rows["key"].to_list(), rows["value"].to_list(), strict=True))
        self._new += [key for key in values if key not in self._values]
        self._values |= values

    def _keys_in_bucket(self, bucket: int, buckets: int) -> list[str]:
        if buckets != self._count:
            self._count, self._buckets, self._new = buckets, {}, [*self._values]
        if self._new:
            hashes = hash_columns([pl.Series(self._new, dtype=pl.String)], len(self._new))
            for key, number in zip(self._new, bucket_for(hashes, buckets).tolist(), strict=True):
                self._buckets.setdefault(number, set()).add(key)
            self._new = []
        return sorted(self._buckets.get(bucket, ()))

    def _frame(self, keys: list[str]) -> pl.DataFrame:
        if not keys:
            return _EMPTY
        column = pl.Series("key", keys, dtype=pl.String)
        values = pl.Series("value", [self._values[k] for k in keys], dtype=pl.Binary)
        return pl.DataFrame([pl.Series(HASH, hash_columns([column], len(keys))), column, values])


_EMPTY = pl.DataFrame(
    [pl.Series(HASH, np.empty(0, np.uint64)), pl.Series("key", [], pl.String), pl.Series("value", [], pl.Binary)]
)
