"""Random Avro schemas with streams that read them, and random records whose values are known from how they were made.

Each type is a function that writes a value: the bytes, what another reader gives for them without logical types, and
what the stream's column has.
"""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from streamcore.schema import StreamSchema
from streamcore.wire.map_entries import KEY, VALUE

Write = Callable[[random.Random], tuple[bytes, Any, Any]]
_DAY_MS = 86_400_000
#: The deepest record of a list that is skipped: some are deeper than the limit of a decoder.
_LONGEST_CHAIN = 40
_TEXTS = ("", "a", "Zürich", "日本", "😀" * 3, "x" * 70, "0", "\0")
_LONGS = (0, 1, -1, 63, 64, -65, 2**31, 2**62, 2**63 - 1, -(2**63))


def varint(number: int) -> bytes:
    """Return a number without a sign in groups of seven bits."""
    number &= 2**64 - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def zigzag(number: int) -> bytes:
    """Return a number as Avro writes it."""
    return varint(number << 1 ^ number >> 63)


@dataclass(frozen=True)
class AvroType:
    """A type: its schema, the type of the stream's field that reads it, and how a value is written."""

    schema: Any
    stream: str
    write: Write


@dataclass(frozen=True)
class AvroCase:
    """A schema, a stream that reads some of its fields, and the writer of records with the stream's row."""

    schema: Any
    stream: StreamSchema
    write: Callable[[random.Random], tuple[bytes, Any, tuple[Any, ...]]]


def make_case(seed: int) -> AvroCase:
    """Return a random case."""
    maker = _Maker(random.Random(seed))
    chance = maker.chance
    time = AvroType(
        {"type": "long", "logicalType": "timestamp-millis"}, "timestamp", lambda c: _long(c.randrange(10**12), None)
    )
    members = [("at", time, True)]
    members += [(f"f{n}", maker.any(chance.choice([1, 2, 3, 4])), chance.random() < 0.7) for n in range(6)]
    members += [("chain", maker.chain(), False)]
    chance.shuffle(members)
    written = maker.record(members, "Event")
    fields: dict[str, object] = {name: one.stream for name, one, is_read in members if is_read and name != "at"}
    fields = {"at": "timestamp not null", **fields, "absent": "array<struct<a:long>>"}
    stream = StreamSchema.parse({"name": "s", "event_time": "at", "keys": [[]], "fields": fields})

    def write(chance: random.Random) -> tuple[bytes, Any, tuple[Any, ...]]:
        data, value, row = written.write(chance)
        return data, value, tuple(row.get(name) for name in stream.names)

    return AvroCase(written.schema, stream, write)


def _long(number: int, physical: int | None) -> tuple[bytes, Any, Any]:
    return zigzag(number), number, number if physical is None else physical


