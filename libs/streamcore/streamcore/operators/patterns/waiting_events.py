"""The state table of events that wait for the watermark, so that those of a key are looked at in order of event time.

The watermark removes rows by their event time, so deletions are not stored: ``drop_before`` repeats them after a load.
Rows that arrive and leave within one cut are never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

from streamcore.hashing import bucket_for, hash_columns
from streamcore.schema import EVENT_MS
from streamcore.state.table import HASH

#: The number of a row in order of arrival.
NUMBER: Final = "__number"
#: The conditions that a row satisfies, as bits; not stored, because the conditions of another version may be others.
BITS: Final = "__bits"


class WaitingEvents:
    """A ``StateTable`` of rows. ``schema``: their columns, with ``EVENT_MS``. ``keys``: the key columns.

    ``bits``: returns ``BITS`` of rows.
    """

    def __init__(
        self, schema: Mapping[str, pl.DataType], keys: tuple[str, ...], bits: Callable[[pl.DataFrame], pl.Series]
    ) -> None:
        self.keys = keys
        self._bits = bits
        self._stored = pl.Schema({HASH: pl.UInt64(), **schema, NUMBER: pl.Int64()})
        self._kept = pl.DataFrame(schema={**self._stored, BITS: pl.Int64()})
        self._fresh = self._kept.clear()
        self._next_number = 0
        self._loaded: list[pl.DataFrame] = []

    def __len__(self) -> int:
        return self._kept.height + self._fresh.height

    def add(self, rows: pl.DataFrame) -> None:
        """Add rows of this cut, with ``BITS``, in order of arrival."""
        hashes = hash_columns([rows[key] for key in self.keys], rows.height)
        numbers = pl.int_range(self._next_number, self._next_number + rows.height, dtype=pl.Int64, eager=True)
        self._next_number += rows.height
        rows = rows.with_columns(pl.Series(HASH, hashes), numbers.alias(NUMBER))
        self._fresh = pl.concat([self._fresh, rows.select(self._fresh.columns)])

    def drop_before(self, before_ms: int) -> None:
        """Take in what was loaded, and drop the rows that a cut before the load released."""
        if self._loaded:
            loaded = pl.concat([self._kept.drop(BITS), *self._loaded], how="diagonal_relaxed").select(
                pl.col(name).cast(dtype) for name, dtype in self._stored.items()
            )
            loaded = loaded.unique(subset=[HASH, NUMBER], keep="last", maintain_order=True)
            loaded = loaded.filter(pl.col(EVENT_MS) >= before_ms)
            self._kept = loaded.select(self._stored.names()).with_columns(self._bits(loaded).alias(BITS))
            self._next_number = max(self._next_number, 1 + int(loaded[NUMBER].to_numpy().max(initial=-1)))
            self._loaded = []

    def release(self, before_ms: int) -> pl.DataFrame:
        """Remove and return the rows before this time."""
        kept, self._kept = _split(self._kept, before_ms)
        fresh, self._fresh = _split(self._fresh, before_ms)
        return pl.concat([kept, fresh])

    def limit_fresh(self, per_key: int, in_all: int) -> int:
        """Drop the latest rows of this cut above the limits; return how many. Rows of earlier cuts stay."""
        before = self._fresh.height
        if len(self) > in_all:
            room = max(0, in_all - self._kept.height)
            self._fresh = self._fresh.sort(EVENT_MS, NUMBER).head(room)
        if len(self) > per_key and self._fresh.height:
            known = self._kept.group_by(HASH).len("__before")
            ordered = self._fresh.sort(EVENT_MS, NUMBER).join(known, on=HASH, how="left", maintain_order="left")
            place = pl.int_range(1, pl.len() + 1).over(HASH) + pl.col("__before").fill_null(0)
            self._fresh = ordered.filter(place <= per_key).drop("__before")
        return before - self._fresh.height

    def changes(self) -> pl.DataFrame:
        fresh = self._fresh
        self._kept, self._fresh = pl.concat([self._kept, fresh], rechunk=True), fresh.clear()
        return fresh.drop(BITS)

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        rows = self._kept.drop(BITS)
        if self._loaded:
            rows = pl.concat([rows, *self._loaded], how="diagonal_relaxed").select(
                pl.col(name).cast(dtype) for name, dtype in self._stored.items()
            )
        return rows.filter(pl.Series(bucket_for(rows[HASH].to_numpy(), buckets) == bucket, dtype=pl.Boolean))

    def load(self, rows: pl.DataFrame) -> None:
        self._loaded.append(rows)


def _split(frame: pl.DataFrame, before_ms: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows before this time, and the others."""
    passed = frame[EVENT_MS] < before_ms
    return (frame.filter(passed), frame.filter(~passed)) if passed.any() else (frame.clear(), frame)
