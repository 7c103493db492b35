"""Random Protobuf schemas with streams that read them, and random messages, by Google's library as the oracle.

A schema is made twice from one description: as text, which the product reads, and as a descriptor, which Google's
library reads. Messages are written by that library, and their fields are then put in another order, repeated, packed
or not, and mixed with unknown ones.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from streamcore.schema import StreamSchema
from streamcore.wire.map_entries import KEY, VALUE
from tests.harness.decode.random_avro import varint

_F = descriptor_pb2.FieldDescriptorProto
_WHOLE = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64")
_STREAM = dict.fromkeys(_WHOLE, "long") | {"double": "double", "float": "double", "bool": "boolean", "string": "string"}
_SYMBOLS = {"ZERO": 0, "ONE": 1, "FIVE": 5, "MINUS": -1}
_TEXTS = ("", "a", "Zürich", "日本", "x" * 70, "0")
_STAMP = "google.protobuf.Timestamp"
_FIXED64, _FIXED32 = ("double", "fixed64", "sfixed64"), ("float", "fixed32", "sfixed32")
VARINT, FIXED64, PREFIXED, FIXED32 = 0, 1, 2, 5


@dataclass
class Member:
    """A field of a message. ``label``: singular, optional, repeated, map or oneof. ``kind``: a scalar type, ``enum``,
    the name of a timestamp, or a message."""

    name: str
    number: int
    kind: str | Message
    label: str
    key: str = ""
    is_read: bool = True

    @property
    def is_message(self) -> bool:
        """Whether values are messages, those of times included."""
        return isinstance(self.kind, Message) or self.kind == _STAMP

    @property
    def stream(self) -> str:
        """The type of the stream's field that reads it."""
        one = self.kind.stream if isinstance(self.kind, Message) else _one_type(self.kind)
        return {"repeated": f"array<{one}>", "map": f"map<string,{one}>"}.get(self.label, one)


@dataclass
class Message:
    """A message with its fields."""

    name: str
    members: list[Member] = field(default_factory=list)

    @property
    def stream(self) -> str:
        """The type of the struct that reads it, which has a member that the message lacks."""
        kinds = [f"{one.name}:{one.stream}" for one in self.members if one.is_read] + ["absent:array<long>"]
        return f"struct<{', '.join(kinds)}>"


def _one_type(kind: str) -> str:
    return {"enum": "string", _STAMP: "timestamp"}.get(kind) or _STREAM[kind]


@dataclass(frozen=True)
class ProtoCase:
    """A schema as text, a stream that reads some of its fields, and Google's class of its message."""

    text: str
    stream: StreamSchema
    message: Message
    google: Any

    def row(self, record: bytes) -> tuple[Any, ...]:
        """Return the stream's row of a message by Google's library, which raises if it is none."""
        found = self.google.FromString(record)
        values = {one.name: _value(found, one) for one in self.message.members if one.is_read}
        return tuple(values.get(name) for name in self.stream.names)

    def write(self, chance: random.Random) -> bytes:
        """Return a random message."""
        parts = [self.write_plain(chance) for _ in range(1 if chance.random() < 0.8 else 2)]
        fields = [one for part in parts for one in _shake(part, self.message, chance)]
        if chance.random() < 0.2:
            chance.shuffle(fields)
        return b"".join(fields)

    def write_plain(self, chance: random.Random) -> bytes:
        """Return a random message as Google's library writes it."""
        plain: bytes = self._fill(chance).SerializePartialToString(deterministic=True)
        return plain

    def _fill(self, chance: random.Random) -> Any:
        found = self.google(at=chance.randrange(10**12))
        _fill(found, self.message, chance)
        return found


def make_case(seed: int) -> ProtoCase:
    """Return a random case."""
    return _Maker(random.Random(seed)).case(seed)


def _value(message: Any, one: Member) -> Any:
    """Return what a stream has of a field of Google's message."""
    found = getattr(message, one.name)
    if one.label == "repeated":
        return [_single(item, one.kind) for item in found]
    if one.label == "map":
        # The order is that of the record; Google's maps have none, so both are compared by key.
        return [{KEY: _key(key), VALUE: _single(found[key], one.kind)} for key in found]
    if message.DESCRIPTOR.fields_by_name[one.name].has_presence and not message.HasField(one.name):
        return None
    return _single(found, one.kind)


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _single(value: Any, kind: str | Message) -> Any:
    if isinstance(kind, Message):
        return {one.name: _value(value, one) for one in kind.members if one.is_read} | {"absent": None}
    if kind == _STAMP:
        return value.seconds * 1_000 + value.nanos // 1_000_000
    if kind == "enum":
        return {number: name for name, number in _SYMBOLS.items()}.get(value, str(value))
    return value


