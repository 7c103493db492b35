"""Whether a lane's columns fit a Delta table's: what is refused before a row is written, and what is added.

Pure functions over Arrow schemas; a Delta table's schema is given in Arrow's types, timestamps in microseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types

from streamcore.errors import ConfigError

#: Delta has no names with these unless a table maps its columns, which the library does not write.
_FORBIDDEN = set(" ,;{}()\n\t=")

#: The library writes bounds of decimals as doubles, which hold so many digits exactly.
_EXACT_DIGITS = 15


def delta_type(column: pa.DataType) -> pa.DataType | None:
    """Return the type of a table for a lane's type, None if there is none."""
    if types.is_large_string(column) or types.is_string(column):
        return pa.string()
    if types.is_timestamp(column) and column.unit == "ms" and column.tz == "UTC":
        return pa.timestamp("us", "UTC")
    plain = types.is_decimal128(column) or column in (pa.int64(), pa.int32(), pa.float64(), pa.bool_(), pa.date32())
    return column if plain else None


def in_delta(lane: str, columns: pa.Schema) -> pa.Schema:
    """Return the schema of a table made for this lane; raise ``ConfigError`` that names the column that cannot be."""
    twice = [name for name, count in Counter(name.lower() for name in columns.names).items() if count > 1]
    if twice:
        raise ConfigError(f"lane {lane}: Delta does not tell capitals in names apart, and {twice[0]!r} is there twice")
    return pa.schema([_field(lane, column) for column in columns])


def _field(lane: str, column: pa.Field) -> pa.Field:
    if not column.name or _FORBIDDEN & set(column.name):
        raise ConfigError(f"lane {lane}: Delta takes no column {column.name!r}; rename it without spaces and ,;{{}}()=")
    if (there := delta_type(column.type)) is None:
        raise ConfigError(f"lane {lane}: column {column.name} is {column.type}, which a Delta table does not hold")
    return pa.field(column.name, there, column.nullable)


def check_partitions(lane: str, columns: pa.Schema, partition_by: Sequence[str]) -> None:
    """``ConfigError`` unless the lane has these columns, others beside them, and they have values with one spelling."""
    for name in partition_by:
        if name not in columns.names:
            raise ConfigError(f"lane {lane}: no column {name!r} to partition by; there are {columns.names}")
        kind = columns.field(name).type
        if not (types.is_string(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_date(kind)):
            raise ConfigError(f"lane {lane}: cannot partition by {name}, a {kind}; make a column of text of it")
    if len(partition_by) == len(columns.names):
        raise ConfigError(f"lane {lane}: every column is one to partition by; a data file needs a column of its own")


def missing_columns(lane: str, wanted: pa.Schema, table: pa.Schema) -> list[pa.Field]:
    """Return the lane's columns that the table lacks; raise ``ConfigError`` if one of the others does not fit."""
    lower = {name.lower(): name for name in table.names}
    for column in wanted:
        there = lower.get(column.name.lower())
        if there is not None and there != column.name:
            raise ConfigError(f"lane {lane}: the table calls column {column.name} {there!r}; use its spelling")
        if there is not None and table.field(there).type != column.type:
            raise ConfigError(
                f"lane {lane}: column {there} is {column.type} here and {table.field(there).type} in the table; "
                "a column's type never changes: use another name, or another table"
            )
    for column in table:
        if not column.nullable and column.name not in wanted.names:
            raise ConfigError(
                f"lane {lane}: the table's column {column.name} must not be null and the lane has none of that name; "
                "add it to the lane, or drop the table's NOT NULL"
            )
    return [column.with_nullable(True) for column in wanted if column.name not in table.names]


def without_bounds(table: pa.Schema) -> list[str]:
    """Columns whose smallest and largest value are not written beside a file, for they would be wrong.

    A reader skips files by them. The library leaves NaN out of a double's bounds, while readers order NaN above all
    numbers; and it writes a decimal's bounds as doubles.
    """
    return [
        column.name
        for column in table
        if types.is_float64(column.type) or (types.is_decimal(column.type) and column.type.precision > _EXACT_DIGITS)
    ]
