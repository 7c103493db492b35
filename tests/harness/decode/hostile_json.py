"""JSON records of a few streams that are right, odd or broken, made from a seed."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from streamcore.schema import Kind, StreamSchema, TimeUnit, Type
from streamcore.schema.field_paths import PathTree

_TYPES = {
    "s": "string",
    "b": "boolean",
    "n": "long",
    "d": "double",
    "m": "decimal(18,2)",
    "r": "decimal(4,4)",
    "u": "timestamp",
}
_TIMES: dict[str, object] = {"id": "string not null", "ts": "timestamp not null"}


def _stream(name: str, zone: str, fields: Mapping[str, object]) -> StreamSchema:
    document = {"name": name, "event_time": "ts", "keys": [[]], "zone": zone, "fields": {**_TIMES, **fields}}
    return StreamSchema.parse(document)


#: By name: flat ones, one with paths whose names are hard to tell apart, or cannot be written without an escape, and
#: one with fields of arrays, structs and maps.
STREAMS: dict[str, StreamSchema] = {
    "flat": _stream("flat", "UTC", _TYPES),
    "london": _stream("london", "Europe/London", _TYPES),
    "nested": _stream(
        "nested",
        "UTC",
        {
            "s": {"type": "string", "from": "user.name.first"},
            "b": {"type": "boolean", "from": "user.name.`größe`"},
            "n": {"type": "long", "from": "transaction_id.transaction_count"},
            "d": {"type": "double", "from": "transaction_id.transaction_score"},
            "m": {"type": "decimal(18,2)", "from": 'user.`"quoted"`'},
            "r": {"type": "decimal(4,4)", "from": "user.`back\\slash`.x"},
            "u": {"type": "timestamp", "from": "transaction_ix.a.b.c.d.e.`line\nend`"},
            "v": {"type": "string", "from": f"`{'long name ' * 12}`"},
        },
    ),
    "typed": _stream(
        "typed",
        "Europe/London",
        {
            "s": "array<string>",
            "n": {"type": "array<long>", "from": "user.n"},
            "m": "map<string,decimal(18,2)>",
            "o": 'struct<s:string, `größe`:double, `a "quoted"`:boolean, u:timestamp, inner:struct<s:array<boolean>>>',
            "items": "array<struct<sku:string, price:decimal(4,4), tags:map<string,array<timestamp>>>>",
            "grid": "array<array<double>>",
            "ns": {"type": "timestamp", "unit": "ns"},
        },
    ),
}

_NUMBERS = (  # noqa: SIM905 - fifty quoted numbers, one a line, read worse
    "0 -0 1 -1 1.0 0.0 -0.0 1e3 1E3 1e+3 1e-3 -0e5 0.1 0.10 1.005 12.50 12.500 999999999999999 9007199254740993"
    " 123456789012345.67 0.29 2.675 999999999999999999 9223372036854775807 9223372036854775808 -9223372036854775808"
    " 9223372036854775799 9223372036854775800 9223372036854775810 99999999999999999999 1700000000000 253402300799999"
    " 253402300800000 1e15 1e16 1e99 1e308 1e309 -1e309 5e-324 2e-324 1e-400 0.1234 0.99995 01 +1 1. .5 1e 0x1 NaN -"
    " Infinity 9999999999999999.99 0e99999 0e999999999999999999999 1e99999999999 1e-99999999999 00 -01 1e+ 1.e5 1_0"
).split()
_ESCAPES = [
    r"\n", r"\t", r"\"", r"\\", r"\/", r"\b", r"\f", r"\r", r"\u0041", r"\u00e9", r"\u20ac", r"\ud83d\ude00", r"\u0000",
]  # fmt: skip
_BAD_TEXTS = [
    r"\ud800",
    r"\udc00",
    r"\ud83d\ud83d",
    r"\ud83d\n",
    r"\ud83d",
    r"\u12g4",
    r"\u12",
    r"\x",
    "\\",
    "\n",
    "\0",
]
_TEXTS = [
    "",
    "a",
    "null",
    "größe",
    "\U0001f600",
    "\u2028\x7f",
    "x" * 31,
    "x" * 32,
    "x" * 33,
    "y" * 100,
    "é" * 40,
    '},{"s":',
]
_TIME_TEXTS = [
    "2026-01-31T12:00:00Z", "2026-01-31T12:00Z", "2026-01-31 12:00:00", "2026-07-31T12:00", "2026-02-29T00:00:00Z",
    "2028-02-29T00:00:00Z", "2026-03-29T01:30:00", "2026-10-25 01:30:00", "2026-01-31T12:00:00.1239+05:30",
    "2026-01-31T12:00:00.123456789-0530", "2026-01-31T12:00:00.1234567890Z", "2026-01-31T12:00:00+00",
    "1970-01-01T00:00",
    "2026-01-31T12:00:60Z", "2026-01-31T24:00:00Z", "2026-13-31T12:00:00Z", "1970-01-01T00:00:00+00:01", "",
    "2026-01-31T12:00:00.", "2026-01-31T12:00:00.Z", "2026-01-31T12:00:0", "2026-01-31T12:00:00+5", "2026-01-31",
    "9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59-00:01", "9999-12-31T23:59:59", "0001-01-01T00:00:00",
    "0000-01-01T00:00:00Z", "2026-01-31T12:00:00z", " 2026-01-31T12:00:00Z", "2026-01-31T12:00:00 Z",
    "2026-01-31T12:00:00+", "1700000000000000000", "07", "-1", "-0", "1.5", "12345678901234567890",
    "2026-01-31T12:00:00+24:00", "2026-01-31T12:00:00+05:60", "2026-01-31T12:00:00+05:", "2099-01-01T00:00:00Z",
]  # fmt: skip
_SPACES = ["", "", "", "", " ", "\n", "\t", "\r\n", "  "]
_BAD_SPACES = ["\f", "\xa0", "\v", "\0", "\ufeff", "//", ","]
_BYTES = [*b'"\\{}[]:,0123456789eE+-.tfnu \n\t', 0, 1, 0x1F, 0x7F, 0x80, 0xBF, 0xC0, 0xC3, 0xE2, 0xED, 0xF0, 0xF4, 0xFF]


@dataclass(frozen=True, slots=True)
class HostileRecords:
    """A source of records of a stream. ``odds``: how often something is odd, from 0 (never) to 1."""

    schema: StreamSchema
    draw: random.Random
    odds: float

    def record(self) -> bytes:
        """Return a record; it is bytes of any kind if the odds are not 0."""
        text = self._space() + self._object(self.schema.tree, 0) + self._space()
        made = bytearray(text.encode("utf-8", "surrogatepass"))
        while self._odd(0.5):
            at = self.draw.randrange(len(made) + 1)
            match self.draw.randrange(5):
                case 0:
                    made[at : at + 1] = b""
                case 1:
                    made[at:at] = bytes([self.draw.choice(_BYTES)])
                case 2:
                    made[at : at + 1] = bytes([self.draw.choice(_BYTES)])
                case 3:
                    del made[at:]
                case _:
                    made[at:at] = made[at : at + self.draw.randrange(40)]
        return bytes(made)

    def _odd(self, share: float = 1.0) -> bool:
        return self.draw.random() < self.odds * share

    def _space(self) -> str:
        return self.draw.choice(_BAD_SPACES) if self._odd(0.05) else self.draw.choice(_SPACES)

    def _object(self, tree: PathTree, depth: int) -> str:
        members = [(name, self._member(what, depth)) for name, what in tree.inside.items()]
        if depth == 0 or self.draw.random() < 0.5:
            kept = [m for m in members if m[0] in ("id", "ts") or self.draw.random() < 0.8]
            members = kept if not self._odd(0.05) else kept[1:]
        if self.draw.random() < 0.5:
            self.draw.shuffle(members)
        while self._odd(0.3) and members:
            at = self.draw.randrange(len(members) + 1)
            extra = self.draw.choice([*tree.inside, "", "x", "S", "ts ", "transaction_iy", "é", '"'])
            members.insert(at, (extra, self._any(depth + 1)))
        pairs = [
            f"{self._space()}{self._text(name)}{self._space()}:{self._space()}{value}{self._space()}"
            for name, value in members
        ]
        return "{" + ",".join(pairs) + "}"

    def _member(self, what: int | PathTree, depth: int) -> str:
        if self._odd(0.1):
            return self._any(depth + 1)
        if isinstance(what, PathTree):
            return self._object(what, depth + 1)
        field = self.schema.fields[what]
        if field.nullable and self.draw.random() < 0.1:
            return "null"
        if field.unit is TimeUnit.NANOSECONDS and self.draw.random() < 0.8:
            return self.draw.choice(['"1700000000000000000"', "1700000000000000000", '"0"'])
        return self._good(field.type)

    def _inside(self, kind: Type) -> str:
        """Return a value in an array or an object."""
        if self._odd(0.03):
            return self._any(4)
        return f"{self._space()}{'null' if self.draw.random() < 0.1 else self._good(kind)}{self._space()}"

    def _entries(self, kinds: Sequence[tuple[str, Type]]) -> str:
        members = [(name, self._inside(kind)) for name, kind in kinds if self.draw.random() < 0.9]
        while self._odd(0.1):
            members.insert(0, self.draw.choice([("x", self._any(4)), *members]))
        return "{" + ",".join(f"{self._space()}{self._text(name)}:{value}" for name, value in members) + "}"

    def _good(self, kind: Type) -> str:
        draw, scale = self.draw, kind.scale
        match kind.kind:
            case Kind.ARRAY:
                return "[" + ",".join(self._inside(kind.items) for _ in range(draw.choice([0, 1, 2, 5]))) + "]"
            case Kind.MAP:
                names = draw.sample(_TEXTS, draw.choice([0, 1, 3]))
                return self._entries([(name, kind.items) for name in names])
            case Kind.STRUCT:
                return self._entries(draw.sample(kind.members, len(kind.members)))
            case Kind.STRING:
                return self._text(draw.choice(_TEXTS))
            case Kind.BOOLEAN:
                return draw.choice(["true", "false"])
            case Kind.LONG:
                return str(draw.randrange(-(10 ** draw.randrange(1, 19)), 10 ** draw.randrange(1, 19)))
            case Kind.DOUBLE:
                return repr(draw.choice([random_double(draw), draw.random(), float(draw.randrange(10**6))]))
            case Kind.DECIMAL:
                text = f"{draw.choice(['', '-'])}0.{draw.randrange(10**scale):0{scale}d}"
                return draw.choice([text, f'"{text}"'])
        return draw.choice(["1700000000000", "0", '"2026-01-31T12:00:00Z"', '"2026-07-01 10:00:00.5"'])

    def _text(self, text: str) -> str:
        """Return a JSON string, with a few characters as escapes."""
        if self._odd(0.1):
            text = self.draw.choice(_TEXTS) + text
        chars = [json.dumps(c, ensure_ascii=self.draw.random() < 0.05)[1:-1] for c in text]
        if self._odd(0.1):
            chars.insert(self.draw.randrange(len(chars) + 1), self.draw.choice(_ESCAPES))
        if self._odd(0.03):
            chars.insert(self.draw.randrange(len(chars) + 1), self.draw.choice(_BAD_TEXTS))
        if chars and self.draw.random() < 0.05:
            at = self.draw.randrange(len(chars))
            if len(chars[at]) == 1:
                chars[at] = "".join(f"\\u{unit:04x}" for unit in _utf16(chars[at]))
        return '"' + "".join(chars) + '"'

    def _any(self, depth: int) -> str:
        draw = self.draw
        kinds: list[Callable[[], str]] = [
            lambda: draw.choice(_NUMBERS),
            lambda: random_number(draw),
            lambda: f'"{draw.choice(_NUMBERS)}"',
            lambda: self._text(draw.choice(_TEXTS)),
            lambda: f'"{draw.choice(_TIME_TEXTS)}"',
            lambda: draw.choice(
                ["true", "false", "null", "nul", "True", "", "{}", "[]", "[1,]", "{,}", '{"a"}', "[1 2]"]
            ),
            lambda: "[" * (n := draw.randrange(40)) + draw.choice(["", "1", '""']) + "]" * n,
            lambda: '{"x":' * (n := draw.randrange(40)) + draw.choice(_NUMBERS) + "}" * n,
        ]
        if depth < 5:
            kinds += [
                lambda: "[" + ",".join(self._space() + self._any(depth + 1) for _ in range(draw.randrange(4))) + "]",
                lambda: self._object(self.schema.tree, depth + 1),
            ]
        return draw.choice(kinds)()


def _utf16(char: str) -> Sequence[int]:
    raw = char.encode("utf-16-be", "surrogatepass")
    return struct.unpack(f">{len(raw) // 2}H", raw)


def random_double(draw: random.Random) -> float:
    """Return a finite double of any size."""
    while True:
        value: float = struct.unpack("<d", draw.getrandbits(64).to_bytes(8, "little"))[0]
        if value - value == 0:
            return value


def random_number(draw: random.Random) -> str:
    """Return a JSON number of up to 25 digits, with or without a fraction and an exponent."""
    digits = str(draw.randrange(10 ** draw.randrange(1, 26)))
    point = draw.randrange(len(digits) + 1)
    text = digits if point == len(digits) else f"{digits[:point] or '0'}.{digits[point:]}"
    if len(text) > 1 and text[0] == "0" and text[1] != ".":
        text = "1" + text
    exponent = f"e{draw.choice(['', '+', '-'])}{draw.randrange(345)}" if draw.random() < 0.4 else ""
    return f"{draw.choice(['', '-'])}{text}{exponent}"


def make_records(stream: str, seed: int, count: int, odds: float) -> list[bytes]:
    """Return records of one of ``STREAMS``."""
    source = HostileRecords(STREAMS[stream], random.Random(seed), odds)
    return [source.record() for _ in range(count)]
