"""A state table of text keys and byte values, for small numbers of values (rules, positions, settings)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from streamcore.hashing import bucket_for, hash_columns
from streamcore.state.table import HASH


class KeyValueTable:
    """A dictionary as ``StateTable``. A deleted key is stored with a null value until its bucket is rewritten."""

    def __init__(self) -> None:
        self._values: dict[str, bytes | None] = {}
        self._dirty: set[str] = set()
        self._buckets: dict[int, list[str]] | None = None  # keys by bucket; None after a key was added or deleted

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
                self._buckets = None
            self._values[key] = value
            self._dirty.add(key)

    def changes(self) -> pl.DataFrame:
        keys, self._dirty = sorted(self._dirty), set()
        return self._frame(keys)

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        keys = self._keys_in_bucket(bucket, buckets)
        deleted = [k for k in keys if self._values[k] is None]
        for key in deleted:
            del self._values[key]
        if deleted:
            self._buckets = None
        return self._frame([k for k in keys if k in self._values])

    def load(self, rows: pl.DataFrame) -> None:
        self._values.update(zip(rows["key"].to_list(), rows["value"].to_list(), strict=True))
        self._buckets = None

    def _keys_in_bucket(self, bucket: int, buckets: int) -> list[str]:
        if self._buckets is None:
            keys = sorted(self._values)
            hashes = hash_columns([pl.Series(keys, dtype=pl.String)], len(keys))
            self._buckets = {}
            for key, number in zip(keys, bucket_for(hashes, buckets).tolist(), strict=True):
                self._buckets.setdefault(number, []).append(key)
        return self._buckets.get(bucket, [])

    def _frame(self, keys: list[str]) -> pl.DataFrame:
        if not keys:
            return _EMPTY
        column = pl.Series("key", keys, dtype=pl.String)
        values = pl.Series("value", [self._values[k] for k in keys], dtype=pl.Binary)
        return pl.DataFrame([pl.Series(HASH, hash_columns([column], len(keys))), column, values])


_EMPTY = pl.DataFrame(
    [pl.Series(HASH, np.empty(0, np.uint64)), pl.Series("key", [], pl.String), pl.Series("value", [], pl.Binary)]
)
