"""Shapes a cut's rows for a table of Parquet files: orders the columns as the table does, and rejects rows that do not
fit.

The result is a pure function of the rows and the table's schema, so a replayed cut has equal rejected rows.

A folder cannot name an empty text as a partition value: it reads back as null, whatever writes it. So null is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from streamcore.codes import Code
from streamcore.sinks.sink import RejectedRow


class LakeRowCode(Code):
    """Codes of rows that the sinks of Parquet files, Delta and Iceberg tables reject."""

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
    """``rows``: the rows to write, in the table's columns. ``rejected``: the other rows."""

    rows: pa.Table
    rejected: Sequence[RejectedRow]


def shape_rows(
    lane: str, rows: pa.Table, table: pa.Schema, partition_by: Sequence[str], *, empty_is_null: bool = True
) -> ShapedRows:
    """Return the rows in the columns of ``table``; columns that the lane lacks are null. Rejected rows are left out.

    ``empty_is_null``: the names of folders are the partition values, so an empty text is written as null.
    """
    rejected: dict[int, RejectedRow] = {}
    for code, reason, indexes in _faults(rows, table, partition_by):
        for index in indexes:
            rejected.setdefault(index, RejectedRow(lane, index, code, reason))
    if rejected:
        keep = pa.array([index not in rejected for index in range(rows.num_rows)])
        rows = rows.filter(keep)
    columns = [_column(rows, column, empty_is_null and column.name in partition_by) for column in table]
    return ShapedRows(pa.table(columns, schema=table), [rejected[index] for index in sorted(rejected)])


def _column(rows: pa.Table, column: pa.Field, empty_is_null: bool) -> pa.ChunkedArray | pa.Array:
    if column.name not in rows.column_names:
        return pa.nulls(rows.num_rows, column.type)
    values = rows.column(column.name)
    if empty_is_null and types.is_string(column.type):
        values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
    return values.cast(column.type)


def _faults(rows: pa.Table, table: pa.Schema, partition_by: Sequence[str]) -> list[tuple[str, str, list[int]]]:
    """Return each kind of fault as (code, reason, indexes of the rows that have it)."""
    faults: list[tuple[str, str, list[int]]] = []
    for column in table:
        if column.name not in rows.column_names:
            continue
        values = rows.column(column.name)
        if not column.nullable and (nulls := _true_indexes(values.is_null())):
            faults.append((LakeRowCode.NULL, f"{column.name} is null and the table's must not be", nulls))
        if types.is_timestamp(values.type):
            epoch_ms = values.cast(pa.int64())
            outside = pc.or_(pc.less(epoch_ms, _YEAR_1_MS), pc.greater_equal(epoch_ms, _YEAR_10000_MS))
            reason = f"{column.name} is not in the years 1 to 9999"
            faults.append((LakeRowCode.TIMESTAMP_OUT_OF_RANGE, reason, _true_indexes(outside)))
    if partition_by:
        long = pc.greater(_directory_bytes(rows, partition_by), PARTITION_BYTES)
        reason = f"the partition's name would have more than {PARTITION_BYTES} bytes"
        faults.append((LakeRowCode.PARTITION_TOO_LONG, reason, _true_indexes(long)))
    return faults


def _true_indexes(mask: pa.Array | pa.ChunkedArray) -> list[int]:
    if not pc.any(mask).as_py():
        return []
    return [int(index) for index in pc.indices_nonzero(pc.fill_null(mask, fill_value=False)).to_pylist()]


def partitions(rows: pa.Table, partition_by: Sequence[str]) -> pa.Table:
    """Return the distinct partition values of the rows."""
    return rows.select(list(partition_by)).group_by(list(partition_by)).aggregate([])


def split_by_partition(rows: pa.Table, partition_by: Sequence[str]) -> Iterator[tuple[dict[str, object], pa.Table]]:
    """Yield the rows of each partition with its values by column; within a partition rows keep their order.

    The order of the partitions is a pure function of the rows.
    """
    keys = list(partition_by)
    numbers = np.zeros(rows.num_rows, np.int64)
    for key in keys:
        values = rows.column(key).combine_chunks().dictionary_encode(null_encoding="encode")
        combined = numbers * len(values.dictionary) + values.indices.to_numpy()
        # Numbered again after each column: so the numbers stay below the count of the rows.
        numbers = pa.array(combined).dictionary_encode().indices.to_numpy().astype(np.int64)
    counts = np.bincount(numbers)
    rows = rows.take(pa.array(np.argsort(_narrow(numbers, len(counts)), kind="stable")))
    first = 0
    for count in counts.tolist():
        part = rows.slice(first, count)
        yield part.slice(0, 1).select(keys).to_pylist()[0], part
        first += count


def _narrow(numbers: np.ndarray, end: int) -> np.ndarray:
    """Return numbers below ``end`` in 16 bits if they fit: those are sorted in linear time."""
    return numbers.astype(np.uint16) if end <= 1 << 16 else numbers


def _directory_bytes(rows: pa.Table, partition_by: Sequence[str]) -> pa.Array:
    """Return the bytes of each row's partition path, ``name=value/`` per column, where the library escapes every byte
    but A-Z, a-z, 0-9 and ``_.~-`` with three characters."""
    total = pa.scalar(sum(3 * len(name.encode()) + 2 for name in partition_by))
    for name in partition_by:
        # Partition columns repeat few values: their bytes are counted once each.
        values = rows.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        text = pc.fill_null(values.dictionary.cast(pa.large_string()), _NULL)
        plain = pc.count_substring_regex(text, "[A-Za-z0-9_.~-]")
        bytes_ = pc.subtract(pc.multiply(pc.binary_length(text), 3), pc.multiply(plain, 2))
        total = pc.add(total, bytes_.take(values.indices))
    return total
