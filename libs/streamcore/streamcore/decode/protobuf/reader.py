"""The reference reader of one Protobuf message, byte by byte: slow, with bounded work and memory for any input.

As all readers of Protobuf do, it takes the last value of a field that occurs more than once, merges messages that do,
and skips a field with another wire type than its own.
"""

from __future__ import annotations

import struct

from streamcore.decode.protobuf.schema import ProtoEnum
from streamcore.decode.protobuf.schema_match import TIMESTAMP_MESSAGE, ReadMessage, ReadValue
from streamcore.decode.reject_codes import RejectCode
from streamcore.decode.scalar.record import decode_text
from streamcore.decode.scalar.values import EpochMilliseconds, Number, RecordError

VARINT, FIXED64, PREFIXED, FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10
#: The most indexes that lead to a message type.
MAX_INDEXES = 32
_FIXED64 = {"double": "<d", "fixed64": "<Q", "sfixed64": "<q"}
_FIXED32 = {"float": "<f", "fixed32": "<I", "sfixed32": "<i"}


def wire_type(kind: str | ProtoEnum) -> int:
    """Return the wire type of a type."""
    if kind in _FIXED64:
        return FIXED64
    if kind in _FIXED32:
        return FIXED32
    return PREFIXED if kind in ("string", "bytes", TIMESTAMP_MESSAGE) else VARINT


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
        if not 1 <= number < 2**29 or wire not in (VARINT, FIXED64, PREFIXED, FIXED32):
            raise not_protobuf(f"field {number} of wire type {wire} before byte {self.position}")
        return number, wire

    def skip(self, wire: int) -> None:
        """Skip a value."""
        if wire == VARINT:
            self.read_varint()
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


def read_message(cursor: MessageCursor, want: ReadMessage, values: dict[str, object]) -> None:
    """Read a message to its end; add the values of the fields in ``want`` by name, for ``convert_values``."""
    _add_defaults(want, values)
    while cursor.position < cursor.end:
        number, wire = cursor.read_tag()
        target = want.inside.get(number)
        if isinstance(target, ReadMessage) and wire == PREFIXED:
            read_message(_inner(cursor), target, values)
        elif isinstance(target, ReadValue) and wire == wire_type(target.kind):
            values[target.field.name] = _read_value(cursor, target)
        else:
            cursor.skip(wire)


def _inner(cursor: MessageCursor) -> MessageCursor:
    length = cursor.read_varint()
    begin = cursor.position
    if length > cursor.end - begin:
        raise not_protobuf(f"{length} bytes are announced at byte {begin} and {cursor.end - begin} are left")
    cursor.position += length
    return MessageCursor(cursor.data, begin, begin + length)


def _add_defaults(want: ReadMessage, values: dict[str, object]) -> None:
    """Add the values of fields without presence that a message does not have; those of earlier messages stay."""
    for target in want.inside.values():
        if isinstance(target, ReadValue) and not target.presence:
            values.setdefault(target.field.name, _default(target.kind))


def _default(kind: str | ProtoEnum) -> object:
    if isinstance(kind, ProtoEnum):
        return kind.values.get(0, "0")
    return {"string": "", "bool": False}.get(kind, Number("0"))


def _read_value(cursor: MessageCursor, target: ReadValue) -> object:
    kind = target.kind
    if isinstance(kind, ProtoEnum):
        number = _signed(cursor.read_varint(), 32)
        return kind.values.get(number, str(number))
    if kind in _FIXED64:
        return _number(struct.unpack(_FIXED64[kind], cursor.read_bytes(8))[0])
    if kind in _FIXED32:
        return _number(struct.unpack(_FIXED32[kind], cursor.read_bytes(4))[0])
    if kind == "string":
        return decode_text(cursor.read_bytes(cursor.read_varint()))
    if kind == TIMESTAMP_MESSAGE:
        return _read_timestamp(_inner(cursor))
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


def _read_timestamp(cursor: MessageCursor) -> EpochMilliseconds:
    """Return a ``google.protobuf.Timestamp`` in epoch milliseconds, rounded down."""
    seconds, nanos = 0, 0
    while cursor.position < cursor.end:
        number, wire = cursor.read_tag()
        if wire != VARINT or number > 2:
            cursor.skip(wire)
        elif number == 1:
            seconds = _signed(cursor.read_varint(), 64)
        else:
            nanos = _signed(cursor.read_varint(), 32)
    return EpochMilliseconds(seconds * 1_000 + nanos // 1_000_000)


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
