"""What every decoder does around its format: records as text, the reference for what is left, all rows in order.

A fast path leaves ``Part`` values; ``decode_each`` adds what the reference accepts and gives the dead letters;
``events_of`` puts the parts together in the order of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from streamcore.decode.batch import DEAD_SCHEMA, RawBatch
from streamcore.decode.columns import PHYSICAL
from streamcore.records.record import Rejected
from streamcore.records.scalars import Scalar
from streamcore.records.terms import DecodeLimits
from streamcore.schema import StreamSchema

Rows = npt.NDArray[np.int64]
#: One record, and the cut's clock: its values or why it is a dead letter.
Reference = Callable[[bytes | None, int], tuple[Scalar, ...] | Rejected]


@dataclass(frozen=True, slots=True)
class Records:
    """A batch's records as bytes and, for the patterns, as text: null where there is none that a pattern may see."""

    data: pa.LargeBinaryArray
    text: pl.Series
    clock_ms: int

    def one(self, row: int) -> bytes | None:
        """A record's bytes."""
        return one(self.data, row)


@dataclass(frozen=True, slots=True)
class Part:
    """Some decoded rows of a batch: their indices (ascending) and their columns."""

    rows: Rows
    columns: pl.DataFrame


def one(data: pa.LargeBinaryArray, row: int) -> bytes | None:
    """A record's bytes."""
    value: bytes | None = data[row].as_py()
    return value


def records_of(batch: RawBatch, limits: DecodeLimits) -> Records:
    """The batch's records, those as text that are not too large and are UTF-8."""
    data = batch.values.cast(pa.large_binary())
    series = pl.Series(data, dtype=pl.Binary)
    too_large = series.bin.size() > limits.max_record_bytes
    if too_large.any():
        series = series.set(too_large, None)
    return Records(data, texts_of(series), batch.clock_ms)


def texts_of(series: pl.Series) -> pl.Series:
    """Bytes as texts; null where they are not UTF-8."""
    try:
        return series.cast(pl.String)
    except pl.exceptions.ComputeError:  # not UTF-8, without saying where
        return pl.Series([_text(value) for value in series.to_list()], dtype=pl.String)


def _text(record: bytes | None) -> str | None:
    try:
        return None if record is None else record.decode("utf-8")
    except UnicodeDecodeError:
        return None


def decode_each(
    schema: StreamSchema, records: Records, rows: Rows, reference: Reference, parts: list[Part]
) -> pa.Table:
    """Decodes ``rows`` by the reference into ``parts``; returns the dead letters."""
    decoded = [(int(row), reference(records.one(row), records.clock_ms)) for row in rows]
    dead = [(row, result) for row, result in decoded if isinstance(result, Rejected)]
    good = [(row, result) for row, result in decoded if not isinstance(result, Rejected)]
    if good:
        types = {f.name: PHYSICAL[f.type.kind] for f in schema.fields}
        columns = pl.DataFrame([values for _, values in good], schema=types, orient="row")
        parts.append(Part(np.array([row for row, _ in good], dtype=np.int64), columns))
    return pa.Table.from_arrays(
        [
            pa.array([row for row, _ in dead], pa.uint32()),
            pa.array([result.code.value for _, result in dead], pa.string()),
            pa.array([result.reason for _, result in dead], pa.string()),
        ],
        schema=DEAD_SCHEMA,
    )


def events_of(schema: StreamSchema, batch: RawBatch, parts: Sequence[Part]) -> pa.Table:
    """The decoded rows of all parts in the order of the batch, with the engine's columns."""
    if not parts:
        return schema.arrow.empty_table()
    rows, columns = parts[0].rows, parts[0].columns
    if len(parts) > 1:
        rows = np.concatenate([part.rows for part in parts])
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        columns = pl.concat([part.columns for part in parts])[order]
    table = columns.to_arrow(compat_level=pl.CompatLevel.oldest())
    engine = [batch.partition, batch.offset]
    if len(rows) < len(batch):
        engine = [column.take(pa.array(rows)) for column in engine]
    event_ms = table.column(schema.event_time)
    return pa.Table.from_arrays([*table.columns, *engine, event_ms], schema=schema.arrow)
