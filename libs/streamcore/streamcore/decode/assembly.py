"""The steps that decoders of all formats share.

``read_records`` reads the records as text. A decoder decodes some of them in columns, to ``DecodedPart`` values.
``decode_by_reference`` decodes the rest one by one, and returns the rejected records. ``assemble_events`` concatenates
the parts in the order of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from streamcore.decode.reject_codes import DecodeLimits
from streamcore.decode.scalar.record import RejectedRecord
from streamcore.decode.scalar.values import Physical
from streamcore.decode.types import DEAD_SCHEMA, RawBatch, dead_table
from streamcore.schema import StreamSchema

Rows = npt.NDArray[np.int64]
#: Decodes a record; the integer is the cut's clock in epoch milliseconds. Returns the values of the fields, or the
#: rejection.
Reference = Callable[[bytes | None, int], tuple[Physical, ...] | RejectedRecord]


@dataclass(frozen=True, slots=True)
class BatchRecords:
    """The records of a batch as bytes. ``fields``: as in ``RawBatch``."""

    data: pa.LargeBinaryArray
    clock_ms: int
    fields: frozenset[str] | None

    @staticmethod
    def from_batch(batch: RawBatch) -> BatchRecords:
        """Return the records of a batch."""
        return BatchRecords(batch.values.cast(pa.large_binary()), batch.clock_ms, batch.fields)

    def record_bytes(self, row: int) -> bytes | None:
        """Return the bytes of a record, or None for a null record."""
        return record_bytes(self.data, row)


@dataclass(frozen=True, slots=True)
class TextRecords(BatchRecords):
    """The records of a batch as bytes and as a column of Polars.

    ``text``: null for records that are null, too large or not UTF-8. Binary formats have their bytes here.
    """

    text: pl.Series


@dataclass(frozen=True, slots=True)
class DecodedPart:
    """Some decoded rows of a batch: their indices (ascending) and the columns of ``RawBatch.fields`` at least."""

    rows: Rows
    columns: pa.Table

    @classmethod
    def from_frame(cls, rows: Rows, columns: pl.DataFrame) -> DecodedPart:
        """Return the part with the columns of a frame."""
        return cls(rows, columns.to_arrow(compat_level=pl.CompatLevel.oldest()))


def physical_schema(schema: StreamSchema) -> pa.Schema:
    """Return the columns of the fields."""
    return pa.schema([pa.field(f.name, f.type.arrow) for f in schema.fields])


def record_bytes(data: pa.LargeBinaryArray, row: int) -> bytes | None:
    """Return the bytes of a record, or None for a null record."""
    value: bytes | None = data[row].as_py()
    return value


def read_records(batch: RawBatch, limits: DecodeLimits) -> TextRecords:
    """Return the records of a batch of a text format."""
    data = batch.values.cast(pa.large_binary())
    series = pl.Series(data, dtype=pl.Binary)
    too_large = series.bin.size() > limits.max_record_bytes
    if too_large.any():
        series = series.set(too_large, None)
    return TextRecords(data, batch.clock_ms, batch.fields, decode_utf8(series))


def decode_utf8(series: pl.Series) -> pl.Series:
    """Decode binary values as UTF-8; invalid ones become null."""
    try:
        return series.cast(pl.String)
    except pl.exceptions.ComputeError:  # one of them is not UTF-8; the error does not name it
        return pl.Series([_decode_or_none(value) for value in series.to_list()], dtype=pl.String)


def _decode_or_none(record: bytes | None) -> str | None:
    try:
        return None if record is None else record.decode("utf-8")
    except UnicodeDecodeError:
        return None


def decode_by_reference(
    schema: StreamSchema,
    records: BatchRecords,
    rows: Rows,
    reference: Reference,
    parts: list[DecodedPart],
    limits: DecodeLimits | None = None,
) -> pa.Table:
    """Decode ``rows`` one by one. Append their values to ``parts``; return the rejected records, ``DEAD_SCHEMA``.

    ``limits``: if fields may be arrays or maps.
    """
    if not len(rows):
        return DEAD_SCHEMA.empty_table()
    decoded, values = [], 0
    for row in rows:
        decoded.append((int(row), reference(records.record_bytes(row), records.clock_ms)))
        if limits is not None and isinstance(decoded[-1][1], tuple):
            values += sum(map(_count_values, decoded[-1][1]))
            limits.check_batch(values, len(rows))
    dead = [(row, result) for row, result in decoded if isinstance(result, RejectedRecord)]
    accepted = [(row, result) for row, result in decoded if not isinstance(result, RejectedRecord)]
    if accepted:
        columns = zip(*(values for _, values in accepted), strict=True)
        arrays = [pa.array(column, f.type.arrow) for column, f in zip(columns, schema.fields, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=physical_schema(schema))
        parts.append(DecodedPart(np.array([row for row, _ in accepted], dtype=np.int64), table))
    return dead_table([(row, result.code.value, result.reason) for row, result in dead])


def _count_values(value: object) -> int:
    """Return the number of values inside of the value of a field."""
    if isinstance(value, dict):
        value = [*value.values()]
    return sum(1 + _count_values(item) for item in value) if isinstance(value, list | tuple) else 0


def assemble_events(schema: StreamSchema, batch: RawBatch, parts: Sequence[DecodedPart]) -> pa.Table:
    """Return the decoded rows of all parts in the order of the batch, as ``Decoded.events``."""
    wanted = batch.project(schema.arrow)
    if not parts:
        return wanted.empty_table()
    names = [name for name in schema.names if name in wanted.names]
    rows, columns = parts[0].rows, parts[0].columns.select(names)
    if len(parts) > 1:
        rows = np.concatenate([part.rows for part in parts])
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        columns = pa.concat_tables([part.columns.select(names) for part in parts]).take(pa.array(order))
    source = [batch.partition, batch.offset]
    if len(rows) < len(batch):
        source = [column.take(pa.array(rows)) for column in source]
    event_ms = columns.column(schema.event_time) if schema.event_time else pa.nulls(len(rows), pa.int64())
    return pa.Table.from_arrays([*columns.columns, *source, event_ms], schema=wanted)


def count_values(column: pa.Array) -> int:
    """Return the number of values in all columns inside of the arrays and maps of a column."""
    kind = column.type
    if pa.types.is_map(kind):
        inside = [column.keys, column.items]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inside = [column.values]
    elif pa.types.is_struct(kind):
        return sum(count_values(column.field(n)) for n in range(kind.num_fields))
    else:
        return 0
    return sum(_count_inside(one) for one in inside)


def _count_inside(column: pa.Array) -> int:
    """Return the number of values in a column of elements, and in all columns inside of it."""
    if pa.types.is_struct(column.type):
        return len(column) + sum(_count_inside(column.field(n)) for n in range(column.type.num_fields))
    return len(column) + count_values(column)
