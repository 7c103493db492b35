"""Matches the fields of a stream with those of a message type: once per schema, not once per record.

Fields are found by their paths, by the names in the schema. No conversion is guessed: ``FITS`` lists the types that
fit each kind of field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from streamcore.decode.protobuf.schema import SCALARS, ProtoEnum, ProtoField, ProtoMessage, ProtoSchema
from streamcore.decode.reject_codes import ExtraFields, RejectCode
from streamcore.decode.scalar.values import RecordError, inner_field
from streamcore.schema import Field, Kind, StreamSchema
from streamcore.schema.field_paths import PathTree
from streamcore.schema.types import quote_name

TIMESTAMP_MESSAGE = "google.protobuf.Timestamp"
#: The numbers of the fields of a map's entry.
ENTRY_KEY, ENTRY_VALUE = 1, 2
VARINT, FIXED64, PREFIXED, FIXED32 = 0, 1, 2, 5
_FIXED64 = frozenset({"double", "fixed64", "sfixed64"})
_FIXED32 = frozenset({"float", "fixed32", "sfixed32"})
_WHOLE = frozenset(
    {"int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64"}
)
FITS: dict[Kind, frozenset[str]] = {
    Kind.BOOLEAN: frozenset({"bool"}),
    Kind.LONG: _WHOLE,
    Kind.DOUBLE: _WHOLE | {"float", "double"},
    Kind.DECIMAL: _WHOLE | {"string"},
    Kind.STRING: frozenset({"string", "enum"}),
    Kind.TIMESTAMP: frozenset({"int64", "uint64", "sint64", "fixed64", "sfixed64", "string", TIMESTAMP_MESSAGE}),
}
_ACCEPTED = {Kind.ARRAY: "a repeated field", Kind.MAP: "a map", Kind.STRUCT: "a message"}


@dataclass(frozen=True, slots=True)
class ReadValue:
    """A field of a message that is a value. ``name``: of the stream's field, or of the struct's member that it is.
    ``kind``: a scalar type, an enum, or ``TIMESTAMP_MESSAGE``. ``presence``: as in ``ProtoField``."""

    name: str
    kind: str | ProtoEnum
    presence: bool

    @property
    def wire(self) -> int:
        """The wire type."""
        return _wire_type(self.kind)


@dataclass(frozen=True, slots=True)
class ReadMessage:
    """The fields to read of a message, by number. ``name``: of the struct that it is; empty on the way of a path.

    ``oneofs``: the oneofs that fields are read of: by the number of each member its name, and in ``others`` the wire
    types of members that are not read.
    """

    inside: Mapping[int, ReadTarget]
    name: str = ""
    oneofs: Mapping[int, str] = field(default_factory=dict)
    others: Mapping[int, int] = field(default_factory=dict)

    @property
    def wire(self) -> int:
        """The wire type."""
        return PREFIXED


@dataclass(frozen=True, slots=True)
class ReadList:
    """A repeated field that is an array, or, if its items are messages with key and value, a map. ``field``: that of
    the stream, or of a value inside of one."""

    name: str
    item: ReadValue | ReadMessage
    field: Field

    @property
    def is_map(self) -> bool:
        """Whether it is a map."""
        return self.field.type.kind is Kind.MAP

    @property
    def wire(self) -> int:
        """The wire type of an item."""
        return self.item.wire


ReadTarget = ReadValue | ReadMessage | ReadList


def match_fields(
    schema: ProtoSchema, message: ProtoMessage, stream: StreamSchema, extra_fields: ExtraFields
) -> ReadMessage:
    """Return the fields to read of a message; raise ``RecordError`` if such messages cannot be the stream's events."""
    names = stream.tree.inside
    if extra_fields is ExtraFields.REJECT:
        for one in message.fields.values():
            if one.name not in names:
                raise RecordError(
                    RejectCode.EXTRA_FIELD,
                    f"Protobuf field {one.name[:60]!a} is not declared by the stream; see its schema",
                )
    return _Matcher(schema, stream).match_paths(message, stream.tree)


