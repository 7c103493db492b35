"""The columns that a Delta table has for a lane's; rejects columns that it cannot hold.

Pure functions over Arrow schemas. A Delta table's schema is given in Arrow types, timestamps in microseconds.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from pyarrow import types

from streamcore.errors import ConfigError

#: Characters that Delta forbids in column names, except in tables with column mapping, which the library cannot write.
_FORBIDDEN = set(" ,;{}()\n\t=")

#: The library writes the bounds of decimals as doubles, which hold this many digits exactly.
_EXACT_DIGITS = 15


def delta_type(column: pa.DataType) -> pa.DataType | None:
    """Return the table's column type for a lane's column type, or None if no type fits."""
    if types.is_large_string(column) or types.is_string(column):
        return pa.string()
    if types.is_timestamp(column) and column.unit == "ms" and column.tz == "UTC":
        return pa.timestamp("us", "UTC")
    plain = types.is_decimal128(column) or column in (pa.int64(), pa.int32(), pa.float64(), pa.bool_(), pa.date32())
    return column if plain else None


def in_delta(lane: str, columns: pa.Schema) -> pa.Schema:
    """Return the schema of a new table for this lane. Raise ``ConfigError`` naming a column that Delta cannot hold."""
    twice = [name for name, count in Counter(name.lower() for name in columns.names).items() if count > 1]
    if twice:
        raise ConfigError(f"lane {lane}: Delta ignores case in names, and {twice[0]!r} is there twice")
    return pa.schema([_field(lane, column) for column in columns])


def _field(lane: str, column: pa.Field) -> pa.Field:
    if not column.name or _FORBIDDEN & set(column.name):
        raise ConfigError(f"lane {lane}: Delta takes no column {column.name!r}; rename it without spaces and ,;{{}}()=")
    if (there := delta_type(column.type)) is None:
        raise ConfigError(f"lane {lane}: column {column.name} is {column.type}, which a Delta table does not hold")
    return pa.field(column.name, there, column.nullable)


def without_bounds(table: pa.Schema) -> list[str]:
    """Return the columns for which no minimum and maximum may be recorded, because readers that skip files by them
    would skip wrong ones.

    The library ignores NaN in the bounds of doubles, while readers order NaN above all numbers. It writes the bounds of
    decimals as doubles, which rounds long ones.
    """
    return [
        column.name
        for column in table
        if types.is_float64(column.type) or (types.is_decimal(column.type) and column.type.precision > _EXACT_DIGITS)
    ]
