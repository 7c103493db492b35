"""Looks at a sample whose records have schemas: Avro, or those of a schema registry.

The schemas say which fields there are, the records how often each is there. Avro and Protobuf are read by the decoder
of an app, as a stream of all fields that have a type. Of records with a JSON Schema the values are looked at, as of
others of JSON; the schema says what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from headgate.errors import InputError
from headgate.records.decoder import EventDecoder
from headgate.streams.envelopes import find_envelope
from headgate.streams.observed_fields import Observation, observe
from headgate.streams.sample import SampleRecord
from headgate.streams.schema_shapes import avro_shape, json_shape, protobuf_shape
from headgate.streams.shapes import Shape, leaves, merge
from streamcore.decode.avro.framing import Framing
from streamcore.decode.avro.schema import RecordOf
from streamcore.decode.avro.schema_match import FieldMapping, type_name
from streamcore.decode.formats import Avro, InputFormat, Registry, make_framing
from streamcore.decode.protobuf.reader import MessageCursor, read_indexes
from streamcore.decode.registry.record_ids import SCHEMA_ID_HEADER, identify
from streamcore.decode.registry.registered_types import RejectedSchema, read_avro, read_protobuf
from streamcore.decode.registry.schema_names import schema_title
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields, RejectCode
from streamcore.decode.scalar import RejectedRecord, StreamRecord
from streamcore.decode.scalar.values import Number, ObjectValue, RecordError
from streamcore.schema import MAX_FIELDS, Envelope, Kind, StreamSchema, Type
from streamcore.schema.field_paths import Path, format_path
from streamcore.schema_registry.schemas import PREFIX_BYTES, RegisteredSchema, SchemaId, SchemaLookup, SchemaType
from streamcore.timestamps import to_text

_RECEIVED: Final = "received"
_HEAD: Final = {
    "name": "sample",
    "event_time": _RECEIVED,
    "keys": [[]],
}
_TIME: Final = {"type": "timestamp not null", "from": "_kafka.timestamp"}
_LIMITS: Final = DecodeLimits()


@dataclass(frozen=True, slots=True)
class _Written:
    """The schema with which a record is written. ``schema``: its name in messages; ``kind``: the record's kind."""

    schema: str
    kind: str
    shape: Shape
    is_json: bool = False


def observe_written(
    records: Sequence[SampleRecord], written: InputFormat, schemas: SchemaLookup, now_ms: int
) -> Observation:
    """Look at all records of a topic in this format. The tombstones of Debezium are left out.

    Raises ``InputError`` for a format without schemas, and if the registry does not answer.
    """
    finder = _finder(written, schemas)
    found, shape = Observation(), Shape()
    binary, json, tombstones = list[SampleRecord](), list[SampleRecord](), list[SampleRecord]()
    for record in records:
        if record.record.value is None:
            tombstones.append(record)
            continue
        try:
            one, value = finder.find(record.record)
        except RecordError as error:
            found.bad.append((record.place, error.reason))
            continue
        if not found.schemas[one.schema]:
            shape = merge(shape, one.shape)
        found.schemas[one.schema] += 1
        found.kinds[one.kind] += 1
        if one.is_json:
            json.append(replace(record, record=replace(record.record, value=value[PREFIX_BYTES:])))
        else:
            binary.append(record)
    found.envelope = find_envelope(json) if json else _envelope(shape)
    if found.envelope is not Envelope.DEBEZIUM:
        found.bad += [(one.place, "the record has no value") for one in tombstones]
    fields = [*leaves(shape)]
    for path, one_shape in fields:
        if (observed := found.field_at(path)) is not None:
            observed.shape = one_shape
    observe(json, found)
    timed = [_with_time(one, now_ms) for one in binary]
    _observe_binary(found, timed, EventDecoder(_stream(found, fields), now_ms, written, schemas))
    return found


def _with_time(record: SampleRecord, now_ms: int) -> SampleRecord:
    """Return the record with a timestamp, which one of a file has not."""
    if record.record.topic is not None:
        return record
    return replace(record, record=replace(record.record, topic="sample", timestamp_ms=now_ms))


def _envelope(shape: Shape) -> Envelope | None:
    names = shape.members.keys()
    is_change = {"op", "source"} <= names and bool({"before", "after"} & names)
    return Envelope.DEBEZIUM if is_change else None


def _stream(found: Observation, fields: Sequence[tuple[Path, Shape]]) -> StreamSchema:
    """Return the stream of all fields that have a type."""
    typed = [(path, kind) for path, one in fields if (kind := one.type()) is not None][: MAX_FIELDS - 1]
    entries = {f"f{n}": {"type": str(kind), "from": format_path(path)} for n, (path, kind) in enumerate(typed)}
    envelope = {} if found.envelope is None else {"envelope": str(found.envelope)}
    return StreamSchema.parse({**_HEAD, **envelope, "fields": {**entries, _RECEIVED: _TIME}})


def _observe_binary(found: Observation, records: Sequence[SampleRecord], decode: EventDecoder) -> None:
    stream = decode.schema
    decoded = decode.decode_each([one.record for one in records]) if records else []
    for record, row in zip(records, decoded, strict=True):
        if isinstance(row, RejectedRecord):
            found.bad.append((record.place, row.reason))
        elif isinstance(row, tuple):
            found.objects += 1
            for one, value in zip(stream.fields, row, strict=True):
                if one.name != _RECEIVED and value is not None and one.location in found.fields:
                    found.fields[one.location].add(_as_json(value, one.type))


