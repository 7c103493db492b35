"""From a stream's physical columns to those of a topology: scaled integers become decimals, milliseconds become times.

Decoding and shuffling know six physical types; who writes a topology wants ``price * quantity`` to be right.
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
    """``StreamSchema.arrow`` to the columns of a source and the engine's."""
    columns = [_column(events.column(field.name), field.name, field.type) for field in stream.fields]
    engine = pl.DataFrame(events.select([PARTITION, OFFSET, EVENT_MS]))
    return pl.DataFrame(columns).hstack(_origin(events)).hstack(engine)


def _origin(events: pa.Table) -> list[pl.Series]:
    """Return the records of events that bring them along."""
    if RAW_VALUE not in events.column_names:
        return []
    columns = ((RAW_KEY, RAW_KEY), (RAW_VALUE, RAW_VALUE), (RAW_PARTITION, PARTITION), (RAW_OFFSET, OFFSET))
    return [pl.Series(name, events.column(column)) for name, column in columns]


def to_decimals(series: pl.Series, type_: Type) -> pl.Series:
    """Digits as whole numbers to decimals."""
    return pl.Series(series.name, _decimals(series.to_arrow(), type_))


def to_physical(rows: pl.DataFrame, types: Mapping[str, Type]) -> pl.DataFrame:
    """Return the inverse of ``logical`` for the named columns."""
    decimals = [name for name, type_ in types.items() if type_.kind is Kind.DECIMAL]
    scaled = [(pl.col(n) * 10 ** types[n].scale).cast(pl.Int64).alias(n) for n in decimals]
    return rows.with_columns(*scaled, pl.col(pl.Datetime).dt.epoch("ms"))


def _column(column: pa.ChunkedArray, name: str, type_: Type) -> pl.Series:
    if type_.kind is Kind.DECIMAL:
        return pl.Series(name, _decimals(column.combine_chunks(), type_))
    series = pl.Series(name, column)
    return series.cast(TIME) if type_.kind is Kind.TIMESTAMP else series


def _decimals(column: pa.Array, type_: Type) -> pa.Array:
    """64-bit integers as the low halves of 128-bit ones, their signs as the high halves: no division, no text."""
    numbers = column.fill_null(0).to_numpy()
    words = np.empty((len(numbers), 2), dtype=np.int64)
    words[:, 0] = numbers
    words[:, 1] = numbers >> 63
    valid = None if column.null_count == 0 else pa.array(column.is_valid()).buffers()[1]
    dtype = pa.decimal128(type_.precision, type_.scale)
    return pa.Array.from_buffers(dtype, len(numbers), [valid, pa.py_buffer(words)], null_count=column.null_count)
