"""The fast decoder of JSON records: what a known shape vouches for in columns, the rest record by record.

::

    records ─▶ shape 1 … shape n ─▶ columns ─▶ a time doubtful, or in the future? ─▶ events
                  │ not vouched for                        │
                  └──────────────▶ reference ◀─────────────┘ ─▶ events or dead letters

The decoder remembers the shapes that it has met. That memory changes the cost of a batch and never its result, so a
decoder may be made anew at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from streamcore.decode.batch import DEAD_SCHEMA, Decoded, DecodeLimits, ExtraFields, RawBatch
from streamcore.decode.columns import PHYSICAL, parse_vouched
from streamcore.decode.reference import JsonObject, Rejected, decode_one, parse_object
from streamcore.decode.scalars import Scalar
from streamcore.decode.shapes import SAMPLES, Known, KnownShapes
from streamcore.decode.times import zone_of
from streamcore.schema import StreamSchema

_Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Records:
    """A batch's records as bytes and, for the patterns, as text: null where there is none that a pattern may see."""

    data: pa.LargeBinaryArray
    text: pl.Series
    clock_ms: int

    def one(self, row: int) -> bytes | None:
        value: bytes | None = self.data[row].as_py()
        return value


@dataclass(frozen=True, slots=True)
class _Part:
    """Some decoded rows of a batch: their indices (ascending) and their columns."""

    rows: _Rows
    columns: pl.DataFrame


class JsonDecoder:
    """Decodes the JSON records of one stream (see the package for what is accepted)."""

    def __init__(
        self,
        schema: StreamSchema,
        *,
        limits: DecodeLimits | None = None,
        extra_fields: ExtraFields = ExtraFields.REJECT,
    ) -> None:
        self._schema = schema
        self._limits = limits or DecodeLimits()
        self._extra_fields = ExtraFields(extra_fields)
        self._zone = zone_of(schema.zone)
        self._shapes = KnownShapes(schema)

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``. Events and dead letters are in the order of the batch."""
        records = self._records(batch)
        parts: list[_Part] = []
        unknown: _Rows = np.arange(len(batch))
        for known in self._shapes.by_use():
            unknown = self._decode_vouched(records, known, unknown, parts)
        if self._shapes.worth_learning(len(unknown), len(batch)):
            learned = self._shapes.learn(self._samples(records, unknown))
            if learned is not None:
                unknown = self._decode_vouched(records, learned, unknown, parts)
        dead = self._decode_each(records, unknown, parts)
        return Decoded(self._events(batch, parts), dead)

    def _records(self, batch: RawBatch) -> _Records:
        data = batch.values.cast(pa.large_binary())
        series = pl.Series(data, dtype=pl.Binary)
        too_large = series.bin.size() > self._limits.max_record_bytes
        if too_large.any():
            series = series.set(too_large, None)
        try:
            text = series.cast(pl.String)
        except pl.exceptions.ComputeError:  # not UTF-8, without saying where
            text = pl.Series([_text(value) for value in series.to_list()], dtype=pl.String)
        return _Records(data, text, batch.clock_ms)

    def _decode_vouched(self, records: _Records, known: Known, rows: _Rows, parts: list[_Part]) -> _Rows:
        """Decodes those of ``rows`` that the shape vouches for into ``parts``; returns the others."""
        if len(rows) == 0:
            return rows
        every = len(rows) == len(records.text)
        text = records.text if every else records.text.gather(rows)
        matched: npt.NDArray[np.bool_] = known.matches(text).to_numpy()
        mine = rows if matched.all() else rows[matched]
        if len(mine) == 0:
            return rows
        data = records.data if len(mine) == len(records.text) else records.data.take(pa.array(mine))
        latest_ms = records.clock_ms + self._limits.max_future_ms
        try:
            parsed = parse_vouched(self._schema, known.shape, data, latest_ms)
        except pl.exceptions.PolarsError:  # the parser sees what the pattern does not; the reference decides
            return rows
        if parsed.sure.all():
            parts.append(_Part(mine, parsed.columns))
            return rows[~matched]
        sure = parsed.sure.to_numpy()
        parts.append(_Part(mine[sure], parsed.columns.filter(parsed.sure)))
        left: _Rows = np.concatenate([rows[~matched], mine[~sure]])
        left.sort()
        return left

    def _samples(self, records: _Records, rows: _Rows) -> list[JsonObject]:
        """Valid ones among the first ``SAMPLES`` of ``rows``."""
        first = [(row, record) for row in rows[:SAMPLES] if (record := records.one(row)) is not None]
        valid = [record for _, record in first if not isinstance(self._decode_one(record, records.clock_ms), Rejected)]
        return [parse_object(record, self._limits) for record in valid]

    def _decode_one(self, record: bytes | None, clock_ms: int) -> tuple[Scalar, ...] | Rejected:
        return decode_one(
            self._schema,
            record,
            clock_ms=clock_ms,
            zone=self._zone,
            limits=self._limits,
            extra_fields=self._extra_fields,
        )

    def _decode_each(self, records: _Records, rows: _Rows, parts: list[_Part]) -> pa.Table:
        """Decodes ``rows`` by the reference into ``parts``; returns the dead letters."""
        decoded = [(int(row), self._decode_one(records.one(row), records.clock_ms)) for row in rows]
        dead = [(row, result) for row, result in decoded if isinstance(result, Rejected)]
        good = [(row, result) for row, result in decoded if not isinstance(result, Rejected)]
        if good:
            types = {f.name: PHYSICAL[f.type.kind] for f in self._schema.fields}
            columns = pl.DataFrame([values for _, values in good], schema=types, orient="row")
            parts.append(_Part(np.array([row for row, _ in good], dtype=np.int64), columns))
        return pa.Table.from_arrays(
            [
                pa.array([row for row, _ in dead], pa.uint32()),
                pa.array([rejected.code.value for _, rejected in dead], pa.string()),
                pa.array([rejected.reason for _, rejected in dead], pa.string()),
            ],
            schema=DEAD_SCHEMA,
        )

    def _events(self, batch: RawBatch, parts: Sequence[_Part]) -> pa.Table:
        """The decoded rows of all parts in the order of the batch, with the engine's columns."""
        if not parts:
            return self._schema.arrow.empty_table()
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
        event_ms = table.column(self._schema.event_time)
        return pa.Table.from_arrays([*table.columns, *engine, event_ms], schema=self._schema.arrow)


def _text(record: bytes | None) -> str | None:
    try:
        return None if record is None else record.decode("utf-8")
    except UnicodeDecodeError:
        return None
