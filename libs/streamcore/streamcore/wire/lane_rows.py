"""Rows on their way to a lane: columns until the last moment, then records with JSON values.

A lane that ends in a sink (``streamcore.sinks``) keeps its columns: all rows of a shard and cut are one record then,
whose value is an Arrow IPC stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import orjson
import polars as pl
import pyarrow as pa

from streamcore.wire import lane_codec as lane_blobs
from streamcore.wire.arrow_ipc import ipc_stream, to_table
from streamcore.wire.lanes import Record


@dataclass(frozen=True, slots=True)
class LaneRows:
    """Rows for a lane, before they are bytes. ``key``: the columns that make a record's key; none: no key.

    Columns whose names begin with two underscores are the engine's and stay out of a record. ``whole``: they stay rows.
    """

    lane: str
    key: tuple[str, ...]
    rows: pl.DataFrame
    whole: bool = False

    def values(self) -> list[bytes]:
        """Each row as a JSON object: decimals as text, so that they stay exact; times as ISO 8601, UTC."""
        return self._values().to_list()

    def keys(self) -> list[bytes | None]:
        """Return the text of the key's column, or a JSON array of several; null where the key is null."""
        return self._keys().to_list()

    def records(self) -> Iterator[Record]:
        """One a row, in order; one for all that are ``whole``."""
        if self.whole:
            yield self._table()
            return
        for key, value in zip(self.keys(), self.values(), strict=True):
            yield Record(self.lane, key, value)

    def batch(self) -> pa.RecordBatch:
        """Return the records in the form of ``lane_blobs.SCHEMA``, with no object for any of them."""
        if self.whole:
            return lane_blobs.records_to_batch([self._table()])
        height = self.rows.height
        oldest = pl.CompatLevel.oldest()
        return lane_blobs.record_batch(
            pa.repeat(pa.scalar(self.lane), height),
            self._keys().to_arrow(compat_level=oldest),
            self._values().to_arrow(compat_level=oldest),
        )

    def _table(self) -> Record:
        rows = to_table(self.rows.select(pl.exclude("^__.*$")))
        return Record(self.lane, None, ipc_stream(rows))

    def _values(self) -> pl.Series:
        columns = [name for name in self.rows.columns if not name.startswith("__")]
        if not columns:
            return pl.repeat(b"{}", self.rows.height, dtype=pl.Binary, eager=True)
        return self.rows.select(pl.struct(columns).struct.json_encode()).to_series().cast(pl.Binary)

    def _keys(self) -> pl.Series:
        if not self.key:
            return pl.repeat(None, self.rows.height, dtype=pl.Binary, eager=True)
        columns = self.rows.select(self.key)
        if len(self.key) == 1:
            return columns.to_series().cast(pl.String).cast(pl.Binary)
        return pl.Series([orjson.dumps(row, default=str) for row in columns.iter_rows()], dtype=pl.Binary)
