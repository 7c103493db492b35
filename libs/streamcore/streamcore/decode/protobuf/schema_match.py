"""Matches the fields of a stream with those of a message type: once per schema, not once per record.

Fields are found by their paths, by the names in the schema. No conversion is guessed: ``_FITS`` lists the types that
fit each kind of field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from streamcore.decode.protobuf.schema import SCALARS, ProtoEnum, ProtoField, ProtoMessage, ProtoSchema
from streamcore.decode.reject_codes import ExtraFields, RejectCode
from streamcore.decode.scalar.values import RecordError
from streamcore.schema import Field, Kind, StreamSchema
from streamcore.schema.field_paths import PathTree

TIMESTAMP_MESSAGE = "google.protobuf.Timestamp"
_WHOLE = frozenset(
    {"int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64"}
)
_FITS: dict[Kind, frozenset[str]] = {
    Kind.BOOLEAN: frozenset({"bool"}),
    Kind.LONG: _WHOLE,
    Kind.DOUBLE: _WHOLE | {"float", "double"},
    Kind.DECIMAL: _WHOLE | {"string"},
    Kind.STRING: frozenset({"string", "enum"}),
    Kind.TIMESTAMP: frozenset({"int64", "uint64", "sint64", "fixed64", "sfixed64", "string", TIMESTAMP_MESSAGE}),
}


@dataclass(frozen=True, slots=True)
class ReadValue:
    """A field of a message that is a field of the stream. ``kind``: a scalar type, an enum, or ``TIMESTAMP_MESSAGE``.
    ``presence``: as in ``ProtoField``."""

    field: Field
    kind: str | ProtoEnum
    presence: bool


@dataclass(frozen=True, slots=True)
class ReadMessage:
    """The fields to read of a message, by number."""

    inside: Mapping[int, ReadValue | ReadMessage]


def match_fields(
    schema: ProtoSchema, message: ProtoMessage, stream: StreamSchema, extra_fields: ExtraFields
) -> ReadMessage:
    """Return what to read of a message; raise ``RecordError`` when such messages cannot be the stream's events."""
    names = stream.tree.inside
    if extra_fields is ExtraFields.REJECT:
        for one in message.fields.values():
            if one.name not in names:
                raise RecordError(
                    RejectCode.EXTRA_FIELD,
                    f"Protobuf field {one.name[:60]!a} is not declared by the stream; see its schema",
                )
    return _match(schema, message, stream, stream.tree)


def _match(schema: ProtoSchema, message: ProtoMessage, stream: StreamSchema, tree: PathTree) -> ReadMessage:
    by_name = {one.name: one for one in message.fields.values()}
    inside: dict[int, ReadValue | ReadMessage] = {}
    for name, what in tree.inside.items():
        if (found := by_name.get(name)) is not None:
            inside[found.number] = _match_one(schema, message, found, stream, what)
        elif needed := [field for field in _fields(stream, what) if not field.nullable]:
            raise RecordError(
                RejectCode.MISSING_FIELD,
                f"field {needed[0].label} is missing: the message {message.name[:60]!a} has no field {name};"
                f" a {needed[0].type} is needed",
            )
    return ReadMessage(inside)


def _match_one(
    schema: ProtoSchema, message: ProtoMessage, found: ProtoField, stream: StreamSchema, what: PathTree | int
) -> ReadValue | ReadMessage:
    kind = found.type if found.type in SCALARS else schema.resolve(found.type, message.name)
    shown = f"repeated {found.type}" if found.repeated else found.type
    if isinstance(what, PathTree):
        if isinstance(kind, ProtoMessage) and not found.repeated:
            return _match(schema, kind, stream, what)
        field = _fields(stream, what)[0]
        raise RecordError(
            RejectCode.WRONG_TYPE,
            f"field {field.label}: found Protobuf's {shown} in {found.name} on its path; needed is a message",
        )
    field = stream.fields[what]
    if field.type.is_nested:
        raise RecordError(
            RejectCode.WRONG_TYPE, f"field {field.label}: no {field.type.kind} is read from Protobuf; found {shown}"
        )
    fits = _FITS[field.type.kind]
    name = "enum" if isinstance(kind, ProtoEnum) else kind.name if isinstance(kind, ProtoMessage) else kind
    if found.repeated or name not in fits:
        raise RecordError(
            RejectCode.WRONG_TYPE,
            f"field {field.label}: found Protobuf's {shown}; accepted for a {field.type} is {', '.join(sorted(fits))}",
        )
    if isinstance(kind, ProtoMessage):
        return ReadValue(field, TIMESTAMP_MESSAGE, presence=True)
    assert kind is not None, "it fits"
    return ReadValue(field, kind, found.presence)


def _fields(stream: StreamSchema, what: PathTree | int) -> list[Field]:
    return [*_leaves(stream, what)]


def _leaves(stream: StreamSchema, what: PathTree | int) -> Iterator[Field]:
    if isinstance(what, PathTree):
        for inner in what.inside.values():
            yield from _leaves(stream, inner)
    else:
        yield stream.fields[what]
