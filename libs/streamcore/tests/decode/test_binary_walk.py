"""The compiled walks through Avro and Protobuf say what the references say, also of records with wrong bytes."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from streamcore.decode.avro.decoder import AvroDecoder
from streamcore.decode.formats import Avro, Bare
from streamcore.decode.protobuf.decoder import ProtobufDecoder
from streamcore.decode.protobuf.schema import parse_proto_schema
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.scalar.record import RejectedRecord
from streamcore.decode.types import Decoder, RawBatch
from streamcore.schema import StreamSchema
from tests.harness.decode.projections import decode_and_project
from tests.harness.decode.random_avro import varint
from tests.harness.decode.registered_records import CLOCK_MS
from tests.harness.decode.spoil import spoil
from tests.harness.run import profiles

STREAM = StreamSchema.parse(
    {
        "name": "s",
        "event_time": "ts",
        "zone": "Europe/Oslo",
        "keys": [["user"]],
        "fields": {
            "ts": "timestamp not null",
            "user": "string not null",
            "count": "long",
            "risk": "double",
            "price": "decimal(9,2)",
            "ok": "boolean",
            "kind": "string",
            "day": "timestamp",
            "city": {"type": "string", "from": "a.b.city"},
        },
    }
)
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}
ONE_SYMBOL = {"type": "enum", "name": "G", "symbols": ["a"]}
CITY = {"name": "city", "type": "string"}
AVRO = {
    "type": "record",
    "name": "E",
    "fields": [
        {"name": "skipped", "type": {"type": "array", "items": ["null", "long", {"type": "map", "values": "bytes"}]}},
        {"name": "nulls", "type": {"type": "array", "items": "null"}},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "user", "type": ["null", "string"]},
        {"name": "count", "type": ["long", "int", "null"]},
        {"name": "risk", "type": ["double", "float", "int", "null"]},
        {"name": "price", "type": ["null", "string", DECIMAL]},
        {"name": "more", "type": [{"type": "fixed", "name": "F", "size": 3}, ONE_SYMBOL]},
        {"name": "ok", "type": ["boolean", "null"]},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["VIEW", "PAY"]}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}, "string"]},
        {
            "name": "a",
            "type": ["null", {"type": "record", "name": "A", "fields": [
                {"name": "x", "type": "float"},
                {"name": "b", "type": ["null", {"type": "record", "name": "B", "fields": [CITY]}]},
                {"name": "self", "type": ["null", "A"]},
            ]}],
        },
    ],
}  # fmt: skip
PARSED = fastavro.parse_schema(AVRO)
PROTO = """
syntax = "proto3";
enum K { VIEW = 0; PAY = 5; }
message E {
  int64 ts = 1; optional string user = 2; sint32 count = 3; float risk = 4; string price = 5; bool ok = 6; K kind = 7;
  optional string day = 8; A a = 900; repeated int64 skipped = 10; double other = 11; fixed32 more = 12;
  message A { B b = 2; int32 x = 1; message B { string city = 1; } }
}
"""
NIGHTLY = 20 if profiles.NAME == "nightly" else 1


def texts(chance: random.Random) -> str:
    return "".join(chance.choice('aZ9 éß中😀\0"\\') for _ in range(chance.randrange(12)))


def avro_event(chance: random.Random) -> dict[str, Any]:
    def maybe(value: object) -> object:
        return value if chance.random() < 0.8 else None

    ts = chance.choice([CLOCK_MS * 1000, 10**15, 10**15 + 1, chance.randrange(10**15), chance.randrange(-5, 5)])
    inner = {"x": 1.5, "b": maybe({"city": texts(chance)}), "self": maybe({"x": 0.5, "b": None, "self": None})}
    prices = [Decimal("12.340"), Decimal("-0.010"), Decimal("99999999.990"), "12.5", "1e2", "x", "-7", "1" * 70]
    days: list[object] = [chance.randrange(20_000)]
    days += [("string", text) for text in ("2026-01-02T03:04:05Z", "2026-01-02T03:04", "nonsense")]
    count = chance.choice([0, 1, -1, 2**63 - 1, -(2**63), 300])
    return {
        "skipped": [chance.choice([None, 5, {"k": b"v"}]) for _ in range(chance.choice([0, 0, 1, 5]))],
        "nulls": [None] * chance.choice([0, 3]),
        "ts": ts,
        "user": maybe(texts(chance)),
        "count": maybe(count),
        "risk": maybe(chance.choice([0.1, 1e300, ("float", 0.5), 7])),
        "price": maybe(chance.choice(prices)),
        "more": chance.choice([b"abc", "a"]),
        "ok": maybe(chance.random() < 0.5),
        "kind": chance.choice(["VIEW", "PAY"]),
        "day": maybe(chance.choice(days)),
        "a": maybe(inner),
    }


def avro_record(chance: random.Random) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PARSED, avro_event(chance))
    return out.getvalue()


def prefixed(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def proto_record(chance: random.Random) -> bytes:
    def number() -> int:
        return chance.choice([0, 1, 5, -1, 2**31, 2**32 + 7, -(2**63), 2**63 - 1, chance.randrange(10**6)])

    days = ["2026-01-02T03:04:05Z", "2026-01-02T03:04", "nonsense", ""]
    parts = [
        varint(1 << 3) + varint(chance.choice([0, 10**12, CLOCK_MS, CLOCK_MS + 10**9, number()])),
        prefixed(2, texts(chance).encode()),
        varint(3 << 3) + varint(number()),
        varint(4 << 3 | 5) + np.float32(chance.choice([0.1, 3e38, np.inf, -0.0])).tobytes(),
        prefixed(5, chance.choice([b"12.5", b"-1e2", b"x", b"", b"1" * 70, b"123456789.1"])),
        varint(6 << 3) + varint(chance.choice([0, 1, 7])),
        varint(7 << 3) + varint(chance.choice([0, 5, 6])),
        prefixed(8, chance.choice(days).encode()),
        prefixed(900, prefixed(2, prefixed(1, texts(chance).encode()) if chance.random() < 0.7 else b"")),
        prefixed(900, varint(1 << 3) + varint(number())),
        prefixed(10, varint(5) * 3),
        varint(11 << 3 | 1) + b"12345678",
        varint(12 << 3 | 5) + b"1234",
    ]
    chosen = [part for part in parts if chance.random() < 0.85] + [prefixed(5, b"1.25")] * (chance.random() < 0.7)
    if chance.random() < 0.2:
        chance.shuffle(chosen)
    return b"\0\0\0\0\1\0" + b"".join(chosen)


def batch_of(records: Sequence[bytes]) -> RawBatch:
    count = len(records)
    values = pa.array(records, pa.large_binary())
    return RawBatch(values, pa.array([0] * count, pa.int32()), pa.array(range(count)), CLOCK_MS)


def check(decoder: Decoder, reference: Callable[[bytes | None, int], Any], records: Sequence[bytes]) -> int:
    """Check that both say the same of each record; return the number of events."""
    decoded = decode_and_project(decoder, batch_of(records), STREAM)
    columns = [decoded.events.column(i) for i in range(len(STREAM.fields))]
    raw = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in columns]
    rows = iter(zip(*(column.to_pylist() for column in raw), strict=True))
    dead = iter(decoded.dead.to_pylist())
    for n, record in enumerate(records):
        expected = reference(record, CLOCK_MS)
        if isinstance(expected, RejectedRecord):
            assert next(dead) == {"row": n, "code": expected.code.value, "reason": expected.reason}, record
        else:
            assert next(rows) == expected, record
    return int(decoded.events.num_rows)


def avro_decoder() -> AvroDecoder:
    decoder = Avro(Bare(json.dumps(AVRO))).decoder(STREAM, limits=DecodeLimits(), extra_fields=ExtraFields.IGNORE)
    assert isinstance(decoder, AvroDecoder)
    return decoder


def proto_decoder() -> ProtobufDecoder:
    schema = parse_proto_schema(PROTO)
    return ProtobufDecoder(STREAM, schema, "schema 1", 5, limits=DecodeLimits(), extra_fields=ExtraFields.IGNORE)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("spoiled", [0.0, 0.5])
def test_avro(spoiled: float) -> None:
    chance, decoder = random.Random(1), avro_decoder()
    for _ in range(NIGHTLY):
        records = [avro_record(chance) for _ in range(1_500)]
        records = [spoil(record, chance, 0) if chance.random() < spoiled else record for record in records]
        assert check(decoder, decoder._decode_one, records) > 100


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("spoiled", [0.0, 0.5])
def test_protobuf(spoiled: float) -> None:
    chance, decoder = random.Random(2), proto_decoder()
    for _ in range(NIGHTLY):
        records = [proto_record(chance) for _ in range(1_500)]
        records = [spoil(record, chance, 6) if chance.random() < spoiled else record for record in records]
        assert check(decoder, decoder.decode_one, records) > 100


def test_records_without_a_mistake_are_not_left_to_the_references() -> None:
    plain = {"skipped": [5, None, {"k": b"v"}], "nulls": [], "ts": 10**15, "user": "é", "count": 5, "risk": 0.5}
    plain |= {"price": Decimal("1.250"), "more": b"abc", "ok": True, "kind": "VIEW", "day": 9, "a": None}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PARSED, plain)
    record = b"\0\0\0\0\1\0\x08\x05" + prefixed(2, "é".encode()) + prefixed(5, b"1.25") + varint(3 << 3) + b"\x05"
    for decoder, one in ((avro_decoder(), out.getvalue()), (proto_decoder(), record)):
        called: list[bytes | None] = []
        name = "_decode_one" if isinstance(decoder, AvroDecoder) else "decode_one"
        setattr(decoder, name, lambda record, _clock, called=called: called.append(record))
        batch = RawBatch(
            pa.array([one] * 40, pa.large_binary()), pa.array([0] * 40, pa.int32()), pa.array(range(40)), CLOCK_MS
        )
        assert decoder.decode(batch).events.num_rows == 40
        assert not called
