"""The reference reader of one Avro datum, byte by byte: slow, with bounded work and memory for any input.

A length is checked against the remaining bytes before anything is read, so memory is bounded by the size of the record.
Items of types without bytes (``null``) are skipped without a loop, and count as values of the record where they are
read. So work is bounded by the record's size times the depth of nesting, and by the values of a record, which have
limits. Fields that the stream does not declare are skipped without decoding them.
"""

from __future__ import annotations

import itertools
import struct
import uuid
from collections.abc import Iterator
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
from streamcore.decode.reject_codes import DecodeLimits, RejectCode
from streamcore.decode.scalar.record import decode_text
from streamcore.decode.scalar.value_counts import ValueCounter
from streamcore.decode.scalar.values import EpochMilliseconds, Number, ObjectValue, RecordError, inner_field
from streamcore.schema import Field, Kind

_EPOCH = datetime(1970, 1, 1)
#: Units per millisecond, by the last word of a logical type.
_PER_MS = {"millis": 1, "micros": 1_000, "nanos": 1_000_000}
_MAX_VARINT_BYTES = 10
#: The most bits that the unscaled value of a decimal may have; a stream's decimals have fewer.
_MAX_DECIMAL_BITS = 127
_INT_BITS, _LONG_BITS = 32, 64


class Cursor:
    """Reads the bytes of a record from a position on. Each method advances the position, or raises ``RecordError``."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data, self.position = data, position

    def read_bytes(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        if not 0 <= count <= len(self.data) - self.position:
            raise _not_avro(
                f"{count} bytes are announced at byte {self.position} and {len(self.data) - self.position} are left"
            )
        self.position += count
        return self.data[self.position - count : self.position]

    def read_long(self, bits: int = _LONG_BITS) -> int:
        """Return a variable-length zigzag number, which must fit in ``bits`` bits."""
        number = 0
        for index in range(_MAX_VARINT_BYTES):
            byte = self.read_bytes(1)[0]
            number |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                break
        else:
            raise _not_avro(f"the number before byte {self.position} does not end")
        if number >= 1 << bits:
            raise _not_avro(f"the number before byte {self.position} has more than {bits} bits")
        return (number >> 1) ^ -(number & 1)

    def read_prefixed(self) -> bytes:
        """Return bytes that follow their length."""
        return self.read_bytes(self.read_long())


def read_datum(cursor: Cursor, kind: AvroType, want: FieldMapping, limits: DecodeLimits) -> dict[str, object]:
    """Read a datum of type ``kind``; return the values of the fields in ``want`` by name, for ``convert_values``.

    Raises ``RecordError`` if the bytes are not Avro of this type, nest too deep or are too many values.
    """
    values: dict[str, object] = {}
    _DatumReader(cursor, limits, values).read(kind, want, 0)
    return values


class _DatumReader:
    """Reads one datum. ``values``: receives the values of the stream's fields, by name."""

    def __init__(self, cursor: Cursor, limits: DecodeLimits, values: dict[str, object]) -> None:
        self.cursor, self.max_depth, self.values = cursor, limits.max_depth, values
        self.counter = ValueCounter(limits.max_record_values)

    def read(self, kind: AvroType, want: Field | FieldMapping, depth: int) -> None:
        """Read a value: into a field of the stream, or a record into the fields of its mapping."""
        if isinstance(kind, UnionOf):
            kind = self.read_branch(kind)
        if isinstance(want, Field):
            self.values[want.name] = self.read_value(kind, want, depth)
        elif isinstance(kind, RecordOf):
            self.check_depth(depth)
            for name, inner in kind.fields:
                target = want.inside.get(name)
                if target is None:
                    self.skip(inner, depth + 1)
                else:
                    self.read(inner, target, depth + 1)
        else:  # a null record; ``check_schema`` rejects all other types
            assert kind == Primitive("null")

    def check_depth(self, depth: int) -> None:
        if depth > self.max_depth:
            raise RecordError(
                RejectCode.TOO_DEEP, f"the record nests deeper than {self.max_depth} levels, which is the limit"
            )

    def read_branch(self, union: UnionOf) -> AvroType:
        """Read which branch of the union follows; return its type."""
        number = self.cursor.read_long()
        if not 0 <= number < len(union.branches):
            raise _not_avro(f"branch {number} before byte {self.cursor.position}; the union has {len(union.branches)}")
        return union.branches[number]

    def read_value(self, kind: AvroType, field: Field, depth: int) -> object:
        """Read a value of a type that fits the field."""
        match kind:
            case ArrayOf():
                return self.read_array(kind, field, depth)
            case MapOf():
                return self.read_map(kind, field, depth)
            case RecordOf():
                return self.read_struct(kind, field, depth)
            case UnionOf():
                return self.read_value(self.read_branch(kind), field, depth)
            case Primitive():
                return self.read_primitive(kind, field)
            case Fixed():
                data = self.cursor.read_bytes(kind.size)
                return str(uuid.UUID(bytes=data)) if kind.logical == "uuid" else _decimal(data, kind.scale, field)
            case Enumeration():
                number = self.cursor.read_long(_INT_BITS)
                if not 0 <= number < len(kind.symbols):
                    raise _not_avro(
                        f"symbol {number} before byte {self.cursor.position}; there are {len(kind.symbols)}"
                    )
                return kind.symbols[number]
        raise AssertionError("the schema does not fit")

    def read_array(self, kind: ArrayOf, field: Field, depth: int) -> list[object]:
        self.check_depth(depth)
        element = inner_field(field, "[]", field.type.items)
        return [self.read_value(kind.items, element, depth + 1) for _ in self.items(field, (kind.items,))]

    def read_map(self, kind: MapOf, field: Field, depth: int) -> ObjectValue:
        self.check_depth(depth)
        key, value = Primitive("string"), inner_field(field, "[]", field.type.items)
        return ObjectValue(
            tuple(
                (decode_text(self.cursor.read_prefixed()), self.read_value(kind.values, value, depth + 1))
                for _ in self.items(field, (key, kind.values))
            )
        )

    def read_struct(self, kind: RecordOf, field: Field, depth: int) -> ObjectValue:
        """Read a record; fields that the struct does not have are skipped."""
        self.check_depth(depth)
        found: list[tuple[str, object]] = []
        members = dict(field.type.members)
        for name, inner in kind.fields:
            if name in members:
                found.append((name, self.read_value(inner, inner_field(field, f".{name}", members[name]), depth + 1)))
            else:
                self.skip(inner, depth + 1)
        return ObjectValue(tuple(found))

    def items(self, field: Field, types: tuple[AvroType, ...]) -> Iterator[None]:
        """Yield once for each item of the blocks of an array or map, up to the empty block that ends it.

        ``types``: those of one item.
        """
        with_bytes = any(not is_empty(kind) for kind in types)
        while count := self.cursor.read_long():
            if count < 0:
                count = -count
                self.cursor.read_long()
            if with_bytes and count > len(self.cursor.data) - self.cursor.position:
                raise _not_avro(
                    f"{count} items are announced at byte {self.cursor.position}; so many bytes are not left"
                )
            self.counter.add(field, count)
            yield from itertools.repeat(None, count)

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
                return _timestamp(kind.logical, number, field) if kind.logical else Number(number)
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
            raise _not_avro(f"byte {self.cursor.position - 1} (0x{byte[0]:02x}) is no boolean")
        return byte == b"\x01"

    def skip(self, kind: AvroType, depth: int) -> None:
        """Skip a value."""
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
                self.check_depth(depth)
                for inner in kind.non_empty:
                    self.skip(inner, depth + 1)
            case ArrayOf():
                self.check_depth(depth)
                self.skip_blocks((kind.items,), depth + 1)
            case MapOf():
                self.check_depth(depth)
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
        """Skip the blocks of an array or map, up to the empty block that ends it.

        ``items``: the types of one item. A block with a negative count declares its length in bytes.
        """
        with_bytes = [item for item in items if not is_empty(item)]
        while count := self.cursor.read_long():
            if count < 0:
                self.cursor.read_prefixed()
                continue
            if with_bytes and count > len(self.cursor.data) - self.cursor.position:
                raise _not_avro(
                    f"{count} items are announced at byte {self.cursor.position}; so many bytes are not left"
                )
            for _ in range(count if with_bytes else 0):
                for item in with_bytes:
                    self.skip(item, depth)


