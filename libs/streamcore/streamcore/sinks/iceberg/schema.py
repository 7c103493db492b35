"""The columns that an Iceberg table has for a lane's. Pure functions over Arrow schemas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types

from streamcore.errors import ConfigError


def in_iceberg(lane: str, columns: pa.Schema) -> pa.Schema:
    """Return the schema of a new table for this lane. Raise ``ConfigError`` naming a column that no table holds."""
    twice = [name for name, count in Counter(name.lower() for name in columns.names).items() if count > 1]
    if twice:
        raise ConfigError(f"lane {lane}: many readers of Iceberg ignore case in names, and {twice[0]!r} is there twice")
    return pa.schema([_field(lane, column) for column in columns])


def _field(lane: str, column: pa.Field) -> pa.Field:
    kind = plain_type(column.type)
    if types.is_timestamp(kind) and kind.tz == "UTC":
        kind = pa.timestamp("us", "UTC")
    elif not (
        types.is_decimal128(kind)
        or kind in (pa.string(), pa.int64(), pa.int32(), pa.float64(), pa.bool_(), pa.date32())
    ):
        raise ConfigError(f"lane {lane}: column {column.name} is {kind}, which the Iceberg sink does not write")
    return pa.field(column.name, kind, column.nullable)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type with short texts, for comparisons."""
    return pa.string() if types.is_large_string(kind) else kind


def add_columns_sql(table: str, columns: Sequence[pa.Field]) -> str:
    """Return the statement of Spark SQL that adds the columns to a table."""
    return f"ALTER TABLE {table} ADD COLUMNS ({', '.join(f'{c.name} {_sql_type(c.type)}' for c in columns)})"


def _sql_type(kind: pa.DataType) -> str:
    if types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    names = {pa.string(): "string", pa.int64(): "bigint", pa.int32(): "int", pa.float64(): "double"}
    return {**names, pa.bool_(): "boolean", pa.date32(): "date"}.get(kind, "timestamp")
