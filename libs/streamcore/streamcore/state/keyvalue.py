"""A table of text keys and byte values: for what a kernel keeps in ones and twos (rules, positions, settings)."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from streamcore.hashing import bucket_of, hash_columns
from streamcore.state.table import HASH


class KeyValueTable:
    """A ``StateTable`` over a dictionary. A deleted key is stored as null until its bucket is written again."""

    def __init__(self) -> None:
        self._values: dict[str, bytes | None] = {}
        self._dirty: set[str] = set()

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Pairs in the order of their keys."""
        for key in sorted(self._values):
            value = self._values[key]
            if value is not None:
                yield key, value

    def get(self, key: str) -> bytes | None:
        """The value, or None."""
        return self._values.get(key)

    def put(self, key: str, value: bytes | None) -> None:
        """Set or delete; setting the same value again changes nothing."""
        if self._values.get(key) != value:
            self._values[key] = value
            self._dirty.add(key)

    def changes(self) -> pl.DataFrame:
        keys, self._dirty = sorted(self._dirty), set()
        return self._frame(keys)

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        frame = self._frame(sorted(self._values))
        frame = frame.filter(pl.Series(bucket_of(frame[HASH].to_numpy(), buckets) == bucket))
        for key in frame.filter(pl.col("value").is_null())["key"].to_list():
            del self._values[key]
        return frame.filter(pl.col("value").is_not_null())

    def load(self, rows: pl.DataFrame) -> None:
        self._values.update(zip(rows["key"].to_list(), rows["value"].to_list(), strict=True))

    def _frame(self, keys: list[str]) -> pl.DataFrame:
        column = pl.Series("key", keys, dtype=pl.String)
        values = pl.Series("value", [self._values[k] for k in keys], dtype=pl.Binary)
        return pl.DataFrame([pl.Series(HASH, hash_columns([column], len(keys))), column, values])
