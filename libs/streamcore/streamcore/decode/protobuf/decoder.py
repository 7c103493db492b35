"""Decodes the Protobuf records of one schema of a registry: the message type's indexes, then the message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamcore.decode.assembly import BatchRecords, DecodedPart, Rows, assemble_events, decode_by_reference
from streamcore.decode.protobuf.reader import MessageCursor, read_indexes, read_message
from streamcore.decode.protobuf.schema import ProtoSchema
from streamcore.decode.protobuf.schema_match import ReadMessage, match_fields
from streamcore.decode.protobuf.steps import make_steps
from streamcore.decode.record_starts import RecordStarts
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields, RejectCode
from streamcore.decode.scalar.record import RejectedRecord, check_bytes, convert_values
from streamcore.decode.scalar.values import Physical, RecordError
from streamcore.decode.types import Decoded, RawBatch
from streamcore.schema import StreamSchema
from streamcore.timestamps import load_zone

if TYPE_CHECKING:
    from streamcore.decode.walk.binary_decoder import BinaryWalk

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
        self._zone = load_zone(stream.zone)
        self._heads: dict[bytes, _Head] = {}
        self._types: dict[tuple[int, ...], ReadMessage | RecordError] = {}

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``."""
        records, parts = BatchRecords.from_batch(batch), list[DecodedPart]()
        starts = RecordStarts(records.data)
        waiting = starts.rows_within(self._limits.max_record_bytes)
        undecoded = np.ones(len(batch), dtype=np.bool_)
        for _ in range(_MAX_HEADS):
            if len(waiting) < _MIN_ROWS:
                break
            head = self._head(records.record_bytes(int(waiting[0])) or b"")
            matched = starts.match(waiting, head.begin)
            if head.walk is not None:
                self._walk(head, records, waiting[matched], undecoded, parts)
            waiting = waiting[~matched]
        dead = decode_by_reference(self._stream, records, np.flatnonzero(undecoded), self.decode_one, parts)
        return Decoded(assemble_events(self._stream, batch, parts), dead)

    def _walk(
        self, head: _Head, records: BatchRecords, rows: Rows, undecoded: npt.NDArray[np.bool_], parts: list[DecodedPart]
    ) -> None:
        """Decode the records that begin with a head into ``parts``; clear ``undecoded`` of those that are sure."""
        assert head.walk is not None
        data = records.data if len(rows) == len(records.data) else records.data.take(pa.array(rows))
        walked = head.walk.decode(data, len(head.begin), records.clock_ms)
        if walked.sure.any():
            parts.append(DecodedPart(rows[walked.sure], walked.columns))
            undecoded[rows[walked.sure]] = False

    def _head(self, record: bytes) -> _Head:
        """Return the head of a record; if its message type cannot be walked, one without a walk."""
        cursor = MessageCursor(record, min(self._prefix_bytes, len(record)), len(record))
        try:
            want = self.message_type(read_indexes(cursor))
        except RecordError:
            return _Head(record)
        begin = record[: cursor.position]
        if begin not in self._heads:
            from streamcore.decode.walk.binary_decoder import BinaryWalk  # loads the compiler

            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            steps = make_steps(self._stream, want)
            self._heads[begin] = _Head(begin, BinaryWalk.of_protobuf(self._stream, self._limits, steps))
        return self._heads[begin]

    def decode_one(self, record: bytes | None, clock_ms: int) -> tuple[Physical, ...] | RejectedRecord:
        """Decode one record (the reference): return the values of the stream's fields, in order, or the rejection."""
        try:
            data = check_bytes(record, self._limits, "one Protobuf record")
            cursor = MessageCursor(data, self._prefix_bytes, len(data))
            want = self.message_type(read_indexes(cursor))
            values: dict[str, object] = {}
            read_message(cursor, want, values)
            return convert_values(self._stream, values, clock_ms=clock_ms, zone=self._zone, limits=self._limits)
        except RecordError as error:
            return RejectedRecord(error.code, error.reason)

    def message_type(self, indexes: tuple[int, ...]) -> ReadMessage:
        """Return what to read of the message type at these indexes; raise ``RecordError`` if it does not fit."""
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
