"""Decodes the records of a stream, each by the schema that it names: a zero byte, the id, then the record itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamcore.decode.assembly import Rows
from streamcore.decode.avro.decoder import AvroDecoder
from streamcore.decode.avro.framing import CONFLUENT_MAGIC, PrefixFraming, confluent_prefix
from streamcore.decode.avro.schema import AvroSchemaError, parse_avro_schema
from streamcore.decode.avro.schema_match import check_schema, map_fields
from streamcore.decode.json.decoder import JsonDecoder
from streamcore.decode.protobuf.decoder import ProtobufDecoder
from streamcore.decode.protobuf.schema import ProtoSchemaError, parse_proto_schema
from streamcore.decode.record_starts import RecordStarts
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields, RejectCode
from streamcore.decode.scalar.record import check_bytes
from streamcore.decode.scalar.values import RecordError
from streamcore.decode.types import DEAD_SCHEMA, Decoded, Decoder, RawBatch
from streamcore.schema import StreamSchema
from streamcore.schema_registry.schemas import PREFIX_BYTES, RegisteredSchema, SchemaType

#: The most schemas for which a decoder is kept.
_MAX_CACHED = 1_000
#: Behind every record: without an end, Arrow's function fails on some records.
_END = 1 << 30
_PREFIX = "a zero byte and a schema's id of four bytes"


@dataclass(frozen=True, slots=True)
class _Rejected:
    """Why no record of a schema can be decoded."""

    code: RejectCode
    reason: str


#: In place of a schema for records without an id.
_NO_ID = _Rejected(RejectCode.NO_SCHEMA_ID, f"the record does not begin with {_PREFIX}")


@dataclass(frozen=True, slots=True)
class _WithoutPrefix:
    """Decodes what follows the prefix."""

    inner: Decoder

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``."""
        return self.inner.decode(replace(batch, values=pc.binary_slice(batch.values, PREFIX_BYTES, _END)))


class RegistryDecoder:
    """Decodes the records of one stream. It keeps a decoder for each schema; that changes the cost of a batch, never
    its result."""

    def __init__(self, schema: StreamSchema, *, limits: DecodeLimits, extra_fields: ExtraFields) -> None:
        self._schema, self._limits, self._extra_fields = schema, limits, extra_fields
        self._want = map_fields(schema)
        self._decoders: dict[int, Decoder | _Rejected] = {}

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``. Waits for schemas that are new."""
        data = batch.values.cast(pa.large_binary())
        starts = RecordStarts(data)
        if (only := _only_id(data, starts, self._limits.max_record_bytes)) is not None:
            found = self._find_decoders(batch, [only])[only]
            if not isinstance(found, _Rejected):
                return found.decode(replace(batch, values=data))
        ids = _schema_ids(starts, self._limits.max_record_bytes)
        present = [int(n) for n in np.unique(ids)]
        decoders = self._find_decoders(batch, [n for n in present if n >= 0])
        events: list[pa.Table] = []
        event_rows: list[Rows] = []
        dead: list[tuple[int, RejectCode, str]] = []
        for schema_id in present:
            rows: Rows = np.flatnonzero(ids == schema_id).astype(np.int64)
            found = decoders.get(schema_id, _NO_ID)
            if found is _NO_ID:
                dead += [(int(row), *self._reject(data[int(row)].as_py())) for row in rows]
            elif isinstance(found, _Rejected):
                dead += [(int(row), found.code, found.reason) for row in rows]
            else:
                decoded = found.decode(_take(batch, data, rows))
                columns = decoded.dead.to_pydict()
                dead_rows = np.array(columns["row"], np.int64)
                reasons = zip(rows[dead_rows].tolist(), columns["code"], columns["reason"], strict=True)
                dead += [(row, RejectCode(code), reason) for row, code, reason in reasons]
                events.append(decoded.events)
                event_rows.append(np.delete(rows, dead_rows))
        return Decoded(self._in_order(events, event_rows), _dead_table(sorted(dead)))

    def _in_order(self, events: list[pa.Table], rows: list[Rows]) -> pa.Table:
        """Return the events of all schemas in the order of their rows."""
        if not events:
            return self._schema.arrow.empty_table()
        order = np.argsort(np.concatenate(rows), kind="stable")
        return pa.concat_tables(events).take(pa.array(order))

    def _find_decoders(self, batch: RawBatch, ids: list[int]) -> Mapping[int, Decoder | _Rejected]:
        """Return how the records of each schema are decoded in this cut."""
        absent = batch.schemas.absent()
        if new := [n for n in ids if n not in self._decoders and n not in absent]:
            if len(self._decoders) + len(new) > _MAX_CACHED:
                self._decoders.clear()
                new = [n for n in ids if n not in absent]
            found = batch.schemas.find(new)
            self._decoders |= {n: self._make_decoder(schema) for n, schema in found.items() if schema is not None}
            absent = batch.schemas.absent()
        return {n: _unknown(n) if n in absent else self._decoders[n] for n in ids}

    def _make_decoder(self, registered: RegisteredSchema) -> Decoder | _Rejected:
        try:
            match registered.type:
                case SchemaType.AVRO:
                    return self._avro(registered)
                case SchemaType.PROTOBUF:
                    return self._protobuf(registered)
                case SchemaType.JSON:
                    json = JsonDecoder(self._schema, limits=self._limits, extra_fields=self._extra_fields)
                    return _WithoutPrefix(json)
        except RecordError as error:
            return _Rejected(error.code, f"schema {registered.id}: {error.reason}")
        reason = f"schema {registered.id}: its type is {registered.type[:60]!a}; supported are AVRO, PROTOBUF and JSON"
        return _Rejected(RejectCode.UNUSABLE_SCHEMA, reason)

    def _avro(self, registered: RegisteredSchema) -> Decoder:
        """Return the decoder of an Avro schema; raise ``RecordError`` if it cannot be read or does not fit."""
        try:
            kind = parse_avro_schema(registered.text, [reference.text for reference in registered.references])
        except AvroSchemaError as error:
            raise RecordError(RejectCode.UNUSABLE_SCHEMA, str(error)) from error
        check_schema(kind, self._want, self._extra_fields)
        framing = PrefixFraming({confluent_prefix(registered.id): kind}, CONFLUENT_MAGIC, _PREFIX)
        return AvroDecoder(self._schema, framing, self._want, self._limits)

    def _protobuf(self, registered: RegisteredSchema) -> Decoder:
        """Return the decoder of a Protobuf schema; raise ``RecordError`` if it cannot be read."""
        try:
            schema = parse_proto_schema(registered.text, [reference.text for reference in registered.references])
        except ProtoSchemaError as error:
            raise RecordError(RejectCode.UNUSABLE_SCHEMA, str(error)) from error
        return ProtobufDecoder(
            self._schema,
            schema,
            f"schema {registered.id}",
            PREFIX_BYTES,
            limits=self._limits,
            extra_fields=self._extra_fields,
        )

    def _reject(self, record: bytes | None) -> tuple[RejectCode, str]:
        """Return why a record without a schema's id is rejected."""
        try:
            check_bytes(record, self._limits, "one record")
        except RecordError as error:
            return error.code, error.reason
        return _NO_ID.code, _NO_ID.reason


