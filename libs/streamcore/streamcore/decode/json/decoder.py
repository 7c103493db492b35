"""Decodes JSON records: records of a known shape together in columns, the others one by one by the reference.

::

    records ─▶ shape 1 … shape n ─▶ columns ─▶ invalid time, or in the future? ─▶ events
                  │ no shape matches                       │
                  └──────────────▶ reference ◀─────────────┘ ─▶ events or dead letters

The decoder remembers shapes of records. That changes the cost of a batch, never its result, so a new decoder may
replace it at any time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from streamcore.decode.assembly import (
    BatchRecords,
    DecodedPart,
    Rows,
    assemble_events,
    decode_by_reference,
    read_records,
)
from streamcore.decode.json.matched_records import parse_matched
from streamcore.decode.json.shape_cache import SAMPLES, KnownShape, ShapeCache
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.scalar.json import JsonObject, decode_one, parse_object
from streamcore.decode.scalar.record import RejectedRecord
from streamcore.decode.scalar.values import Scalar
from streamcore.decode.types import Decoded, RawBatch
from streamcore.schema import StreamSchema, TimeUnit
from streamcore.timestamps import load_zone


class JsonDecoder:
    """Decodes the JSON records of one stream (see the package for the accepted records)."""

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
        self._zone = load_zone(schema.zone)
        # A shape is of flat records with times in milliseconds; others are left to the reference.
        flat = all(not field.path and field.unit is TimeUnit.MILLISECONDS for field in schema.fields)
        self._shapes = ShapeCache(schema) if flat else None

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``. Events and rejected records are in the order of the batch."""
        records = read_records(batch, self._limits)
        parts: list[DecodedPart] = []
        unknown: Rows = np.arange(len(batch))
        if self._shapes is not None:
            unknown = self._decode_in_columns(self._shapes, records, unknown, parts)
        dead = decode_by_reference(self._schema, records, unknown, self._decode_one, parts)
        return Decoded(assemble_events(self._schema, batch, parts), dead)

    def _decode_in_columns(
        self, shapes: ShapeCache, records: BatchRecords, rows: Rows, parts: list[DecodedPart]
    ) -> Rows:
        """Decode the ``rows`` of which the shape is known or learned into ``parts``; return the other rows."""
        count = len(rows)
        for known in shapes.by_use():
            rows = self._decode_matched(records, known, rows, parts)
        if shapes.should_learn(len(rows), count):
            learned = shapes.learn(self._samples(records, rows))
            if learned is not None:
                rows = self._decode_matched(records, learned, rows, parts)
        return rows

    def _decode_matched(self, records: BatchRecords, known: KnownShape, rows: Rows, parts: list[DecodedPart]) -> Rows:
        """Decode the ``rows`` that the shape matches into ``parts``; return the other rows."""
        if len(rows) == 0:
            return rows
        every = len(rows) == len(records.text)
        text = records.text if every else records.text.gather(rows)
        matched: npt.NDArray[np.bool_] = known.matches(text).to_numpy()
        matched_rows = rows if matched.all() else rows[matched]
        if len(matched_rows) == 0:
            return rows
        data = records.data if len(matched_rows) == len(records.text) else records.data.take(pa.array(matched_rows))
        latest_ms = records.clock_ms + self._limits.max_future_ms
        try:
            parsed = parse_matched(self._schema, known.shape, data, latest_ms)
        except pl.exceptions.PolarsError:  # the parser rejects what the pattern accepts; the reference decides
            return rows
        if parsed.sure.all():
            parts.append(DecodedPart(matched_rows, parsed.columns))
            return rows[~matched]
        sure = parsed.sure.to_numpy()
        parts.append(DecodedPart(matched_rows[sure], parsed.columns.filter(parsed.sure)))
        undecoded: Rows = np.concatenate([rows[~matched], matched_rows[~sure]])
        undecoded.sort()
        return undecoded

    def _samples(self, records: BatchRecords, rows: Rows) -> list[JsonObject]:
        """Return the records among the first ``SAMPLES`` of ``rows`` that the reference accepts."""
        first = [(row, record) for row in rows[:SAMPLES] if (record := records.record_bytes(row)) is not None]
        valid = [
            record for _, record in first if not isinstance(self._decode_one(record, records.clock_ms), RejectedRecord)
        ]
        return [parse_object(record, self._limits) for record in valid]

    def _decode_one(self, record: bytes | None, clock_ms: int) -> tuple[Scalar, ...] | RejectedRecord:
        return decode_one(
            self._schema,
            record,
            clock_ms=clock_ms,
            zone=self._zone,
            limits=self._limits,
            extra_fields=self._extra_fields,
        )