@dataclass
class _Maker:
    chance: random.Random

    def __post_init__(self) -> None:
        self.names: Iterator[int] = itertools.count()

    def any(self, depth: int) -> AvroType:
        """Return a type of at most this depth."""
        kind = self.chance.randrange(10) if depth > 0 else 0
        match kind:
            case 1 | 2:
                return self.array(self.any(depth - 1))
            case 3 | 4:
                return self.map(self.any(depth - 1))
            case 5 | 6:
                count = self.chance.randrange(1, 5)
                return self.record(
                    [(f"m{n}", self.any(depth - 1), self.chance.random() < 0.7) for n in range(count)], ""
                )
            case 7 | 8 | 9:
                inner = self.any(depth - 1)
                return inner if isinstance(inner.schema, list) else self.option(inner)
        return self.leaf()

    def leaf(self) -> AvroType:
        chance = self.chance
        number = next(self.names)
        match chance.randrange(13):
            case 0:
                return AvroType("long", "long", lambda c: _long(_wide(c), None))
            case 1:
                return AvroType("int", "long", lambda c: _long(_small(c), None))
            case 2:
                return AvroType("int", "double", lambda c: _as_double(_small(c)))
            case 3:
                return AvroType("double", "double", _write_double)
            case 4:
                return AvroType("float", "double", _write_float)
            case 5:
                return AvroType("boolean", "boolean", lambda c: _write_truth(c.random() < 0.5))
            case 6 | 7:
                return AvroType("string", "string", _write_text)
            case 8:
                symbols = ["RED", "GREEN", "BLUE"]
                enum = {"type": "enum", "name": f"E{number}", "symbols": symbols}
                return AvroType(enum, "string", lambda c: _write_symbol(c.randrange(3), symbols))
            case 9:
                kind = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
                return AvroType(kind, "decimal(12,2)", lambda c: _write_decimal(c, 0))
            case 10:
                size = chance.choice([6, 8, 9, 16])
                name = f"D{number}"
                fixed = {"type": "fixed", "name": name, "size": size, "logicalType": "decimal", "precision": 12}
                return AvroType({**fixed, "scale": 2}, "decimal(12,2)", lambda c: _write_decimal(c, size))
            case 11:
                name, per_ms = chance.choice([("millis", 1), ("micros", 1_000), ("nanos", 1_000_000)])
                local = chance.choice(["", "local-"])
                kind = {"type": "long", "logicalType": f"{local}timestamp-{name}"}
                return AvroType(kind, "timestamp", lambda c: _write_time(c.randrange(10**15), per_ms))
        day = {"type": "int", "logicalType": "date"}
        return AvroType(day, "timestamp", lambda c: _write_day(c.randrange(30_000)))

    def option(self, inner: AvroType) -> AvroType:
        """Return a union of null and a type, or of null, the type and another one that fits the same field."""
        branches: list[tuple[Any, Write]] = [("null", lambda _: (b"", None, None)), (inner.schema, inner.write)]
        if inner.schema == "long" and inner.stream == "long":
            branches.append(("int", lambda c: _long(c.randrange(100), None)))
        if inner.schema == "double":
            branches.append(("float", _write_float))
        self.chance.shuffle(branches)

        def write(chance: random.Random) -> tuple[bytes, Any, Any]:
            index = chance.randrange(len(branches))
            data, value, physical = branches[index][1](chance)
            return zigzag(index) + data, value, physical

        return AvroType([schema for schema, _ in branches], inner.stream, write)

    def array(self, inner: AvroType) -> AvroType:
        def write(chance: random.Random) -> tuple[bytes, Any, Any]:
            items = [inner.write(chance) for _ in range(chance.choice([0, 0, 1, 2, 3, 9]))]
            data = _blocks(chance, [data for data, _, _ in items])
            return data, [value for _, value, _ in items], [physical for *_, physical in items]

        return AvroType({"type": "array", "items": inner.schema}, f"array<{inner.stream}>", write)

    def map(self, inner: AvroType) -> AvroType:
        def write(chance: random.Random) -> tuple[bytes, Any, Any]:
            names = chance.sample(["", "a", "b", "ä", "key", "x" * 20], chance.choice([0, 1, 2, 4]))
            items = {name: inner.write(chance) for name in names}
            data = _blocks(chance, [_text(name) + data for name, (data, _, _) in items.items()])
            entries = [{KEY: name, VALUE: physical} for name, (*_, physical) in items.items()]
            return data, {name: value for name, (_, value, _) in items.items()}, entries

        return AvroType({"type": "map", "values": inner.schema}, f"map<string,{inner.stream}>", write)

    def record(self, members: list[tuple[str, AvroType, bool]], name: str) -> AvroType:
        """Return a record of which the members with True are read; the struct has one more, which is always null."""
        schema = {
            "type": "record",
            "name": name or f"R{next(self.names)}",
            "fields": [{"name": member, "type": one.schema} for member, one, _ in members],
        }
        kinds = [f"{member}:{one.stream}" for member, one, is_read in members if is_read] + ["absent:map<string,long>"]

        def write(chance: random.Random) -> tuple[bytes, Any, Any]:
            written = {member: one.write(chance) for member, one, _ in members}
            data = b"".join(data for data, _, _ in written.values())
            row = {member: written[member][2] for member, _, is_read in members if is_read}
            return data, {member: value for member, (_, value, _) in written.items()}, {**row, "absent": None}

        return AvroType(schema, f"struct<{', '.join(kinds)}>", write)

    def chain(self) -> AvroType:
        """Return a record that contains itself in a union, an array and a map; some are deeper than the limit."""
        name = f"C{next(self.names)}"
        inner = [{"name": "next", "type": ["null", name]}, {"name": "more", "type": {"type": "array", "items": name}}]
        schema = {"type": "record", "name": name, "fields": [{"name": "n", "type": "long"}, *inner]}

        def write(chance: random.Random) -> tuple[bytes, Any, Any]:
            data, value = b"\0\0\0", dict[str, Any](n=0, next=None, more=[])
            is_passed_over = chance.random() < 0.5  # a block with its length in bytes, and what is in it
            for _ in range(chance.choice([0, 1, 3, 8, 20, _LONGEST_CHAIN]) if chance.random() < 0.1 else 1):
                if chance.random() < 0.5:
                    data, value = b"\2\2" + data + b"\0", {"n": 1, "next": value, "more": []}
                else:
                    data = b"\4\0" + (_blocks(chance, [data]) if is_passed_over else zigzag(1) + data + b"\0")
                    value = {"n": 2, "next": None, "more": [value]}
            return data, value, None

        return AvroType(schema, "", write)


