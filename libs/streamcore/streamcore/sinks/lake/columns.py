"""Compares a lane's columns with a table's: finds missing columns, and rejects columns that do not fit.

Pure functions over Arrow schemas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from streamcore.errors import ConfigError

#: The largest dictionary page of a column in a data file, in bytes; beyond it the column is written plain. A column of
#: ids gains nothing from a dictionary, and to build it takes more than half of the time of a file.
DICTIONARY_BYTES: Final = 64 * 1024
#: Rows by which a column is judged, and the most distinct values among them. With more, the column has about 8,000 and
#: more values, which fill a dictionary before the file ends.
_SAMPLE_ROWS, _SAMPLE_VALUES = 1_024, 960


def check_partitions(lane: str, columns: pa.Schema, partition_by: Sequence[str]) -> None:
    """Raise ``ConfigError`` if the lane lacks a partition column, has no other columns, or has a partition column of a
    type that cannot name a folder (only text, integer, boolean and date can)."""
    for name in partition_by:
        if name not in columns.names:
            raise ConfigError(f"lane {lane}: no column {name!r} to partition by; there are {columns.names}")
        kind = columns.field(name).type
        if not (types.is_string(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_date(kind)):
            raise ConfigError(f"lane {lane}: cannot partition by {name}, a {kind}; make a column of text of it")
    if len(partition_by) == len(columns.names):
        raise ConfigError(f"lane {lane}: every column is one to partition by; a data file needs a column of its own")


def choose_dictionary_columns(rows: pa.Table) -> list[str]:
    """Return the columns to write with a dictionary: the flat ones whose sampled rows repeat values.

    A pure function of the rows.
    """
    count = rows.num_rows
    if count > _SAMPLE_ROWS:
        rows = rows.take(pa.array(range(0, count, -(-count // _SAMPLE_ROWS))))
    most = rows.num_rows * _SAMPLE_VALUES // _SAMPLE_ROWS
    flat = [name for name in rows.column_names if not types.is_nested(rows.schema.field(name).type)]
    return [name for name in flat if _count_distinct(rows.column(name)) <= most]


def _count_distinct(column: pa.ChunkedArray) -> int:
    """Return the number of distinct values; of a type that Arrow cannot count (UUID), the number of rows."""
    try:
        return int(pc.count_distinct(column, mode="all").as_py())
    except pa.ArrowNotImplementedError:
        return len(column)


def missing_columns(lane: str, wanted: pa.Schema, table: pa.Schema) -> list[pa.Field]:
    """Return the lane's columns (``wanted``) that the table lacks. Raise ``ConfigError`` if another one does not
    fit."""
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