@dataclass(frozen=True, slots=True)
class _Matcher:
    schema: ProtoSchema
    stream: StreamSchema

    def match_paths(self, message: ProtoMessage, tree: PathTree) -> ReadMessage:
        """Match the paths of fields that go through a message, or end in it."""
        by_name = {one.name: one for one in message.fields.values()}
        inside: dict[int, ReadTarget] = {}
        for name, what in tree.inside.items():
            if (found := by_name.get(name)) is not None:
                inside[found.number] = self.match_path(message, found, what)
            elif needed := [one for one in _fields(self.stream, what) if not one.nullable]:
                raise RecordError(
                    RejectCode.MISSING_FIELD,
                    f"field {needed[0].label} is missing: the message {message.name[:60]!a} has no field {name};"
                    f" a {needed[0].type} is needed",
                )
        return self.with_oneofs(message, inside, "")

    def match_path(self, message: ProtoMessage, found: ProtoField, what: PathTree | int) -> ReadTarget:
        if isinstance(what, int):
            one = self.stream.fields[what]
            return self.match_field(message, found, one, one.name)
        kind = self.resolve(message, found.type)
        if isinstance(kind, ProtoMessage) and not found.repeated:
            return self.match_paths(kind, what)
        first = next(_fields_in(self.stream, what))
        raise RecordError(
            RejectCode.WRONG_TYPE,
            f"field {first.label}: found Protobuf's {found.shown} in {found.name} on its path; needed is a message",
        )

    def match_field(self, message: ProtoMessage, found: ProtoField, one: Field, name: str) -> ReadTarget:
        """Match a field of a message with a field of the stream, or a member of a struct, of this name."""
        is_list = one.type.kind in (Kind.ARRAY, Kind.MAP)
        if found.repeated != is_list or bool(found.key) != (one.type.kind is Kind.MAP):
            raise _wrong_type(one, found.shown)
        kind = self.resolve(message, found.type)
        if not is_list:
            return self.match_one(kind, found, one, name, presence=found.presence)
        element = inner_field(one, "[]", one.type.items)
        if one.type.kind is Kind.ARRAY:
            return ReadList(name, self.match_one(kind, found, element, "", presence=True), one)
        value = self.match_one(kind, found, element, "value", presence=False)
        entry = ReadMessage({ENTRY_KEY: ReadValue("key", found.key, presence=False), ENTRY_VALUE: value})
        return ReadList(name, entry, one)

    def match_one(
        self, kind: str | ProtoMessage | ProtoEnum | None, found: ProtoField, one: Field, name: str, *, presence: bool
    ) -> ReadValue | ReadMessage:
        """Match a value that is neither repeated nor a map."""
        if one.type.kind is Kind.STRUCT and isinstance(kind, ProtoMessage):
            by_name = {inner.name: inner for inner in kind.fields.values()}
            inside = {
                by_name[member].number: self.match_field(
                    kind, by_name[member], inner_field(one, f".{quote_name(member)}", of), member
                )
                for member, of in one.type.members
                if member in by_name
            }
            return self.with_oneofs(kind, inside, name)
        shown = "enum" if isinstance(kind, ProtoEnum) else kind.name if isinstance(kind, ProtoMessage) else kind
        if shown is None or shown not in FITS.get(one.type.kind, ()):
            raise _wrong_type(one, found.shown)
        if isinstance(kind, ProtoMessage):
            return ReadValue(name, TIMESTAMP_MESSAGE, presence=True)
        assert kind is not None, "it fits"
        return ReadValue(name, kind, presence)

    def with_oneofs(self, message: ProtoMessage, inside: Mapping[int, ReadTarget], name: str) -> ReadMessage:
        """Return the fields to read of a message, with the other members of oneofs."""
        read = {message.fields[number].oneof for number in inside} - {""}
        oneofs = {number: one.oneof for number, one in message.fields.items() if one.oneof in read}
        others = {
            number: _wire_type(self.resolve(message, message.fields[number].type))
            for number in oneofs
            if number not in inside
        }
        return ReadMessage(inside, name, oneofs, others)

    def resolve(self, message: ProtoMessage, kind: str) -> str | ProtoMessage | ProtoEnum | None:
        return kind if kind in SCALARS else self.schema.resolve(kind, message.name)


def _wire_type(kind: str | ProtoMessage | ProtoEnum | None) -> int:
    """Return the wire type of a type. One that is not there (None) counts as a message."""
    if kind is None or isinstance(kind, ProtoMessage) or kind in ("string", "bytes", TIMESTAMP_MESSAGE):
        return PREFIXED
    return FIXED64 if kind in _FIXED64 else FIXED32 if kind in _FIXED32 else VARINT


def _wrong_type(one: Field, shown: str) -> RecordError:
    accepted = _ACCEPTED.get(one.type.kind) or ", ".join(sorted(FITS[one.type.kind]))
    return RecordError(
        RejectCode.WRONG_TYPE,
        f"field {one.label}: found Protobuf's {shown}; accepted for a {one.type} is {accepted}",
    )


def _fields(stream: StreamSchema, what: PathTree | int) -> list[Field]:
    return [*_fields_in(stream, what)]


def _fields_in(stream: StreamSchema, what: PathTree | int) -> Iterator[Field]:
    if isinstance(what, PathTree):
        for inner in what.inside.values():
            yield from _fields_in(stream, inner)
    else:
        yield stream.fields[what]