def by_key(value: Any) -> Any:
    """Return a value with the entries of its maps in the order of their keys."""
    if isinstance(value, dict):
        return {name: by_key(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [by_key(item) for item in value]
        is_map = bool(items) and isinstance(items[0], dict) and KEY in items[0]
        return sorted(items, key=lambda entry: str(entry[KEY])) if is_map else items
    return value


@dataclass
class _Maker:
    chance: random.Random

    def __post_init__(self) -> None:
        self.names: Iterator[int] = itertools.count()
        self.proto3 = self.chance.random() < 0.6

    def case(self, seed: int) -> ProtoCase:
        message = self.message(self.chance.choice([1, 2, 3, 4]), "Event")
        at = Member("at", 2_000, "int64", "singular")
        message.members.append(at)
        syntax = "proto3" if self.proto3 else "proto2"
        text = f'syntax = "{syntax}"; package p; import "google/protobuf/timestamp.proto";\n'
        text += f"enum E {{ {' '.join(f'{name} = {number};' for name, number in _SYMBOLS.items())} }}\n"
        text += self.text(message)
        fields: dict[str, object] = {one.name: one.stream for one in message.members if one.is_read}
        fields = {**fields, "at": "timestamp not null", "absent": "map<string,string>"}
        stream = StreamSchema.parse({"name": "s", "event_time": "at", "keys": [[]], "fields": fields})
        return ProtoCase(text, stream, message, self.google(message, syntax, seed))

    def message(self, depth: int, name: str = "") -> Message:
        """Return a message of at most this depth."""
        found, chance = Message(name or f"M{next(self.names)}"), self.chance
        numbers = chance.sample([*range(1, 12), 15, 16, 1_000, 2**29 - 1], chance.randrange(2, 8))
        if not name or chance.random() < 0.8:
            numbers.sort()
        for n, number in enumerate(numbers):
            kind: str | Message = self.message(depth - 1) if depth > 1 and chance.random() < 0.4 else self.scalar()
            label = chance.choice(["singular", "singular", "optional", "repeated", "repeated", "map", "oneof"])
            key = chance.choice(["string", "string", "int64", "bool", "sint32", "fixed64"]) if label == "map" else ""
            found.members.append(Member(f"f{n}", number, kind, label, key, chance.random() < 0.75))
        return found

    def scalar(self) -> str:
        return self.chance.choice([*_STREAM, "string", "enum", _STAMP])

    def text(self, message: Message) -> str:
        """Return the text of a message."""
        out, oneof = f"message {message.name} {{\n", ""
        for one in message.members:
            if isinstance(one.kind, Message):
                out += self.text(one.kind)
            kind = one.kind.name if isinstance(one.kind, Message) else "E" if one.kind == "enum" else one.kind
            if one.label == "oneof":
                oneof += f"  {kind} {one.name} = {one.number};\n"
                continue
            label = {"repeated": "repeated ", "optional": "optional ", "singular": "" if self.proto3 else "optional "}
            whole = f"map<{one.key}, {kind}> " if one.label == "map" else f"{label[one.label]}{kind} "
            out += f"  {whole}{one.name} = {one.number};\n"
        return f"{out}  oneof one {{\n{oneof}  }}\n}}\n" if oneof else out + "}\n"

    def google(self, message: Message, syntax: str, seed: int) -> Any:
        file = descriptor_pb2.FileDescriptorProto(name=f"p{seed}.proto", package="p", syntax=syntax)
        file.dependency.append(timestamp_pb2.DESCRIPTOR.name)
        # In a file of proto3: numbers of an enum of proto2 that have no name are unknown fields in Google's library.
        enums = descriptor_pb2.FileDescriptorProto(name=f"e{seed}.proto", package="p", syntax="proto3")
        file.dependency.append(enums.name)
        enum = enums.enum_type.add(name="E")
        for name, number in _SYMBOLS.items():
            enum.value.add(name=name, number=number)
        self.describe(message, file.message_type.add(name=message.name), f".p.{message.name}")
        pool = descriptor_pool.DescriptorPool()
        pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
        pool.AddSerializedFile(enums.SerializeToString())
        pool.AddSerializedFile(file.SerializeToString())
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"p.{message.name}"))

    def describe(self, message: Message, into: Any, path: str) -> None:
        oneof = any(one.label == "oneof" for one in message.members)
        if oneof:
            into.oneof_decl.add(name="one")
        for one in message.members:
            if isinstance(one.kind, Message):
                self.describe(one.kind, into.nested_type.add(name=one.kind.name), f"{path}.{one.kind.name}")
            added = into.field.add(name=one.name, number=one.number)
            if one.label == "map":
                entry = into.nested_type.add(name=f"{one.name.capitalize()}Entry")
                entry.options.map_entry = True
                key = entry.field.add(name="key", number=1, label=_F.LABEL_OPTIONAL)
                _set_kind(key, one.key, path)
                _set_kind(entry.field.add(name="value", number=2, label=_F.LABEL_OPTIONAL), one.kind, path)
                added.type, added.type_name = _F.TYPE_MESSAGE, f"{path}.{entry.name}"
            else:
                _set_kind(added, one.kind, path)
            added.label = _F.LABEL_REPEATED if one.label in ("repeated", "map") else _F.LABEL_OPTIONAL
            if one.label == "oneof":
                added.oneof_index = 0
        for one, added in zip(message.members, into.field, strict=True):
            if one.label == "optional" and self.proto3:  # as a oneof of its own, behind the others
                added.proto3_optional, added.oneof_index = True, len(into.oneof_decl)
                into.oneof_decl.add(name=f"_{one.name}")


