"""Converts between the physical columns of a stream and the columns of a topology.

Decoded events hold decimals as scaled integers and times as milliseconds. In a topology they are decimals and times, so
that an expression such as ``price * quantity`` is correct.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
import pyarrow as pa

from streamcore.schema import EVENT_MS, OFFSET, PARTITION, Kind, StreamSchema, Type
from streamcore.topology.nodes import TIME
from streamcore.wire.raw import RAW_KEY, RAW_OFFSET, RAW_PARTITION, RAW_VALUE


def to_logical(events: pa.Table, stream: StreamSchema) -> pl.DataFrame:
    """Return decoded events (``StreamSchema.arrow``) with the columns of their source and of the engine."""
    columns = [_column(events.column(field.name), field.name, field.type) for field in stream.fields]
    engine_columns = pl.DataFrame(events.select([PARTITION, OFFSET, EVENT_MS]))
    return pl.DataFrame(columns).hstack(_record_columns(events)).hstack(engine_columns)


def _record_columns(events: pa.Table) -> list[pl.Series]:
    """Return the columns of the original records; none if the source has no ``raw=True``."""
    if RAW_VALUE not in events.column_names:
        return []
    columns = ((RAW_KEY, RAW_KEY), (RAW_VALUE, RAW_VALUE), (RAW_PARTITION, PARTITION), (RAW_OFFSET, OFFSET))
    return [pl.Series(name, events.column(column)) for name, column in columns]


def to_decimals(series: pl.Series, field_type: Type) -> pl.Series:
    """Return scaled integers as decimals."""
    return pl.Series(series.name, _decimals(series.to_arrow(), field_type))


def to_physical(rows: pl.DataFrame, types: Mapping[str, Type]) -> pl.DataFrame:
    """Return the rows with the physical types of the named columns: the inverse of ``to_logical``."""
    decimals = [name for name, field_type in types.items() if field_type.kind is Kind.DECIMAL]
    scaled = [(pl.col(n) * 10 ** types[n].scale).cast(pl.Int64).alias(n) for n in decimals]
    return rows.with_columns(*scaled, pl.col(pl.Datetime).dt.epoch("ms"))


def _column(column: pa.ChunkedArray, name: str, field_type: Type) -> pl.Series:
    if field_type.kind is Kind.DECIMAL:
        return pl.Series(name, _decimals(column.combine_chunks(), field_type))
    series = pl.Series(name, column)
    return series.cast(TIME) if field_type.kind is Kind.TIMESTAMP else series


def _decimals(column: pa.Array, field_type: Type) -> pa.Array:
    """Return scaled 64-bit integers as decimals: the low halves of 128-bit integers, with their sign as high halves."""
    numbers = column.fill_null(0).to_numpy()
    halves = np.empty((len(numbers), 2), dtype=np.int64)
    halves[:, 0] = numbers
    halves[:, 1] = numbers >> 63
    valid = None if column.null_count == 0 else pa.array(column.is_valid()).buffers()[1]
    dtype = pa.decimal128(field_type.precision, field_type.scale)
    return pa.Array.from_buffers(dtype, len(numbers), [valid, pa.py_buffer(halves)], null_count=column.null_count)