def _blocks(chance: random.Random, items: list[bytes]) -> bytes:
    """Return the blocks of an array or a map: one or several, with their length in bytes or without."""
    out = b""
    while items:
        count = chance.randrange(1, len(items) + 1)
        part, items = b"".join(items[:count]), items[count:]
        out += zigzag(-count) + zigzag(len(part)) + part if chance.random() < 0.4 else zigzag(count) + part
    return out + b"\0"


def _wide(chance: random.Random) -> int:
    return chance.choice(_LONGS) if chance.random() < 0.5 else chance.randrange(-1000, 1000)


def _small(chance: random.Random) -> int:
    return chance.choice((0, -1, 2**31 - 1, -(2**31), chance.randrange(300)))


def _text(text: str) -> bytes:
    raw = text.encode()
    return zigzag(len(raw)) + raw


def _write_text(chance: random.Random) -> tuple[bytes, Any, Any]:
    text = chance.choice(_TEXTS)
    return _text(text), text, text


def _write_truth(value: bool) -> tuple[bytes, Any, Any]:
    return bytes([value]), value, value


def _write_symbol(number: int, symbols: list[str]) -> tuple[bytes, Any, Any]:
    return zigzag(number), symbols[number], symbols[number]


def _as_double(number: int) -> tuple[bytes, Any, Any]:
    return zigzag(number), number, float(number)


def _write_double(chance: random.Random) -> tuple[bytes, Any, Any]:
    number = chance.choice([0.1, -0.0, 1e300, 5e-324, chance.random()])
    return struct.pack("<d", number), number, number


def _write_float(chance: random.Random) -> tuple[bytes, Any, Any]:
    data = struct.pack("<f", chance.choice([0.1, -0.0, 3e38, 1e-45, chance.random()]))
    (number,) = struct.unpack("<f", data)
    return data, number, number


def _write_decimal(chance: random.Random, size: int) -> tuple[bytes, Any, Any]:
    units = chance.choice([0, 1, -1, 127, 128, -129, 10**12 - 1, 1 - 10**12])
    data = units.to_bytes(size or chance.choice([6, 7, 8, 9, 12]), "big", signed=True)
    return (data if size else zigzag(len(data)) + data), data, units


def _write_time(millis: int, per_ms: int) -> tuple[bytes, Any, Any]:
    millis %= 10**12
    number = millis * per_ms + per_ms // 2
    return zigzag(number), number, millis


def _write_day(day: int) -> tuple[bytes, Any, Any]:
    return zigzag(day), day, day * _DAY_MS