def _not_avro(reason: str) -> RecordError:
    return RecordError(RejectCode.NOT_AVRO, f"not Avro of its schema: {reason}")


def _decimal(data: bytes, scale: int, field: Field) -> Number:
    """Return a decimal from its unscaled value, a big-endian number in two's complement."""
    units = int.from_bytes(data, "big", signed=True)
    if units.bit_length() > _MAX_DECIMAL_BITS:
        raise RecordError(
            RejectCode.OUT_OF_RANGE,
            f"field {field.name}: found a decimal of {units.bit_length()} bits; accepted is a {field.type}",
        )
    return Number(f"{units}E-{scale}")


def _timestamp(logical: str, number: int, field: Field) -> object:
    """Return a timestamp in epoch milliseconds, rounded down; a local timestamp as text, to be read in the stream's
    time zone."""
    epoch_ms = number // _PER_MS[logical.rpartition("-")[2]]
    return _local(epoch_ms, field) if logical.startswith("local") else EpochMilliseconds(epoch_ms)


def _date(day: int, field: Field) -> str:
    """Return midnight of a day (counted from 1970-01-01) as text, to be read in the stream's time zone."""
    return _local(day * 86_400_000, field)


def _local(epoch_ms: int, field: Field) -> str:
    """Return a local time as ISO text without zone. ``epoch_ms``: milliseconds since 1970-01-01 00:00 local time."""
    assert field.type.kind is Kind.TIMESTAMP
    try:
        return (_EPOCH + timedelta(milliseconds=epoch_ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        raise RecordError(
            RejectCode.OUT_OF_RANGE,
            f"field {field.name}: found the local time {epoch_ms}; accepted is a time in the years 1970 to 9999",
        ) from None