def _set_kind(into: Any, kind: str | Message, path: str) -> None:
    if isinstance(kind, Message):
        into.type, into.type_name = _F.TYPE_MESSAGE, f"{path}.{kind.name}"
    elif kind == "enum":
        into.type, into.type_name = _F.TYPE_ENUM, ".p.E"
    elif kind == _STAMP:
        into.type, into.type_name = _F.TYPE_MESSAGE, f".{_STAMP}"
    else:
        into.type = getattr(_F, f"TYPE_{kind.upper()}")


def _fill(message: Any, of: Message, chance: random.Random) -> None:
    for one in of.members:
        if one.name == "at" or chance.random() < 0.25:
            continue
        found = getattr(message, one.name)
        if one.label == "repeated":
            for _ in range(chance.choice([0, 1, 2, 5])):
                if one.is_message:
                    _fill_one(found.add(), one.kind, chance)
                else:
                    found.append(_scalar(str(one.kind), chance))
        elif one.label == "map":
            for _ in range(chance.choice([0, 1, 3])):
                key = _scalar(one.key, chance)
                if one.is_message:
                    _fill_one(found[key], one.kind, chance)
                else:
                    found[key] = _scalar(str(one.kind), chance)
        elif one.is_message:
            _fill_one(found, one.kind, chance)
        else:
            setattr(message, one.name, _scalar(str(one.kind), chance))


def _fill_one(message: Any, kind: str | Message, chance: random.Random) -> None:
    """Fill a message, or a timestamp."""
    message.SetInParent()
    if isinstance(kind, Message):
        _fill(message, kind, chance)
    else:
        message.seconds, message.nanos = chance.choice([0, 1, 10**9, 10**11]), chance.choice([0, 1, 999_999_999])


def _scalar(kind: str, chance: random.Random) -> Any:
    if kind == "string":
        return chance.choice(_TEXTS)
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "enum":
        return chance.choice([*_SYMBOLS.values()])
    if kind == "double":
        return chance.choice([0.1, -0.0, 0.0, 1e300, chance.random()])
    if kind == "float":
        return chance.choice([0.5, -0.0, 0.0, 1.0000001192092896])
    bits = 32 if kind.endswith("32") else 63
    lowest = 0 if kind in ("uint32", "uint64", "fixed32", "fixed64") else -(2 ** (31 if bits == 32 else 63))
    highest = 2**bits - 1 if lowest == 0 or bits == 63 else 2**31 - 1
    return chance.choice([0, 1, 127, 128, lowest, highest, chance.randrange(lowest, highest)])


