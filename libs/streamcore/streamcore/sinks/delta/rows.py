"""A cut's rows as a table takes them: its columns in its order, and the rows that it could not take set apart.

A pure function of the rows and the table's schema, so a cut that comes again has the same rows refused.

Delta has no empty text as a partition's value: it reads back as null, in every writer. It is written as null here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from streamcore.codes import Code
from streamcore.sinks.sink import RejectedRow


class DeltaRowCode(Code):
    """Codes of rows that the Delta sink rejects."""

    NULL = (
        "null",
        "A column that is not nullable in the table is null.",
        "Give the field a value, or make the column of the table nullable.",
    )
    TIMESTAMP_OUT_OF_RANGE = (
        "timestamp_out_of_range",
        "A timestamp is before the year 1 or after the year 9999.",
        "Correct the field.",
    )
    PARTITION_TOO_LONG = (
        "partition_too_long",
        "The names of the row's partition directories are longer than a file system allows.",
        "Partition the table by columns with short values.",
    )


#: A file's name has at most 255 bytes in most file systems; the directories of a row's partition together stay below.
PARTITION_BYTES = 240
_NULL = "__HIVE_DEFAULT_PARTITION__"
_YEAR_1_MS, _YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000


@dataclass(frozen=True, slots=True)
class ShapedRows:
    """``rows``: what goes into the table. ``refused``: what never will, by its place in the lane's table."""

    rows: pa.Table
    rejected: Sequence[RejectedRow]


def shape_rows(lane: str, rows: pa.Table, table: pa.Schema, partition_by: Sequence[str]) -> ShapedRows:
    """``rows`` in the columns of ``table``, those that the lane lacks null."""
    refused: dict[int, RejectedRow] = {}
    for code, reason, places in _faults(rows, table, partition_by):
        for place in places:
            refused.setdefault(place, RejectedRow(lane, place, code, reason))
    if refused:
        keep = pa.array([place not in refused for place in range(rows.num_rows)])
        rows = rows.filter(keep)
    columns = [_column(rows, column, column.name in partition_by) for column in table]
    return ShapedRows(pa.table(columns, schema=table), [refused[place] for place in sorted(refused)])


def _column(rows: pa.Table, column: pa.Field, partition: bool) -> pa.ChunkedArray | pa.Array:
    if column.name not in rows.column_names:
        return pa.nulls(rows.num_rows, column.type)
    values = rows.column(column.name)
    if partition and types.is_string(column.type):
        values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
    return values.cast(column.type)


def _faults(rows: pa.Table, table: pa.Schema, partition_by: Sequence[str]) -> list[tuple[str, str, list[int]]]:
    faults: list[tuple[str, str, list[int]]] = []
    for column in table:
        if column.name not in rows.column_names:
            continue
        values = rows.column(column.name)
        if not column.nullable and (nulls := _places(values.is_null())):
            faults.append((DeltaRowCode.NULL, f"{column.name} is null and the table's must not be", nulls))
        if types.is_timestamp(values.type):
            epoch_ms = values.cast(pa.int64())
            outside = pc.or_(pc.less(epoch_ms, _YEAR_1_MS), pc.greater_equal(epoch_ms, _YEAR_10000_MS))
            reason = f"{column.name} is not in the years 1 to 9999"
            faults.append((DeltaRowCode.TIMESTAMP_OUT_OF_RANGE, reason, _places(outside)))
    if partition_by:
        long = pc.greater(_directory_bytes(rows, partition_by), PARTITION_BYTES)
        reason = f"the partition's name would have more than {PARTITION_BYTES} bytes"
        faults.append((DeltaRowCode.PARTITION_TOO_LONG, reason, _places(long)))
    return faults


def _places(mask: pa.ChunkedArray) -> list[int]:
    if not pc.any(mask).as_py():
        return []
    return [int(place) for place in pc.indices_nonzero(pc.fill_null(mask, fill_value=False)).to_pylist()]


def partitions(rows: pa.Table, partition_by: Sequence[str]) -> pa.Table:
    """Return the partitions of these rows, each once."""
    return rows.select(list(partition_by)).group_by(list(partition_by)).aggregate([])


def _directory_bytes(rows: pa.Table, partition_by: Sequence[str]) -> pa.ChunkedArray:
    """Of ``name=value/`` for each column, row by row, as the library spells it: each byte that is not plain takes 3."""
    total = pa.scalar(sum(3 * len(name.encode()) + 2 for name in partition_by))
    for name in partition_by:
        text = pc.fill_null(rows.column(name).cast(pa.large_string()), _NULL)
        plain = pc.count_substring_regex(text, "[A-Za-z0-9_.~-]")
        bytes_ = pc.binary_length(text)
        total = pc.add(total, pc.subtract(pc.multiply(bytes_, 3), pc.multiply(plain, 2)))
    return total
