"""Rows for a lane, and their conversion to records.

On a lane that ends in a topic, each row becomes a record with a JSON value. On a lane that ends in a sink
(``streamcore.sinks``), all rows of a shard and cut become one record, whose value is an Arrow IPC stream.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import orjson
import polars as pl
import pyarrow as pa

from streamcore.wire import lane_codec
from streamcore.wire.arrow_ipc import ipc_stream, to_table
from streamcore.wire.json_members import other_members
from streamcore.wire.lanes import Record
from streamcore.wire.map_entries import KEY, VALUE


@dataclass(frozen=True, slots=True)
class LaneRows:
    """Rows for a lane. ``key``: the columns of a record's key; without them records have no key.

    Columns whose names begin with two underscores belong to the engine and are left out of records. ``whole``: the lane
    ends in a sink, so all rows become one record. ``merge``: the column with a JSON object, or null, whose members are
    members of the record, but for those with the name of a column; "": none.
    """

    lane: str
    key: tuple[str, ...]
    rows: pl.DataFrame
    whole: bool = False
    merge: str = ""

    def values(self) -> list[bytes]:
        """Return each row as a JSON object: decimals as text, so that they stay exact; times as ISO 8601, UTC."""
        return self._values().to_list()

    def keys(self) -> list[bytes | None]:
        """Return each row's key: the text of the key column (None for null), or a JSON array of several columns."""
        return self._keys().to_list()

    def records(self) -> Iterator[Record]:
        """Yield one record per row, in order; or one record with all rows if they are ``whole``."""
        if self.whole:
            yield self._table()
            return
        for key, value in zip(self.keys(), self.values(), strict=True):
            yield Record(self.lane, key, value)

    def batch(self) -> pa.RecordBatch:
        """Return the records as a batch of ``lane_codec.SCHEMA``, without building an object for each."""
        if self.whole:
            return lane_codec.records_to_batch([self._table()])
        height = self.rows.height
        oldest = pl.CompatLevel.oldest()
        return lane_codec.record_batch(
            pa.repeat(pa.scalar(self.lane), height),
            self._keys().to_arrow(compat_level=oldest),
            self._values().to_arrow(compat_level=oldest),
        )

    def _table(self) -> Record:
        rows = to_table(self.rows.select(pl.exclude("^__.*$")))
        return Record(self.lane, None, ipc_stream(rows))

    def _values(self) -> pl.Series:
        columns = [name for name in self.rows.columns if not name.startswith("__") and name != self.merge]
        values = self._encode(columns)
        if not self.merge:
            return values
        names = frozenset(columns)
        merged = map(_merge, values, self.rows[self.merge], repeat(names))
        return pl.Series([*merged], dtype=pl.Binary)

    def _encode(self, columns: Sequence[str]) -> pl.Series:
        if not columns:
            return pl.repeat(b"{}", self.rows.height, dtype=pl.Binary, eager=True)
        encoded = self.rows.select(pl.struct(columns).struct.json_encode()).to_series().cast(pl.Binary)
        nested = {name: dtype for name, dtype in self.rows.schema.items() if name in columns and _has_map(dtype)}
        if not nested:
            return encoded
        rows = [orjson.loads(row) for row in encoded]
        for row in rows:
            row |= {name: _with_objects(row[name], dtype) for name, dtype in nested.items()}
        return pl.Series([orjson.dumps(row) for row in rows], dtype=pl.Binary)

    def _keys(self) -> pl.Series:
        if not self.key:
            return pl.repeat(None, self.rows.height, dtype=pl.Binary, eager=True)
        columns = self.rows.select(self.key)
        if len(self.key) == 1:
            return columns.to_series().cast(pl.String).cast(pl.Binary)
        return pl.Series([orjson.dumps(row, default=str) for row in columns.iter_rows()], dtype=pl.Binary)


def _merge(value: bytes, text: str | None, names: Collection[str]) -> bytes:
    others = None if text is None else other_members(text, names)
    if others is None:
        return value
    return value[:-1] + b"," * (value != b"{}") + others[1:].encode()


def _has_map(dtype: object) -> bool:
    if isinstance(dtype, pl.List):
        return _has_map(dtype.inner)
    return isinstance(dtype, pl.Struct) and any(field.name == KEY or _has_map(field.dtype) for field in dtype.fields)


def _with_objects(value: Any, dtype: Any) -> Any:
    """Return a JSON value with the entries of maps (``streamcore.schema.types``) as objects."""
    if value is None or not _has_map(dtype):
        return value
    if isinstance(dtype, pl.Struct):
        return {field.name: _with_objects(value[field.name], field.dtype) for field in dtype.fields}
    if isinstance(dtype.inner, pl.Struct) and dtype.inner.fields[0].name == KEY:
        return {entry[KEY]: _with_objects(entry[VALUE], dtype.inner.fields[1].dtype) for entry in value}
    return [_with_objects(item, dtype.inner) for item in value]
