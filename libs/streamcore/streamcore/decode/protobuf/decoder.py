"""Decodes the Protobuf records of one schema of a registry: the message type's indexes, then the message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from streamcore.decode.assembly import BatchRecords, DecodedPart, Rows, decode_by_reference
from streamcore.decode.protobuf.reader import MessageCursor, read_indexes, read_message
from streamcore.decode.protobuf.schema import ProtoSchema
from streamcore.decode.protobuf.schema_match import ReadMessage, match_fields
from streamcore.decode.protobuf.steps import make_steps
from streamcore.decode.record_starts import RecordStarts
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields, RejectCode
from streamcore.decode.row_decoding import add_part, decode_all, rows_without
from streamcore.decode.scalar.record import RejectedRecord, check_bytes, convert_values
from streamcore.decode.scalar.values import Physical, RecordError
from streamcore.decode.types import Decoded, RawBatch
from streamcore.decode.walk.binary.layout import Layout
from streamcore.schema import StreamSchema
from streamcore.timestamps import load_zone

if TYPE_CHECKING:
    from streamcore.decode.walk.binary.decoder import BinaryWalk

#: Fewer rows than this are decoded one by one.
_MIN_ROWS = 16
#: The most message types of one schema whose records in a batch are walked.
_MAX_HEADS = 16
#: The most message types of one schema that a decoder remembers.
_MAX_TYPES = 1_000


@dataclass(frozen=True, slots=True)
class _Head:
    """The bytes of a record before its message, with the compiled walk through messages of that type."""

    begin: bytes
    walk: BinaryWalk | None = None


class ProtobufDecoder:
    """Decodes the records of one schema. Each begins with ``prefix_bytes`` that are skipped.

    ``name``: of the schema, for messages. It keeps what it found out about message types; that changes the cost of a
    batch, never its result.
    """

    def __init__(
        self,
        stream: StreamSchema,
        schema: ProtoSchema,
        name: str,
        prefix_bytes: int,
        *,
        limits: DecodeLimits,
        extra_fields: ExtraFields,
    ) -> None:
        self._stream, self._schema, self._name, self._prefix_bytes = stream, schema, name, prefix_bytes
        self._limits, self._extra_fields = limits, extra_fields
        self._zone, self._layout = load_zone(stream.zone), Layout.of(stream.fields)
        self._heads: dict[bytes, _Head] = {}
        self._types: dict[tuple[int, ...], ReadMessage | RecordError] = {}

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``."""
        return decode_all(self._stream, self, batch)

    def decode_rows(
        self, records: BatchRecords, starts: RecordStarts, rows: Rows, parts: list[DecodedPart]
    ) -> pa.Table:
        """See ``RowsDecoder``."""
        waiting, decoded = starts.select_within(rows, self._limits.max_record_bytes), len(parts)
        for _ in range(_MAX_HEADS):
            if len(waiting) < _MIN_ROWS:
                break
            head = self._head(records.record_bytes(int(waiting[0])) or b"")
            matched = starts.match(waiting, head.begin)
            head_rows = waiting if matched.all() else waiting[matched]
            if head.walk is not None:
                places = starts.places(head_rows, len(head.begin))
                walked = head.walk.decode(starts.content, *places, records.clock_ms, records.fields)
                add_part(parts, head_rows, walked.sure, walked.columns)
            waiting = waiting[~matched]
        left = rows_without(rows, parts[decoded:])
        return decode_by_reference(self._stream, records, left, self.decode_one, parts, self._limits)

    def _head(self, record: bytes) -> _Head:
        """Return the head of a record; if its message type cannot be walked, one without a walk."""
        cursor = MessageCursor(record, min(self._prefix_bytes, len(record)), len(record))
        try:
            want = self.message_type(read_indexes(cursor))
        except RecordError:
            return _Head(record)
        begin = record[: cursor.position]
        if begin not in self._heads:
            from streamcore.decode.walk.binary.decoder import BinaryWalk  # loads the compiler

            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            steps = make_steps(self._layout, want)
            walk = BinaryWalk.of_protobuf(self._stream, self._limits, self._layout, steps)
            self._heads[begin] = _Head(begin, walk)
        return self._heads[begin]

    def decode_one(self, record: bytes | None, clock_ms: int) -> tuple[Physical, ...] | RejectedRecord:
        """Decode one record (the reference): return the values of the stream's fields, in order, or the rejection."""
        try:
            data = check_bytes(record, self._limits, "one Protobuf record")
            cursor = MessageCursor(data, self._prefix_bytes, len(data))
            want = self.message_type(read_indexes(cursor))
            values: dict[str, object] = {}
            read_message(cursor, want, self._limits, values)
            return convert_values(self._stream, values, clock_ms=clock_ms, zone=self._zone, limits=self._limits)
        except RecordError as error:
            return RejectedRecord(error.code, error.reason)

    def message_type(self, indexes: tuple[int, ...]) -> ReadMessage:
        """Return the fields to read of the message type at these indexes; raise ``RecordError`` if it does not fit."""
        found = self._types.get(indexes)
        if found is None:
            found = self._match(indexes)
            if len(self._types) < _MAX_TYPES:
                self._types[indexes] = found
        if isinstance(found, RecordError):
            raise RecordError(found.code, found.reason)
        return found

    def _match(self, indexes: tuple[int, ...]) -> ReadMessage | RecordError:
        message = self._schema.message_at(indexes)
        if message is None:
            reason = f"{self._name}: it has no message type at {'.'.join(map(str, indexes))}, which the record names"
            return RecordError(RejectCode.NOT_PROTOBUF, reason)
        try:
            return match_fields(self._schema, message, self._stream, self._extra_fields)
        except RecordError as error:
            return RecordError(error.code, f"{self._name}: {error.reason}")
