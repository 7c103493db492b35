"""The Polars type of a value's physical column; ``streamcore.schema.types`` has the table."""

from __future__ import annotations

import functools

import polars as pl

from streamcore.schema.types import Kind, Type
from streamcore.wire.map_entries import KEY, VALUE

_SIMPLE: dict[Kind, pl.DataType] = {
    Kind.BOOLEAN: pl.Boolean(),
    Kind.LONG: pl.Int64(),
    Kind.DOUBLE: pl.Float64(),
    Kind.DECIMAL: pl.Int64(),
    Kind.STRING: pl.String(),
    Kind.TIMESTAMP: pl.Int64(),
}


@functools.cache
def polars_type(kind: Type) -> pl.DataType:
    """Return the type of the column."""
    match kind.kind:
        case Kind.ARRAY:
            return pl.List(polars_type(kind.items))
        case Kind.MAP:
            return pl.List(pl.Struct({KEY: pl.String(), VALUE: polars_type(kind.items)}))
        case Kind.STRUCT:
            return pl.Struct({name: polars_type(member) for name, member in kind.members})
    return _SIMPLE[kind.kind]