def _unknown(schema_id: int) -> _Rejected:
    return _Rejected(RejectCode.UNKNOWN_SCHEMA, f"the schema registry has no schema {schema_id}")


def _schema_ids(starts: RecordStarts, max_bytes: int) -> npt.NDArray[np.int64]:
    """Return the schema id of each record; -1 for null, for what has no prefix, and for more than ``max_bytes``."""
    ids = np.full(len(starts.lengths), -1, np.int64)
    rows = starts.rows_within(max_bytes)
    rows = rows[starts.lengths[rows] >= PREFIX_BYTES]
    rows = rows[starts.bytes_at(rows, 0) == CONFLUENT_MAGIC[0]]
    number = np.zeros(len(rows), np.int64)
    for place in range(1, PREFIX_BYTES):
        number = (number << 8) | starts.bytes_at(rows, place)
    ids[rows] = number
    return ids


def _only_id(data: pa.LargeBinaryArray, starts: RecordStarts, max_bytes: int) -> int | None:
    """Return the schema id of all records, if they have the same; else None. It is the usual case, and
    costs less than to read each id."""
    rows = starts.rows_within(max_bytes)
    if not len(rows) or len(rows) < len(data):
        return None
    prefix: bytes = data[0].as_py()[:PREFIX_BYTES]
    if len(prefix) < PREFIX_BYTES or prefix[0] != CONFLUENT_MAGIC[0] or not starts.match(rows, prefix).all():
        return None
    return int.from_bytes(prefix[1:], "big")


def _take(batch: RawBatch, data: pa.LargeBinaryArray, rows: Rows) -> RawBatch:
    """Return some rows of a batch."""
    index = pa.array(rows)
    values, partition, offset = data.take(index), batch.partition.take(index), batch.offset.take(index)
    return replace(batch, values=values, partition=partition, offset=offset)


def _dead_table(dead: list[tuple[int, RejectCode, str]]) -> pa.Table:
    rows, codes, reasons = zip(*dead, strict=True) if dead else ((), (), ())
    return pa.table([[*rows], [str(code.value) for code in codes], [*reasons]], schema=DEAD_SCHEMA)
