"""The reference reader of one Avro datum, byte by byte: slow, and bounded for any bytes.

Every length is compared with what is left before anything is taken, so no more than the record itself is ever held; a
type that takes no byte is passed over at once, so work is bounded by the record's bytes times the nesting, which has a
limit. Fields that the stream does not want are passed over and not looked into.
"""

from __future__ import annotations

import struct
import uuid
from datetime import datetime, timedelta

from streamcore.decode.avro.schema import (
    ArrayOf,
    AvroType,
    Enumeration,
    Fixed,
    MapOf,
    Primitive,
    RecordOf,
    UnionOf,
    is_empty,
)
from streamcore.decode.avro.schema_match import FieldMapping
from streamcore.decode.reject_codes import RejectCode
from streamcore.decode.scalar.record import decode_text
from streamcore.decode.scalar.values import Number, RecordError
from streamcore.schema import Field, Kind

_EPOCH = datetime(1970, 1, 1)
_PER_MS = {"millis": 1, "micros": 1_000, "nanos": 1_000_000}
_MAX_VARINT_BYTES = 10
#: More than any stream's decimal has.
_MAX_DECIMAL_BITS = 127
_INT_BITS, _LONG_BITS = 32, 64


class Cursor:
    """A place in the bytes of a record."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data, self.position = data, position

    def read_bytes(self, count: int) -> bytes:
        """So many bytes, and past them."""
        if not 0 <= count <= len(self.data) - self.position:
            raise _refuse(
                f"{count} bytes are announced at byte {self.position} and {len(self.data) - self.position} are left"
            )
        self.position += count
        return self.data[self.position - count : self.position]

    def read_long(self, bits: int = _LONG_BITS) -> int:
        """Return a zigzag number of so many bits."""
        number = 0
        for index in range(_MAX_VARINT_BYTES):
            byte = self.read_bytes(1)[0]
            number |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                break
        else:
            raise _refuse(f"the number before byte {self.position} does not end")
        if number >= 1 << bits:
            raise _refuse(f"the number before byte {self.position} has more than {bits} bits")
        return (number >> 1) ^ -(number & 1)

    def read_prefixed(self) -> bytes:
        """Bytes behind their length."""
        return self.read_bytes(self.read_long())


def read_datum(cursor: Cursor, kind: AvroType, want: FieldMapping, max_depth: int) -> dict[str, object]:
    """Return the wanted fields as values for ``scalars.convert``; raise ``RecordError``."""
    found: dict[str, object] = {}
    _Reader(cursor, max_depth, found).read(kind, want, 0)
    return found


class _Reader:
    def __init__(self, cursor: Cursor, max_depth: int, found: dict[str, object]) -> None:
        self.cursor, self.max_depth, self.found = cursor, max_depth, found

    def read(self, kind: AvroType, want: Field | FieldMapping, depth: int) -> None:
        if isinstance(kind, UnionOf):
            kind = self.read_branch(kind)
        if isinstance(want, Field):
            self.found[want.name] = self.read_value(kind, want)
        elif isinstance(kind, RecordOf):
            self.check(depth)
            for name, inner in kind.fields:
                wanted = want.inside.get(name)
                if wanted is None:
                    self.skip(inner, depth + 1)
                else:
                    self.read(inner, wanted, depth + 1)
        else:  # null, or the schema would not have fitted
            assert kind == Primitive("null")

    def check(self, depth: int) -> None:
        if depth > self.max_depth:
            raise RecordError(
                RejectCode.TOO_DEEP, f"the record nests deeper than {self.max_depth} levels, which is the limit"
            )

    def read_branch(self, union: UnionOf) -> AvroType:
        number = self.cursor.read_long()
        if not 0 <= number < len(union.branches):
            raise _refuse(f"branch {number} before byte {self.cursor.position}; the union has {len(union.branches)}")
        return union.branches[number]

    def read_value(self, kind: AvroType, field: Field) -> object:
        match kind:
            case Primitive():
                return self.read_primitive(kind, field)
            case Fixed():
                data = self.cursor.read_bytes(kind.size)
                return str(uuid.UUID(bytes=data)) if kind.logical == "uuid" else _decimal(data, kind.scale, field)
            case Enumeration():
                number = self.cursor.read_long(_INT_BITS)
                if not 0 <= number < len(kind.symbols):
                    raise _refuse(f"symbol {number} before byte {self.cursor.position}; there are {len(kind.symbols)}")
                return kind.symbols[number]
        raise AssertionError("the schema does not fit")

    def read_primitive(self, kind: Primitive, field: Field) -> object:
        match kind.name:
            case "null":
                return None
            case "boolean":
                return self.read_boolean()
            case "int":
                number = self.cursor.read_long(_INT_BITS)
                return _date(number, field) if kind.logical else Number(number)
            case "long":
                number = self.cursor.read_long()
                return _moment(kind.logical, number, field) if kind.logical else Number(number)
            case "float":
                return Number(repr(struct.unpack("<f", self.cursor.read_bytes(4))[0]))
            case "double":
                return Number(repr(struct.unpack("<d", self.cursor.read_bytes(8))[0]))
            case "string":
                return decode_text(self.cursor.read_prefixed())
        return _decimal(self.cursor.read_prefixed(), kind.scale, field)

    def read_boolean(self) -> bool:
        byte = self.cursor.read_bytes(1)
        if byte not in (b"\x00", b"\x01"):
            raise _refuse(f"byte {self.cursor.position - 1} (0x{byte[0]:02x}) is no boolean")
        return byte == b"\x01"

    def skip(self, kind: AvroType, depth: int) -> None:
        if is_empty(kind):
            return
        match kind:
            case Primitive():
                self.skip_primitive(kind)
            case Fixed():
                self.cursor.read_bytes(kind.size)
            case Enumeration():
                self.cursor.read_long(_INT_BITS)
            case UnionOf():
                self.skip(self.read_branch(kind), depth)
            case RecordOf():
                self.check(depth)
                for inner in kind.solid:
                    self.skip(inner, depth + 1)
            case ArrayOf():
                self.check(depth)
                self.skip_blocks((kind.items,), depth + 1)
            case MapOf():
                self.check(depth)
                self.skip_blocks((Primitive("string"), kind.values), depth + 1)

    def skip_primitive(self, kind: Primitive) -> None:
        match kind.name:
            case "boolean":
                self.read_boolean()
            case "int":
                self.cursor.read_long(_INT_BITS)
            case "long":
                self.cursor.read_long()
            case "float":
                self.cursor.read_bytes(4)
            case "double":
                self.cursor.read_bytes(8)
            case _:
                self.cursor.read_prefixed()

    def skip_blocks(self, items: tuple[AvroType, ...], depth: int) -> None:
        """Skip blocks of items until an empty one; a block with a negative count has its length in bytes."""
        solid = [item for item in items if not is_empty(item)]
        while count := self.cursor.read_long():
            if count < 0:
                self.cursor.read_prefixed()
                continue
            if solid and count > len(self.cursor.data) - self.cursor.position:
                raise _refuse(f"{count} items are announced at byte {self.cursor.position}; so many bytes are not left")
            for _ in range(count if solid else 0):
                for item in solid:
                    self.skip(item, depth)


def _refuse(reason: str) -> RecordError:
    return RecordError(RejectCode.NOT_AVRO, f"not Avro of its schema: {reason}")


def _decimal(data: bytes, scale: int, field: Field) -> Number:
    units = int.from_bytes(data, "big", signed=True)
    if units.bit_length() > _MAX_DECIMAL_BITS:
        raise RecordError(
            RejectCode.OUT_OF_RANGE,
            f"field {field.name}: found a decimal of {units.bit_length()} bits; accepted is a {field.type}",
        )
    return Number(f"{units}E-{scale}")


def _moment(logical: str, number: int, field: Field) -> object:
    """Epoch milliseconds (cut off, not rounded); of a local time its text, for the stream's zone."""
    epoch_ms = number // _PER_MS[logical.rpartition("-")[2]]
    return _local(epoch_ms, field) if logical.startswith("local") else Number(epoch_ms)


def _date(day: int, field: Field) -> str:
    """Midnight in the stream's zone."""
    return _local(day * 86_400_000, field)


def _local(epoch_ms: int, field: Field) -> str:
    assert field.type.kind is Kind.TIMESTAMP
    try:
        return (_EPOCH + timedelta(milliseconds=epoch_ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        raise RecordError(
            RejectCode.OUT_OF_RANGE,
            f"field {field.name}: found the local time {epoch_ms}; accepted is a time in the years 1970 to 9999",
        ) from None
