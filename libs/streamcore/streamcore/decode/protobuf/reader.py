"""The reference reader of one Protobuf message, byte by byte: slow, with bounded work and memory for any input.

As all readers of Protobuf do, it takes the last value of a field that occurs more than once, merges messages that do,
takes the member of a oneof that comes last, and the last value of a map's key; it reads repeated numbers packed or not,
and skips a field with another wire type than its own.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from streamcore.decode.protobuf.schema import ProtoEnum
from streamcore.decode.protobuf.schema_match import (
    ENTRY_KEY,
    ENTRY_VALUE,
    FIXED32,
    FIXED64,
    PREFIXED,
    TIMESTAMP_MESSAGE,
    VARINT,
    ReadList,
    ReadMessage,
    ReadValue,
)
from streamcore.decode.reject_codes import DecodeLimits, RejectCode
from streamcore.decode.scalar.record import decode_text
from streamcore.decode.scalar.value_counts import ValueCounter
from streamcore.decode.scalar.values import EpochMilliseconds, Number, ObjectValue, RecordError

_BEGIN_GROUP, _END_GROUP = 3, 4
_WIRE_TYPES = (VARINT, FIXED64, PREFIXED, FIXED32, _BEGIN_GROUP, _END_GROUP)
_MAX_VARINT_BYTES = 10
#: The most groups inside of each other, as in Google's libraries.
_MAX_GROUPS = 100
_FIXED64 = {"double": "<d", "fixed64": "<Q", "sfixed64": "<q"}
_FIXED32 = {"float": "<f", "fixed32": "<I", "sfixed32": "<i"}
#: The most indexes that lead to a message type.
MAX_INDEXES = 32
_FIXED64 = {"double": "<d", "fixed64": "<Q", "sfixed64": "<q"}
_FIXED32 = {"float": "<f", "fixed32": "<I", "sfixed32": "<i"}


class MessageCursor:
    """Reads the bytes of a record from ``position`` to ``end``. Each method advances the position, or raises
    ``RecordError``."""

    def __init__(self, data: bytes, position: int, end: int) -> None:
        self.data, self.position, self.end = data, position, end

    def read_varint(self) -> int:
        """Return the low 64 bits of a variable-length number."""
        number = 0
        for index in range(_MAX_VARINT_BYTES):
            if self.position >= self.end:
                raise not_protobuf(f"a number ends behind byte {self.end}")
            byte = self.data[self.position]
            self.position += 1
            number |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return number & (2**64 - 1)
        raise not_protobuf(f"the number before byte {self.position} does not end")

    def read_bytes(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        if count > self.end - self.position:
            raise not_protobuf(
                f"{count} bytes are announced at byte {self.position} and {self.end - self.position} are left"
            )
        self.position += count
        return self.data[self.position - count : self.position]

    def read_tag(self) -> tuple[int, int]:
        """Return the number and the wire type of the field that follows."""
        tag = self.read_varint()
        number, wire = tag >> 3, tag & 7
        if not 1 <= number < 2**29 or wire not in _WIRE_TYPES:
            raise not_protobuf(f"field {number} of wire type {wire} before byte {self.position}")
        return number, wire

    def read_inner(self) -> MessageCursor:
        """Return a cursor of the message that follows its length, and go behind it."""
        length = self.read_varint()
        begin = self.position
        self.read_bytes(length)
        return MessageCursor(self.data, begin, self.position)

    def skip(self, number: int, wire: int, depth: int = 0) -> None:
        """Skip the value of a field of this number and wire type. ``depth``: of groups around it."""
        if wire == VARINT:
            self.read_varint()
        elif wire == _BEGIN_GROUP and depth < _MAX_GROUPS:
            inner, kind = self.read_tag()
            while kind != _END_GROUP:
                self.skip(inner, kind, depth + 1)
                inner, kind = self.read_tag()
            if inner != number:
                raise not_protobuf(f"group {number} ends as {inner} before byte {self.position}")
        elif wire in (_BEGIN_GROUP, _END_GROUP):
            raise not_protobuf(f"field {number} of wire type {wire} before byte {self.position}")
        else:
            self.read_bytes(8 if wire == FIXED64 else 4 if wire == FIXED32 else self.read_varint())


def read_indexes(cursor: MessageCursor) -> tuple[int, ...]:
    """Read the path of indexes of a message type, which stands between the schema's id and the message.

    A count and the indexes as zigzag numbers; a single zero byte is the first message of the file.
    """
    count = _zigzag(cursor.read_varint())
    if not 0 <= count <= MAX_INDEXES:
        raise not_protobuf(f"it has {count} indexes of its message type; at most {MAX_INDEXES} are accepted")
    return tuple(_zigzag(cursor.read_varint()) for _ in range(count)) or (0,)


#: The values of a message's fields by number: of a message such a mapping, of a list such values.
_Found = dict[int, object]


def read_message(cursor: MessageCursor, want: ReadMessage, limits: DecodeLimits, values: dict[str, object]) -> None:
    """Read a message to its end; add the values of the fields in ``want`` by name, for ``convert_values``."""
    found: _Found = {}
    _merge_message(cursor, want, ValueCounter(limits.max_record_values), found)
    _add_values(want, found, values)


def _merge_message(cursor: MessageCursor, want: ReadMessage, counter: ValueCounter, found: _Found) -> None:
    """Read a message to its end into what an earlier one of the same field had."""
    while cursor.position < cursor.end:
        number, wire = cursor.read_tag()
        target = want.inside.get(number)
        own = want.others.get(number) if target is None else target.wire
        if wire == own and number in want.oneofs:
            for other, name in want.oneofs.items():
                if other != number and name == want.oneofs[number]:
                    found.pop(other, None)
        if isinstance(target, ReadList) and wire in (own, PREFIXED):
            items = found.setdefault(number, [])
            assert isinstance(items, list)
            if wire == own:
                counter.add(target.field, 1)
                items.append(_read_item(cursor, target.item, counter))
            else:
                packed = cursor.read_inner()
                while packed.position < packed.end:
                    counter.add(target.field, 1)
                    items.append(_read_item(packed, target.item, counter))
        elif wire != own or target is None or isinstance(target, ReadList):
            cursor.skip(number, wire)
        elif isinstance(target, ReadMessage) or target.kind == TIMESTAMP_MESSAGE:
            inner = found.setdefault(number, {})
            assert isinstance(inner, dict)
            of = target if isinstance(target, ReadMessage) else _TIMESTAMP
            _merge_message(cursor.read_inner(), of, counter, inner)
        else:
            found[number] = _read_value(cursor, target.kind)


def _read_item(cursor: MessageCursor, item: ReadValue | ReadMessage, counter: ValueCounter) -> object:
    if isinstance(item, ReadValue) and item.kind != TIMESTAMP_MESSAGE:
        return _read_value(cursor, item.kind)
    found: _Found = {}
    _merge_message(cursor.read_inner(), item if isinstance(item, ReadMessage) else _TIMESTAMP, counter, found)
    return found


#: The fields of a ``google.protobuf.Timestamp``.
_SECONDS, _NANOS = 1, 2
_TIMESTAMP = ReadMessage(
    {_SECONDS: ReadValue("seconds", "int64", presence=True), _NANOS: ReadValue("nanos", "int32", presence=True)}
)


def _add_values(want: ReadMessage, found: Mapping[int, object], values: dict[str, object]) -> None:
    """Add the values of a message's fields by name, and the defaults of those that have no presence."""
    for number, target in want.inside.items():
        value = found.get(number)
        if isinstance(target, ReadList):
            assert value is None or isinstance(value, list)
            items = value or []
            if isinstance(target.item, ReadMessage) and target.is_map:
                values[target.name] = _to_map(target.item, items)
            else:
                values[target.name] = [_finish(target.item, item) for item in items]
        elif isinstance(target, ReadMessage) and not target.name:
            if isinstance(value, dict):
                _add_values(target, value, values)
        elif number in found or (isinstance(target, ReadValue) and not target.presence):
            values[target.name] = _finish(target, value)


