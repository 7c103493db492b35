"""Converts between the physical columns of a stream and the columns of a topology.

Decoded events hold decimals as scaled integers and times as milliseconds. In a topology they are decimals and times, so
that an expression such as ``price * quantity`` is correct.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from streamcore.schema import EVENT_MS, OFFSET, PARTITION, Kind, StreamSchema, Type
from streamcore.topology.nodes import TIME
from streamcore.wire.map_entries import KEY, VALUE
from streamcore.wire.raw import RAW_KEY, RAW_OFFSET, RAW_PARTITION, RAW_VALUE


def to_logical(events: pa.Table, stream: StreamSchema) -> pl.DataFrame:
    """Return decoded events (``StreamSchema.arrow``) with the columns of their source and of the engine."""
    columns = [to_logical_column(pl.Series(f.name, events.column(f.name)), f.type) for f in stream.fields]
    engine_columns = pl.DataFrame(events.select([PARTITION, OFFSET, EVENT_MS]))
    return pl.DataFrame(columns).hstack(_record_columns(events)).hstack(engine_columns)


def _record_columns(events: pa.Table) -> list[pl.Series]:
    """Return the columns of the original records; none if the source has no ``raw=True``."""
    if RAW_VALUE not in events.column_names:
        return []
    columns = ((RAW_KEY, RAW_KEY), (RAW_VALUE, RAW_VALUE), (RAW_PARTITION, PARTITION), (RAW_OFFSET, OFFSET))
    return [pl.Series(name, events.column(column)) for name, column in columns]


def to_physical(rows: pl.DataFrame, types: Mapping[str, Type]) -> pl.DataFrame:
    """Return the rows with the physical types of the named columns: the inverse of ``to_logical``."""
    return rows.with_columns(to_physical_column(rows[name], field_type) for name, field_type in types.items())


def to_physical_column(series: pl.Series, field_type: Type) -> pl.Series:
    """Return a column of a topology as a physical one."""
    match field_type.kind:
        case Kind.DECIMAL:
            return series.to_physical().cast(pl.Int64)
        case Kind.TIMESTAMP:
            return series.dt.epoch("ms")
    return _rebuild(series, field_type, to_physical_column) if field_type.is_nested else series


def to_logical_column(series: pl.Series, field_type: Type) -> pl.Series:
    """Return a physical column as one of a topology."""
    match field_type.kind:
        case Kind.DECIMAL:
            return pl.Series(series.name, _decimals(series.to_arrow(), field_type))
        case Kind.TIMESTAMP:
            return series.cast(TIME)
    return _rebuild(series, field_type, to_logical_column) if field_type.is_nested else series


def _rebuild(series: pl.Series, kind: Type, convert: Callable[[pl.Series, Type], pl.Series]) -> pl.Series:
    """Convert the values inside of arrays, structs and maps."""
    array = series.to_arrow(compat_level=pl.CompatLevel.oldest())
    if kind.kind is Kind.STRUCT:
        members = [pl.Series(name, inner) for (name, _), inner in zip(kind.members, array.flatten(), strict=True)]
        found = [convert(member, inner) for member, (_, inner) in zip(members, kind.members, strict=True)]
        return pl.Series(series.name, _struct(found, array.is_null()))
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    inner = array.values.slice(first, last - first)
    if kind.kind is Kind.MAP:
        keys, values = inner.flatten()
        entries = [pl.Series(KEY, keys), convert(pl.Series(VALUE, values), kind.items)]
        items = _struct(entries, pa.array(np.zeros(len(inner), np.bool_)))
    else:
        items = convert(pl.Series("item", inner), kind.items).to_arrow(compat_level=pl.CompatLevel.oldest())
    offsets = pc.subtract(array.offsets, first)
    return pl.Series(series.name, pa.LargeListArray.from_arrays(offsets, items, mask=array.is_null()))


def _struct(members: Sequence[pl.Series], missing: pa.BooleanArray) -> pa.StructArray:
    arrays = [member.to_arrow(compat_level=pl.CompatLevel.oldest()) for member in members]
    return pa.StructArray.from_arrays(arrays, names=[member.name for member in members], mask=missing)


def _decimals(column: pa.Array, field_type: Type) -> pa.Array:
    """Return scaled 64-bit integers as decimals: the low halves of 128-bit integers, with their sign as high halves."""
    numbers = column.fill_null(0).to_numpy()
    halves = np.empty((len(numbers), 2), dtype=np.int64)
    halves[:, 0] = numbers
    halves[:, 1] = numbers >> 63
    valid = None if column.null_count == 0 else pa.array(column.is_valid()).buffers()[1]
    dtype = pa.decimal128(field_type.precision, field_type.scale)
    return pa.Array.from_buffers(dtype, len(numbers), [valid, pa.py_buffer(halves)], null_count=column.null_count)
