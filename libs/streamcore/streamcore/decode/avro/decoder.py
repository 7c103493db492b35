"""Decodes Avro records: records with a known prefix together in columns, the others one by one by the reference.

::

    records ─▶ prefix known: schema, position of datum ─▶ walk ─▶ not sure? ─▶ events
                  │ prefix unknown                           │
                  └────────────────────▶ reference ◀─────────┘ ─▶ events or dead letters
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pyarrow as pa

from streamcore.decode.assembly import BatchRecords, DecodedPart, Rows, decode_by_reference
from streamcore.decode.avro.framing import Datum, Framing
from streamcore.decode.avro.reader import Cursor, read_datum
from streamcore.decode.avro.schema_match import FieldMapping
from streamcore.decode.avro.steps import make_steps
from streamcore.decode.record_starts import RecordStarts
from streamcore.decode.reject_codes import DecodeLimits, RejectCode
from streamcore.decode.row_decoding import add_part, decode_all, rows_without
from streamcore.decode.scalar.record import RejectedRecord, check_bytes, convert_values
from streamcore.decode.scalar.values import Physical, RecordError
from streamcore.decode.types import Decoded, RawBatch
from streamcore.decode.walk.binary.layout import Layout
from streamcore.schema import StreamSchema
from streamcore.timestamps import load_zone

if TYPE_CHECKING:
    from streamcore.decode.walk.binary.decoder import BinaryWalk

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
        values = read_datum(cursor, datum.kind, want, limits)
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
        self._zone, self._layout = load_zone(schema.zone), Layout.of(schema.fields)
        self._known: list[Datum] = []
        self._walks: dict[bytes, BinaryWalk | None] = {}

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``. Events and rejected records are in the order of the batch."""
        return decode_all(self._schema, self, batch)

    def decode_rows(
        self, records: BatchRecords, starts: RecordStarts, rows: Rows, parts: list[DecodedPart]
    ) -> pa.Table:
        """See ``RowsDecoder``."""
        remaining = starts.select_within(rows, self._limits.max_record_bytes)
        decoded = len(parts)
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
        left = rows_without(rows, parts[decoded:])
        return decode_by_reference(self._schema, records, left, self._decode_one, parts, self._limits)

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

    def _find_walk(self, known: Datum) -> BinaryWalk | None:
        """Return the compiled walk through datums of a type that follow a prefix; None for very large schemas."""
        assert known.prefix is not None
        if known.prefix not in self._walks:
            from streamcore.decode.walk.binary.decoder import BinaryWalk  # loads the compiler

            steps = make_steps(self._layout, known.kind, self._want, self._limits.max_depth)
            walk = None if steps is None else BinaryWalk.of_avro(self._schema, self._limits, self._layout, steps)
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
        """Decode the ``rows`` with this prefix that are sure into ``parts``; return the rows without the prefix."""
        if len(rows) < _MIN_ROWS or known.prefix is None:
            return rows
        matched = starts.match(rows, known.prefix)
        known_rows = rows if matched.all() else rows[matched]
        if len(known_rows) < _MIN_ROWS:
            return rows
        if (walk := self._find_walk(known)) is not None:
            begins, ends, found = self._framing.narrow(starts.content, *starts.places(known_rows, len(known.prefix)))
            if found is not None and not found.all():
                known_rows, begins, ends = known_rows[found], begins[found], ends[found]
            walked = walk.decode(starts.content, begins, ends, records.clock_ms, records.fields)
            add_part(parts, known_rows, walked.sure, walked.columns)
        return rows[~matched]