def _finish(target: ReadValue | ReadMessage, value: object) -> object:
    """Return a value for ``convert_values``; None stands for the default of its type."""
    if isinstance(target, ReadMessage):
        members: dict[str, object] = {}
        assert value is None or isinstance(value, dict)
        _add_values(target, value or {}, members)
        return ObjectValue(tuple(members.items()))
    if target.kind == TIMESTAMP_MESSAGE:
        value = value or {}
        assert isinstance(value, dict)
        seconds, nanos = (int(value.get(number, 0)) for number in (_SECONDS, _NANOS))
        return EpochMilliseconds(seconds * 1_000 + nanos // 1_000_000)
    return _default(target.kind) if value is None else value


def _to_map(entry: ReadMessage, items: list[object]) -> ObjectValue:
    """Return a map of its entries; the last one of a key counts, at the place of the first."""
    key_of, value_of = entry.inside[ENTRY_KEY], entry.inside[ENTRY_VALUE]
    assert not isinstance(key_of, ReadList)
    assert not isinstance(value_of, ReadList)
    found: dict[str, object] = {}
    for item in items:
        assert isinstance(item, dict)
        key = _finish(key_of, item.get(ENTRY_KEY))
        name = ("true" if key else "false") if isinstance(key, bool) else str(key)
        found[name] = _finish(value_of, item.get(ENTRY_VALUE))
    return ObjectValue(tuple(found.items()))


def _default(kind: str | ProtoEnum) -> object:
    if isinstance(kind, ProtoEnum):
        return kind.default
    return {"string": "", "bool": False}.get(kind, Number("0"))


def _read_value(cursor: MessageCursor, kind: str | ProtoEnum) -> object:
    if isinstance(kind, ProtoEnum):
        number = _signed(cursor.read_varint(), 32)
        return kind.values.get(number, str(number))
    if kind in _FIXED64:
        return _number(struct.unpack(_FIXED64[kind], cursor.read_bytes(8))[0])
    if kind in _FIXED32:
        return _number(struct.unpack(_FIXED32[kind], cursor.read_bytes(4))[0])
    if kind == "string":
        return decode_text(cursor.read_bytes(cursor.read_varint()))
    number = cursor.read_varint()
    match kind:
        case "bool":
            return number != 0
        case "sint32":
            return Number(_zigzag(number & (2**32 - 1)))
        case "sint64":
            return Number(_zigzag(number))
        case "uint64":
            return Number(number)
        case "uint32":
            return Number(number & (2**32 - 1))
        case "int32":
            return Number(_signed(number, 32))
    return Number(_signed(number, 64))


def _number(value: float) -> Number:
    return Number(repr(value))


def _zigzag(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def _signed(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def not_protobuf(reason: str) -> RecordError:
    """Return the error for bytes that are no message."""
    return RecordError(RejectCode.NOT_PROTOBUF, f"not Protobuf of its schema: {reason}")
