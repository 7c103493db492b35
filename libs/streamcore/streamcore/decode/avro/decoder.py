"""Decodes Avro records: records with a known prefix together in columns, the others one by one by the reference.

::

    records ─▶ prefix known: schema, position of datum ─▶ walk or columns ─▶ not sure? ─▶ events
                  │ prefix unknown                                      │
                  └────────────────────▶ reference ◀────────────────────┘ ─▶ events or dead letters
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pyarrow as pa

from streamcore.decode.assembly import BatchRecords, DecodedPart, Rows, assemble_events, decode_by_reference
from streamcore.decode.avro.byte_cursors import ByteCursors
from streamcore.decode.avro.columns import TooManyStepsError, read_columns
from streamcore.decode.avro.framing import BareFraming, Datum, Framing, PrefixFraming
from streamcore.decode.avro.reader import Cursor, read_datum
from streamcore.decode.avro.schema_match import FieldMapping
from streamcore.decode.avro.steps import make_steps
from streamcore.decode.record_starts import RecordStarts
from streamcore.decode.reject_codes import DecodeLimits, RejectCode
from streamcore.decode.scalar.record import RejectedRecord, check_bytes, convert_values
from streamcore.decode.scalar.values import Physical, RecordError
from streamcore.decode.types import Decoded, RawBatch
from streamcore.schema import StreamSchema
from streamcore.timestamps import load_zone

if TYPE_CHECKING:
    from streamcore.decode.walk.binary_decoder import BinaryWalk

#: Fewer rows than this are decoded one by one, which is cheaper.
_MIN_ROWS = 16
#: Records of a batch that are examined for a new prefix.
_SAMPLES = 16
#: The most prefixes that a decoder remembers.
_MAX_KNOWN = 16


def decode_avro(
    schema: StreamSchema,
    framing: Framing,
    want: FieldMapping,
    record: bytes | None,
    *,
    clock_ms: int,
    zone: ZoneInfo,
    limits: DecodeLimits,
) -> tuple[Physical, ...] | RejectedRecord:
    """Decode one record (the reference): return the values of the stream's fields, in order, or the rejection."""
    try:
        datum = framing.split(check_bytes(record, limits, "one Avro record"), limits)
        cursor = Cursor(datum.data)
        values = read_datum(cursor, datum.kind, want, limits.max_depth)
        if remaining := len(datum.data) - cursor.position:
            raise RecordError(
                RejectCode.NOT_AVRO, f"not Avro of its schema: {remaining} bytes are left after the record"
            )
        return convert_values(schema, values, clock_ms=clock_ms, zone=zone, limits=limits)
    except RecordError as error:
        return RejectedRecord(error.code, error.reason)


class AvroDecoder:
    """Decodes the Avro records of one stream.

    It remembers prefixes of records. That changes the cost of a batch, never its result.
    """

    def __init__(self, schema: StreamSchema, framing: Framing, want: FieldMapping, limits: DecodeLimits) -> None:
        self._schema, self._framing, self._want, self._limits = schema, framing, want, limits
        self._zone = load_zone(schema.zone)
        self._known: list[Datum] = []
        self._walks: dict[bytes, BinaryWalk | None] = {}

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``. Events and rejected records are in the order of the batch."""
        data = batch.values.cast(pa.large_binary())
        records, parts, starts = BatchRecords(data, batch.clock_ms), list[DecodedPart](), RecordStarts(data)
        remaining = starts.rows_within(self._limits.max_record_bytes)
        if any(field.type.is_nested for field in self._schema.fields):
            remaining = remaining[:0]  # no columns are read of arrays, maps and records
        for known in self._known:
            remaining = self._decode_known(records, starts, known, remaining, parts)
        for row in remaining[:: max(1, len(remaining) // _SAMPLES)]:
            if len(remaining) < _MIN_ROWS:
                break
            learned = self._learn(records.record_bytes(int(row)))
            if learned is not None:
                remaining = self._decode_known(records, starts, learned, remaining, parts)
        self._known = self._known[-_MAX_KNOWN:]
        self._walks = {p: walk for p, walk in self._walks.items() if any(known.prefix == p for known in self._known)}
        undecoded = np.ones(len(batch), dtype=np.bool_)
        for part in parts:
            undecoded[part.rows] = False
        dead = decode_by_reference(self._schema, records, np.flatnonzero(undecoded), self._decode_one, parts)
        return Decoded(assemble_events(self._schema, batch, parts), dead)

    def _decode_one(self, record: bytes | None, clock_ms: int) -> tuple[Physical, ...] | RejectedRecord:
        return decode_avro(
            self._schema,
            self._framing,
            self._want,
            record,
            clock_ms=clock_ms,
            zone=self._zone,
            limits=self._limits,
        )

    def _walk_of(self, known: Datum) -> BinaryWalk | None:
        """Return the compiled walk through datums of a type that follow a prefix; None for container files, in which
        more than a prefix surrounds the datum, and for very large schemas."""
        if known.prefix is None or not isinstance(self._framing, BareFraming | PrefixFraming):
            return None
        if known.prefix not in self._walks:
            from streamcore.decode.walk.binary_decoder import BinaryWalk  # loads the compiler

            steps = make_steps(self._schema, known.kind, self._want, self._limits.max_depth)
            walk = None if steps is None else BinaryWalk.of_avro(self._schema, self._limits, steps)
            self._walks[known.prefix] = walk
        return self._walks[known.prefix]

    def _learn(self, record: bytes | None) -> Datum | None:
        """Remember the record's prefix and return its datum; None if the prefix is known or the record is invalid."""
        try:
            datum = self._framing.split(record or b"", self._limits)
        except RecordError:
            return None
        if datum.prefix is None or any(known.prefix == datum.prefix for known in self._known):
            return None
        self._known.append(datum)
        return datum

    def _decode_known(
        self, records: BatchRecords, starts: RecordStarts, known: Datum, rows: Rows, parts: list[DecodedPart]
    ) -> Rows:
        """Decode the ``rows`` with this prefix that are ``ok`` into ``parts``; return the rows without the prefix."""
        if len(rows) < _MIN_ROWS or known.prefix is None:
            return rows
        matched = starts.match(rows, known.prefix)
        known_rows = rows if matched.all() else rows[matched]
        if len(known_rows) < _MIN_ROWS:
            return rows
        data = records.data if len(known_rows) == len(records.data) else records.data.take(pa.array(known_rows))
        if (walk := self._walk_of(known)) is not None:
            walked = walk.decode(data, len(known.prefix), records.clock_ms)
            if walked.sure.any():
                parts.append(DecodedPart(known_rows[walked.sure], walked.columns))
            return rows[~matched]
        cursors = ByteCursors.from_records(data)
        self._framing.narrow(cursors, len(known.prefix))
        try:
            latest_ms = records.clock_ms + self._limits.max_future_ms
            columns = read_columns(self._schema, known.kind, self._want, cursors, latest_ms)
        except TooManyStepsError:
            return rows[~matched]
        if cursors.ok.any():
            decoded = columns if cursors.ok.all() else columns.filter(pl.Series(cursors.ok))
            parts.append(DecodedPart.from_frame(known_rows[cursors.ok], decoded))
        return rows[~matched]