# --- other bytes of the same message ---------------------------------------------------------------------------------


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number, and the position behind it."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, wire type and content of the fields of a message; ``ValueError`` if it has groups."""
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        begin, wire = at, tag & 7
        if wire == VARINT:
            _, at = read_varint(data, at)
        elif wire == PREFIXED:
            length, begin = read_varint(data, at)
            at = begin + length
        elif wire in (FIXED64, FIXED32):
            at += 8 if wire == FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire}")
        yield tag >> 3, wire, data[begin:at]


def field_bytes(number: int, wire: int, content: bytes) -> bytes:
    """Return a field."""
    return varint(number << 3 | wire) + (varint(len(content)) if wire == PREFIXED else b"") + content


def _shake(data: bytes, message: Message, chance: random.Random) -> Iterator[bytes]:
    """Yield the fields of a message in other forms that mean the same, and fields that mean nothing."""
    by_number = {one.number: one for one in message.members}
    for number, wire, content in _fields(data):
        one = by_number[number]
        packs = one.label == "repeated" and isinstance(one.kind, str) and one.kind not in ("string", _STAMP)
        if packs and wire == PREFIXED and chance.random() < 0.5:
            yield from _unpack(number, str(one.kind), content)
        elif packs and wire != PREFIXED and chance.random() < 0.5:
            yield field_bytes(number, PREFIXED, content)
        elif isinstance(one.kind, Message) and one.label != "map":
            inner = [*_shake(content, one.kind, chance)]
            yield field_bytes(number, PREFIXED, b"".join(inner))
        else:
            yield field_bytes(number, wire, content)
        if chance.random() < 0.05:
            yield chance.choice(_UNKNOWN)
        if chance.random() < 0.02:  # of another wire type
            other, noise = (FIXED64, b"12345678") if wire == FIXED32 else (FIXED32, b"1234")
            yield field_bytes(number, other, noise)


#: The begin of a group of a field that no schema has.
GROUP = field_bytes(77, 3, b"")
_UNKNOWN = (
    field_bytes(77, VARINT, b"\xff\x01"),
    field_bytes(13, PREFIXED, b"unknown"),
    field_bytes(1_500, FIXED64, b"12345678"),
    GROUP + field_bytes(1, VARINT, b"\x05") + field_bytes(2, 3, b"") + field_bytes(2, 4, b"") + field_bytes(77, 4, b""),
)


def without_other_fields_in_entries(data: bytes, message: Message) -> bytes:
    """Return a message without the fields of maps' entries that are neither key nor value.

    Google's library for Python takes an entry with such a field for an unknown field as a whole; others skip the field.
    """
    by_number, out = {one.number: one for one in message.members}, b""
    for part in _fields(data):
        number, wire, content = part
        one = by_number.get(number)
        if one is not None and wire == PREFIXED and one.label == "map":
            wires = {1: _wire(one.key), 2: _wire(one.kind)}
            kept = [inner for inner in _fields(content) if wires.get(inner[0]) == inner[1]]
            out += field_bytes(number, wire, b"".join(_within(inner, 2, one.kind) for inner in kept))
        elif one is not None and wire == PREFIXED:
            out += _within(part, number, one.kind)
        else:
            out += field_bytes(*part)
    return out


def _within(part: tuple[int, int, bytes], number: int, kind: str | Message) -> bytes:
    """Return a field, whose message, if it has this number and is one, is cleaned."""
    if part[0] == number and isinstance(kind, Message):
        return field_bytes(number, PREFIXED, without_other_fields_in_entries(part[2], kind))
    return field_bytes(*part)


def _wire(kind: str | Message) -> int:
    if isinstance(kind, Message) or kind in ("string", _STAMP):
        return PREFIXED
    return FIXED64 if kind in _FIXED64 else FIXED32 if kind in _FIXED32 else VARINT


def _unpack(number: int, kind: str, content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        begin = at
        wire = _wire(kind)
        if wire == FIXED64:
            at += 8
        elif wire == FIXED32:
            at += 4
        else:
            _, at = read_varint(content, at)
        yield field_bytes(number, wire, content[begin:at])