def _as_json(value: object, kind: Type) -> object:
    """Return a decoded value as the parser of JSON would have it. Of arrays and objects only their size counts."""
    match kind.kind:
        case Kind.LONG | Kind.DOUBLE:
            return Number(repr(value))
        case Kind.DECIMAL:
            assert isinstance(value, int)
            digits = f"{abs(value):0{kind.scale + 1}d}"
            whole = len(digits) - kind.scale
            return Number("-" * (value < 0) + digits[:whole] + ("." + digits[whole:] if kind.scale else ""))
        case Kind.TIMESTAMP:
            assert isinstance(value, int)
            return to_text(value)
        case Kind.ARRAY:
            assert isinstance(value, list)
            return [None] * len(value)
        case Kind.STRUCT | Kind.MAP:
            return ObjectValue(())
    return value


# --- the schemas of records -----------------------------------------------------------------------------------------


class _Finder:
    """Finds the schema with which a record is written; raises ``RecordError`` if that cannot be read."""

    def find(self, record: StreamRecord) -> tuple[_Written, bytes]:
        """Return the schema of a record that is not null, and its value, which begins with the schema's id if that is
        one of a registry."""
        raise NotImplementedError


def _finder(written: InputFormat, schemas: SchemaLookup) -> _Finder:
    match written:
        case Registry():
            return _RegistryFinder(schemas, written.in_header)
        case Avro():
            stub = StreamSchema.parse({**_HEAD, "fields": {_RECEIVED: _TIME}})
            return _AvroFinder(make_framing(written.framing, stub, FieldMapping({}), ExtraFields.IGNORE))
    raise InputError("records of text have no schema: a document is inferred from JSON, Avro, or a schema registry")


@dataclass(slots=True)
class _AvroFinder(_Finder):
    framing: Framing
    found: dict[int, tuple[object, _Written]] = field(default_factory=dict)

    def find(self, record: StreamRecord) -> tuple[_Written, bytes]:
        value = record.value or b""
        kind = self.framing.split(value, _LIMITS).kind
        if id(kind) not in self.found:
            number = len(self.found) + 1
            self.found[id(kind)] = (kind, _avro(kind, "the schema" if number == 1 else f"schema {number}"))
        return self.found[id(kind)][1], value


def _avro(kind: object, schema: str) -> _Written:
    if not isinstance(kind, RecordOf):
        raise RecordError(RejectCode.WRONG_TYPE, f"{schema} is a {type_name(kind)}; accepted is a record")  # type: ignore[arg-type]
    return _Written(schema, kind.full_name, avro_shape(kind, schema))


@dataclass(slots=True)
class _RegistryFinder(_Finder):
    schemas: SchemaLookup
    in_header: bool
    registered: dict[SchemaId, RegisteredSchema | None] = field(default_factory=dict)
    found: dict[tuple[SchemaId, tuple[int, ...]], _Written | RecordError] = field(default_factory=dict)

    def find(self, record: StreamRecord) -> tuple[_Written, bytes]:
        header = record.headers.get(SCHEMA_ID_HEADER) if self.in_header else None
        schema_id, value = identify(record.value or b"", header)
        if isinstance(schema_id, RejectedSchema):
            raise RecordError(schema_id.code, schema_id.reason)
        if schema_id not in self.registered:
            self.registered |= self.schemas.find([schema_id])
        schema = self.registered[schema_id]
        if schema is None:
            raise RecordError(RejectCode.UNKNOWN_SCHEMA, f"the schema registry has no schema {schema_id}")
        indexes: tuple[int, ...] = ()
        if schema.type == SchemaType.PROTOBUF:
            indexes = read_indexes(MessageCursor(value, PREFIX_BYTES, len(value)))
        key = schema_id, indexes
        if key not in self.found:
            self.found[key] = _registered(schema, indexes)
        found = self.found[key]
        if isinstance(found, RecordError):
            raise RecordError(found.code, found.reason)
        return found, value


def _registered(schema: RegisteredSchema, indexes: tuple[int, ...]) -> _Written | RecordError:
    name = f"schema {schema.id}"
    try:
        match schema.type:
            case SchemaType.AVRO:
                return _avro(read_avro(schema), name)
            case SchemaType.PROTOBUF:
                types = read_protobuf(schema)
                message = types.message_at(indexes)
                if message is None:
                    reason = f"{name} has no message type at {'.'.join(map(str, indexes))}, which the record names"
                    return RecordError(RejectCode.NOT_PROTOBUF, reason)
                return _Written(_with_message(name, indexes), message.name, protobuf_shape(types, message, name))
            case SchemaType.JSON:
                return _Written(name, schema_title(schema.text) or "", json_shape(schema, name), is_json=True)
    except RecordError as error:
        return RecordError(error.code, error.reason if name in error.reason else f"{name}: {error.reason}")
    return RecordError(RejectCode.UNUSABLE_SCHEMA, f"{name} is of type {schema.type}; read are {', '.join(SchemaType)}")


def _with_message(schema: str, indexes: tuple[int, ...]) -> str:
    return schema if not any(indexes) else f"{schema}, message {'.'.join(map(str, indexes))}"
