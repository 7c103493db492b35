"""The decoder of Avro records, and the definition of one.

::

    records ─▶ frame: which schema, where the datum is ─▶ columns ─▶ doubtful? ─▶ events
                  │ not vouched for                                     │
                  └────────────────────▶ reference ◀────────────────────┘ ─▶ events or dead letters
"""

from __future__ import annotations

from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from streamcore.decode.assembly import BatchRecords, DecodedPart, Rows, assemble_events, decode_by_reference
from streamcore.decode.avro.byte_cursors import ByteCursors
from streamcore.decode.avro.columns import TooManyStepsError, read_columns
from streamcore.decode.avro.framing import Datum, Framing
from streamcore.decode.avro.reader import Cursor, read_datum
from streamcore.decode.avro.schema_match import FieldMapping
from streamcore.decode.reject_codes import DecodeLimits, RejectCode
from streamcore.decode.scalar.record import RejectedRecord, check_bytes, convert_values
from streamcore.decode.scalar.values import RecordError, Scalar
from streamcore.decode.types import Decoded, RawBatch
from streamcore.schema import StreamSchema
from streamcore.timestamps import load_zone

#: Fewer rows than this are cheaper one by one. So many of a batch's rows are looked at for a new prefix.
_WORTH_IT, _SAMPLES = 16, 16
_MAX_KNOWN = 16


def decode_avro(
    schema: StreamSchema,
    frame: Framing,
    want: FieldMapping,
    record: bytes | None,
    *,
    clock_ms: int,
    zone: ZoneInfo,
    limits: DecodeLimits,
) -> tuple[Scalar, ...] | RejectedRecord:
    """Return the physical values of the schema's fields, in order, or the rejection."""
    try:
        datum = frame.split(check_bytes(record, limits, "one Avro record"), limits)
        cursor = Cursor(datum.data)
        found = read_datum(cursor, datum.kind, want, limits.max_depth)
        if left := len(datum.data) - cursor.position:
            raise RecordError(RejectCode.NOT_AVRO, f"not Avro of its schema: {left} bytes are left after the record")
        return convert_values(schema, found, clock_ms=clock_ms, zone=zone, limits=limits)
    except RecordError as refused:
        return RejectedRecord(refused.code, refused.reason)


class AvroDecoder:
    """Decodes the Avro records of one stream.

    Its memory of prefixes changes the cost of a batch and never its result.
    """

    def __init__(self, schema: StreamSchema, frame: Framing, want: FieldMapping, limits: DecodeLimits) -> None:
        self._schema, self._frame, self._want, self._limits = schema, frame, want, limits
        self._zone = load_zone(schema.zone)
        self._known: list[Datum] = []

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``. Events and rejected records are in the order of the batch."""
        data = batch.values.cast(pa.large_binary())
        column = pl.Series(data, dtype=pl.Binary)
        records, parts = BatchRecords(data, column, batch.clock_ms), list[DecodedPart]()
        small = (column.bin.size() <= self._limits.max_record_bytes).fill_null(value=False)
        alike: Rows = small.arg_true().to_numpy().astype(np.int64)
        for known in self._known:
            alike = self._decode_alike(records, known, alike, parts)
        for row in alike[:: max(1, len(alike) // _SAMPLES)]:
            if len(alike) < _WORTH_IT:
                break
            learned = self._learn(records.record_bytes(int(row)))
            if learned is not None:
                alike = self._decode_alike(records, learned, alike, parts)
        self._known = self._known[-_MAX_KNOWN:]
        left = np.ones(len(batch), dtype=np.bool_)
        for part in parts:
            left[part.rows] = False
        dead = decode_by_reference(self._schema, records, np.flatnonzero(left), self._decode_one, parts)
        return Decoded(assemble_events(self._schema, batch, parts), dead)

    def _decode_one(self, record: bytes | None, clock_ms: int) -> tuple[Scalar, ...] | RejectedRecord:
        return decode_avro(
            self._schema,
            self._frame,
            self._want,
            record,
            clock_ms=clock_ms,
            zone=self._zone,
            limits=self._limits,
        )

    def _learn(self, record: bytes | None) -> Datum | None:
        """Return the meaning of this record's prefix, if that was not known."""
        try:
            datum = self._frame.split(record or b"", self._limits)
        except RecordError:
            return None
        if datum.prefix is None or any(known.prefix == datum.prefix for known in self._known):
            return None
        self._known.append(datum)
        return datum

    def _decode_alike(self, records: BatchRecords, known: Datum, rows: Rows, parts: list[DecodedPart]) -> Rows:
        """Decode those of ``rows`` with this prefix of which it is sure into ``parts``; return those without it."""
        if len(rows) < _WORTH_IT or known.prefix is None:
            return rows
        matched: npt.NDArray[np.bool_] = records.text.gather(rows).bin.starts_with(known.prefix).to_numpy()
        mine = rows[matched]
        if len(mine) < _WORTH_IT:
            return rows
        data = records.data if len(mine) == len(records.data) else records.data.take(pa.array(mine))
        places = ByteCursors.from_records(data)
        self._frame.narrow(places, len(known.prefix))
        try:
            latest_ms = records.clock_ms + self._limits.max_future_ms
            columns = read_columns(self._schema, known.kind, self._want, places, latest_ms)
        except TooManyStepsError:
            return rows[~matched]
        if places.ok.any():
            parts.append(
                DecodedPart(mine[places.ok], columns if places.ok.all() else columns.filter(pl.Series(places.ok)))
            )
        return rows[~matched]
