"""Avro: what a record is read as, that hostile bytes cost no more than themselves, and that the columns say of every
record what the definition of one record says. Everything is written by fastavro, which shares no code with the decoder.
"""

from __future__ import annotations

import io
import json
import struct
import time
import uuid
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.decode.formats import Avro, Bare, Confluent, Container, SingleObject
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.errors import ConfigError
from streamcore.schema import StreamSchema

MakeFormat = Callable[..., Any]
Value = Mapping[str, object]

SCHEMA = StreamSchema.parse(
    {
        "name": "t",
        "event_time": "ts",
        "keys": [[]],
        "zone": "Europe/London",
        "fields": {
            "ts": "timestamp not null",
            "s": "string",
            "n": "long",
            "d": "double",
            "m": "decimal(9,2)",
            "b": "boolean",
            "e": "string",
            "city": {"type": "string", "from": "address.city"},
        },
    }
)
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "namespace": "shop",
    "fields": [
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "s", "type": ["null", "string"]},
        {"name": "skipped", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "n", "type": ["long", "null"]},
        {"name": "d", "type": ["null", "double", "int"]},
        {"name": "m", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}]},
        {"name": "b", "type": "boolean"},
        {"name": "e", "type": {"type": "enum", "name": "Kind", "symbols": ["view", "buy"]}},
        {
            "name": "address",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Address",
                    "fields": [{"name": "zip", "type": "int"}, {"name": "city", "type": ["null", "string"]}],
                },
            ],
        },
    ],
}
GOOD: dict[str, Any] = {
    "ts": 1_700_000_000_000,
    "s": "x",
    "skipped": [],
    "n": 7,
    "d": 1.5,
    "m": Decimal("12.250"),
    "b": True,
    "e": "buy",
    "address": {"zip": 5, "city": "York"},
}
READ = {"ts": 1_700_000_000_000, "s": "x", "n": 7, "d": 1.5, "m": 1225, "b": True, "e": "buy", "city": "York"}
BARE = Avro(Bare(json.dumps(AVRO)))
IN_FILES = Avro(Container())


def datum(value: Value = GOOD, schema: Any = AVRO) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def container(*values: Value, schema: Any = AVRO, codec: str = "null") -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, values, codec=codec)
    return out.getvalue()


def stream(kind: str, **more: Any) -> StreamSchema:
    return StreamSchema.parse(
        {"name": "t", "event_time": "ts", "keys": [[]], "fields": {"ts": "timestamp not null", "x": kind}, **more}
    )


def record_schema(kind: Any) -> dict[str, Any]:
    fields = [{"name": "ts", "type": "long"}, {"name": "x", "type": kind}]
    return {"type": "record", "name": "R", "fields": fields}


def small_file(meta: Mapping[bytes, bytes], block: bytes, count: int = 1, *, size: int | None = None) -> bytes:
    """Return a container file by hand, so that it may lie."""
    sync = b"0123456789abcdef"
    pairs = b"".join(varint(len(part)) + part for pair in meta.items() for part in pair)
    head = b"Obj\x01" + varint(len(meta)) + pairs + b"\x00" + sync
    return head + varint(count) + varint(len(block) if size is None else size) + block + sync


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


@pytest.mark.parametrize("copies", [1, 40], ids=["one", "many"])
@pytest.mark.parametrize("framing", ["bare", "container", "single-object", "confluent"])
def test_a_record_decodes_in_every_framing(make_format: MakeFormat, framing: str, copies: int) -> None:
    text = json.dumps(AVRO)
    fingerprint = fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(AVRO), "CRC-64-AVRO")
    written, record = {
        "bare": (BARE, datum()),
        "container": (IN_FILES, container(GOOD)),
        "single-object": (
            Avro(
                SingleObject(
                    (json.dumps(record_schema("int")).replace('"x"', '"s"').replace('"int"', '"string"'), text)
                ),
            ),
            b"\xc3\x01" + bytes.fromhex(fingerprint) + datum(),
        ),
        "confluent": (Avro(Confluent({7: text, 300: text})), b"\x00" + (300).to_bytes(4, "big") + datum()),
    }[framing]
    decoded = make_format(SCHEMA, written).agree([record, b"\xff", *[record] * copies])
    assert decoded.events.select(SCHEMA.names).to_pylist() == [READ] * (copies + 1)
    assert decoded.dead.column("row").to_pylist() == [1]


LOCAL_MILLIS = {"type": "long", "logicalType": "local-timestamp-millis"}
LOCAL_MICROS = {"type": "long", "logicalType": "local-timestamp-micros"}


def decimals(precision: int, scale: int, size: int = 0) -> dict[str, object]:
    of_bytes: dict[str, object] = {"type": "fixed", "name": "F", "size": size} if size else {"type": "bytes"}
    return of_bytes | {"logicalType": "decimal", "precision": precision, "scale": scale}


INSTANT = datetime(2026, 7, 31, 12, 0, 0, 123999, UTC)
MS = 1_785_499_200_123
CASES: list[tuple[str, Any, object, object]] = [
    ("timestamp", {"type": "long", "logicalType": "timestamp-millis"}, INSTANT, MS),
    ("timestamp", {"type": "long", "logicalType": "timestamp-micros"}, INSTANT, MS),
    ("timestamp", {"type": "long", "logicalType": "timestamp-nanos"}, 1_785_499_200_123_999_999, MS),
    ("timestamp", LOCAL_MILLIS, INSTANT.replace(tzinfo=None), MS - 3_600_000),
    ("timestamp", LOCAL_MICROS, INSTANT.replace(tzinfo=None), MS - 3_600_000),
    ("timestamp", {"type": "int", "logicalType": "date"}, date(2026, 7, 31), 1_785_452_400_000),
    ("timestamp", "long", MS, MS),
    ("timestamp", "string", "2026-07-31T12:00:00.123Z", MS),
    ("timestamp", "string", "2026-07-31 13:00:00.123", MS),
    ("timestamp", "long", -1, "out_of_range"),
    ("timestamp", {"type": "long", "logicalType": "timestamp-micros"}, -1, "out_of_range"),
    ("timestamp", LOCAL_MICROS, 2**62, "out_of_range"),
    ("timestamp", {"type": "int", "logicalType": "date"}, 2**31 - 1, "out_of_range"),
    ("timestamp", "string", "2026-02-30T12:00:00Z", "bad_timestamp"),
    ("long", "int", -(2**31), -(2**31)),
    ("long", "long", -(2**63), -(2**63)),
    ("long", {"type": "long", "logicalType": "unheard-of"}, 5, 5),
    ("double", "float", 0.1, struct.unpack("<f", struct.pack("<f", 0.1))[0]),
    ("double", "double", -0.0, -0.0),
    ("double", "long", 2**53 + 1, float(2**53)),
    ("double", "double", float("nan"), "out_of_range"),
    ("double", "float", float("-inf"), "out_of_range"),
    ("decimal(9,2)", "int", 5, 500),
    ("decimal(9,2)", "long", 12_345_678, "out_of_range"),
    ("decimal(9,2)", "string", "12.5", 1250),
    ("decimal(9,2)", "string", "12,5", "wrong_type"),
    ("decimal(9,2)", decimals(4, 0), Decimal(-3), -300),
    ("decimal(9,2)", decimals(9, 4), Decimal("1.2300"), 123),
    ("decimal(9,2)", decimals(9, 4), Decimal("1.2345"), "out_of_range"),
    ("decimal(9,2)", decimals(99, 4), Decimal(10) ** 60, "out_of_range"),
    ("decimal(9,2)", decimals(20, 2, 12), Decimal("-1.25"), -125),
    ("decimal(9,2)", decimals(9, 2, 4), Decimal("-1.25"), -125),
    ("string", {"type": "string", "logicalType": "uuid"}, str(uuid.UUID(int=7)), str(uuid.UUID(int=7))),
    ("string", "string", "\u00e9\x00", "\u00e9\x00"),
    ("string", ["null", "string", {"type": "enum", "name": "E", "symbols": ["a"]}], None, None),
    ("string not null", ["null", "string"], None, "missing_field"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "avro", "value", "found"), CASES, ids=lambda value: str(value)[:40])
@pytest.mark.quick_cases(9)
def test_an_avro_type_converts_to_a_field_by_the_rules_of_json(
    make_format: MakeFormat, kind: str, avro: Any, value: object, found: object
) -> None:
    both = make_format(stream(kind, zone="Europe/London"), Avro(Bare(json.dumps(record_schema(avro)))))
    record = datum({"ts": 1, "x": value}, record_schema(avro))
    for records in ([record], [record] * 20):
        decoded = both.agree(records)
        dead = decoded.dead.column("code").to_pylist()
        assert (dead or decoded.events.column("x").to_pylist()) == [found] * len(records)


def test_a_uuid_of_sixteen_bytes_decodes_to_its_text(make_format: MakeFormat) -> None:
    schema = record_schema({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"})
    record = varint(1) + uuid.UUID(int=7).bytes
    decoded = make_format(stream("string"), Avro(Bare(json.dumps(schema)))).agree([record] * 20)
    assert decoded.events.column("x").to_pylist() == [str(uuid.UUID(int=7))] * 20


@pytest.mark.parametrize("framing", ["bare", "container"])
def test_a_truncated_record_is_a_dead_letter(make_format: MakeFormat, framing: str) -> None:
    record, written = (datum(), BARE) if framing == "bare" else (container(GOOD), IN_FILES)
    both = make_format(SCHEMA, written)
    cuts = [record[:n] for n in range(len(record))]
    decoded = both.agree([record, *cuts, *[record] * 20])
    assert decoded.dead.column("row").to_pylist() == [*range(1, len(cuts) + 1)]
    assert decoded.events.num_rows == 21


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_a_compressed_container_decodes(make_format: MakeFormat, codec: str) -> None:
    plain = container(GOOD)
    block = datum()
    packed = {
        "null": block,
        "deflate": zlib.compress(block, wbits=-15),
        "snappy": pa.compress(block, "snappy", asbytes=True) + zlib.crc32(block).to_bytes(4, "big"),
        "zstandard": pa.compress(block, "zstd", asbytes=True),
    }[codec]
    record = small_file({b"avro.schema": json.dumps(AVRO).encode(), b"avro.codec": codec.encode()}, packed)
    decoded = make_format(SCHEMA, IN_FILES).agree([record, plain])
    assert decoded.events.select(SCHEMA.names).to_pylist() == [READ, READ]


@pytest.mark.slow
def test_a_decompression_bomb_is_rejected_without_using_memory(make_format: MakeFormat) -> None:
    zeros = bytes(200_000_000)
    text = json.dumps(AVRO).encode()
    bombs = {
        b"deflate": zlib.compress(zeros, wbits=-15),
        b"snappy": varint(10**11)[:5] + b"\x00" * 20,
        b"zstandard": pa.compress(zeros, "zstd", asbytes=True),
    }
    del zeros
    both = make_format(SCHEMA, IN_FILES)
    before = pa.total_allocated_bytes()
    records = [small_file({b"avro.schema": text, b"avro.codec": codec}, bomb) for codec, bomb in bombs.items()]
    assert all(len(record) < 256 * 1024 for record in records)
    codes = both.codes(container(GOOD), *records)
    assert set(codes) <= {"too_large", "not_avro"}
    assert len(codes) == len(records)
    assert pa.total_allocated_bytes() - before < 4 << 20


def test_a_container_has_exactly_one_record(make_format: MakeFormat) -> None:
    both = make_format(SCHEMA, IN_FILES)
    one = container(GOOD)
    assert both.codes(container(), container(GOOD, GOOD), one, one + one) == ["not_one_record"] * 3
    twice = io.BytesIO()
    fastavro.writer(twice, AVRO, [GOOD, GOOD], sync_interval=1)  # two blocks of one record
    assert both.codes(twice.getvalue()) == ["not_one_record"]


CHAIN = [
    {
        "type": "record",
        "name": f"R{n}",
        "fields": [{"name": "a", "type": f"R{n - 1}"}, {"name": "b", "type": f"R{n - 1}"}],
    }
    for n in range(1, 41)
]
LEAF = {"type": "record", "name": "R0", "fields": [{"name": "z", "type": "null"}]}


def nested_schema(leaf: Mapping[str, object]) -> dict[str, Any]:
    """Return a record of 2**40 leaves in some lines of schema."""
    declared: list[Any] = [leaf, *CHAIN]
    return {
        "type": "record",
        "name": "Top",
        "fields": [
            {"name": "ts", "type": "long"},
            *({"name": f"f{n}", "type": ["null", kind]} for n, kind in enumerate(declared)),
            {"name": "bomb", "type": "R40"},
        ],
    }


HOSTILE: dict[str, tuple[Any, bytes]] = {
    "an array of 2**62 nulls": (record_schema({"type": "array", "items": "null"}), varint(1) + varint(2**62) + b"\x00"),
    "an array of 2**62 texts": (record_schema({"type": "array", "items": "string"}), varint(1) + varint(2**62)),
    "a text of 2**62 bytes": (record_schema("string"), varint(1) + varint(2**62)),
    "a text of -1 bytes": (record_schema("string"), varint(1) + varint(-1)),
    "a block of -2**62 bytes": (
        record_schema({"type": "array", "items": "int"}),
        varint(1) + varint(-1) + varint(-(2**62)),
    ),
    "a map of 2**62 entries": (record_schema({"type": "map", "values": "null"}), varint(1) + varint(2**62)),
    "a number without end": (record_schema("int"), varint(1) + b"\xff" * 1000),
    "a number of 70 bits": (record_schema("int"), b"\xff" * 9 + b"\x7f\x00"),
    "2**40 empty records": (nested_schema(LEAF), varint(1) + b"\x00" * 41),
    "2**40 booleans": (
        nested_schema({"type": "record", "name": "R0", "fields": [{"name": "z", "type": "boolean"}]}),
        varint(1) + b"\x00" * 100_000,
    ),
    "a list without end": (
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "ts", "type": "long"}, {"name": "next", "type": ["null", "R"]}],
        },
        (varint(1) + varint(1)) * 50_000,
    ),
    "arrays in arrays": (
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "ts", "type": "long"}, {"name": "x", "type": {"type": "array", "items": "R"}}],
        },
        (varint(1) + varint(1)) * 50_000,
    ),
    "many empty fields in many items": (
        record_schema(
            {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "I",
                    "fields": [{"name": f"f{n}", "type": "null"} for n in range(2_000)]
                    + [{"name": "b", "type": "boolean"}],
                },
            }
        ),
        varint(1) + varint(100_000) + b"\x00" * 100_001,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_bytes_are_rejected_in_bounded_time(make_format: MakeFormat, what: str) -> None:
    avro, record = HOSTILE[what]
    time_only = StreamSchema.parse(
        {"name": "t", "event_time": "ts", "keys": [[]], "fields": {"ts": "timestamp not null"}}
    )
    in_file = small_file({b"avro.schema": json.dumps(avro).encode()}, record)
    for written, one in ((Avro(Bare(json.dumps(avro))), record), (Avro(), in_file)):
        both = make_format(time_only, written)
        begin = time.process_time()
        codes = both.codes(one, *[one] * 20)
        assert set(codes) <= {"not_avro", "too_deep"}
        assert time.process_time() - begin < 20


SCHEMAS = {
    "no JSON": b"{",
    "deep JSON": b"[" * 100_000,
    "deep types": (b'{"type":' * 80) + b'"int"' + b"}" * 80,
    "a record in itself": b'{"type":"record","name":"A","fields":[{"name":"a","type":"A"}]}',
    "an unknown name": b'{"type":"record","name":"A","fields":[{"name":"a","type":"B"}]}',
    "a union in a union": b'{"type":"record","name":"A","fields":[{"name":"a","type":["null",["int"]]}]}',
    "a fixed of minus one": b'{"type":"fixed","name":"f","size":-1}',
    "a field twice": b'{"type":"record","name":"A","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
    "a number": b"5",
    "not UTF-8": b'"\xff"',
}  # fmt: skip


@pytest.mark.parametrize("what", SCHEMAS)
def test_an_invalid_schema_is_a_dead_letter(make_format: MakeFormat, what: str) -> None:
    record = small_file({b"avro.schema": SCHEMAS[what]}, b"\x00" * 10)
    assert make_format(SCHEMA, IN_FILES).codes(record, *[record] * 20)[0] in ("not_avro", "not_utf8")


@pytest.mark.parametrize(
    ("avro", "code"),
    [
        ("string", "wrong_type"),
        (record_schema("double"), "wrong_type"),
        ({"type": "record", "name": "R", "fields": [{"name": "x", "type": "long"}]}, "missing_field"),
    ],
)
def test_an_embedded_schema_that_does_not_fit_is_a_dead_letter_and_one_of_a_file_an_error(
    make_format: MakeFormat, avro: Any, code: str
) -> None:
    record = small_file({b"avro.schema": json.dumps(avro).encode()}, b"\x00")
    assert make_format(stream("long"), Avro()).codes(record) == [code]
    with pytest.raises(ConfigError, match="stream t: avro: schema"):
        make_format(stream("long"), Avro(Bare(json.dumps(avro))))


def test_fields_that_the_stream_does_not_declare_can_be_rejected(make_format: MakeFormat) -> None:
    both = make_format(SCHEMA, IN_FILES, extra_fields=ExtraFields.REJECT)
    assert both.codes(container(GOOD)) == ["extra_field"]
    with pytest.raises(ConfigError, match="skipped"):
        make_format(SCHEMA, BARE, extra_fields=ExtraFields.REJECT)


def test_a_dead_letter_names_an_unknown_schema_or_prefix(make_format: MakeFormat) -> None:
    both = make_format(SCHEMA, Avro(Confluent({7: json.dumps(AVRO)})))
    unknown = b"\x00" + (8).to_bytes(4, "big") + datum()
    assert both.codes(unknown, b"\x01" + unknown[1:], b"", b"\x00\x00") == ["unknown_schema"] + ["not_avro"] * 3
    assert "no schema 8 " in both.agree([unknown]).dead.column("reason")[0].as_py()


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (Avro(Bare("{")), "no JSON"),
        (Avro(SingleObject(())), "no schemas"),
        (Avro(Confluent({})), "no schemas"),
        (Avro(Confluent({-1: json.dumps(AVRO)})), "an id from 0 to"),
    ],
)
def test_an_invalid_format_is_rejected_when_it_is_built(make_format: MakeFormat, written: Avro, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_format(SCHEMA, written)


@pytest.mark.parametrize("framing", ["bare", "container"])
def test_ordinary_records_take_the_columnar_path(
    make_format: MakeFormat, monkeypatch: pytest.MonkeyPatch, framing: str
) -> None:
    both = make_format(SCHEMA, BARE if framing == "bare" else IN_FILES)
    monkeypatch.setattr(both.fast, "_decode_one", None)
    some = [GOOD, GOOD | {"s": None, "m": None, "address": None}, GOOD | {"d": 5, "n": None, "s": "\u00e9" * 200}]
    records = [(datum if framing == "bare" else container)(value) for value in some * 10]
    assert both.fast.decode(both.batch(records)).events.num_rows == len(records)


values = st.fixed_dictionaries(
    {
        "ts": st.one_of(st.integers(0, 1_800_000_400_000), st.integers(-(2**63), 2**63 - 1)),
        "s": st.one_of(st.none(), st.text(max_size=10)),
        "skipped": st.one_of(st.just([]), st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=3)),
        "n": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        "d": st.one_of(st.none(), st.floats(), st.integers(-5, 5)),
        "m": st.one_of(st.none(), st.decimals(-999_999_999, 999_999_999, places=3), st.decimals(-9, 9, places=2)),
        "b": st.booleans(),
        "e": st.sampled_from(["view", "buy"]),
        "address": st.one_of(
            st.none(),
            st.fixed_dictionaries({"zip": st.integers(0, 9), "city": st.one_of(st.none(), st.text(max_size=4))}),
        ),
    }
)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), events=st.lists(values, min_size=1, max_size=25), copies=st.sampled_from([0, 20]))
def test_the_columnar_decoder_equals_the_reference(
    make_format: MakeFormat, data: st.DataObject, events: list[Value], copies: int
) -> None:
    in_files = data.draw(st.booleans())
    write = container if in_files else datum
    records = [write(GOOD)] * copies + [write(event) for event in events]
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(records) - 1))
        record = records[place]
        cut = data.draw(st.integers(0, len(record)))
        records[place] = record[:cut] + data.draw(st.binary(max_size=3)) + record[cut + data.draw(st.integers(0, 3)) :]
    make_format(SCHEMA, IN_FILES if in_files else BARE).agree(records)


@settings(max_examples=150, deadline=None)
@given(
    records=st.lists(st.one_of(st.none(), st.binary(max_size=60)), max_size=40),
    magic=st.sampled_from([b"", b"Obj\x01"]),
)
def test_no_bytes_make_the_decoder_raise(make_format: MakeFormat, records: list[bytes | None], magic: bytes) -> None:
    written = IN_FILES if magic else BARE
    make_format(SCHEMA, written).agree([None if record is None else magic + record for record in records])


@settings(max_examples=100, deadline=None)
@given(moment=st.datetimes(datetime(1970, 1, 2), datetime(2026, 12, 31)))
def test_local_times_are_read_in_the_time_zone_of_the_schema(make_format: MakeFormat, moment: datetime) -> None:
    avro = record_schema({"type": "long", "logicalType": "local-timestamp-micros"})
    records = [datum({"ts": 1, "x": moment + timedelta(minutes=n)}, avro) for n in range(20)]
    make_format(stream("timestamp", zone="Europe/London"), Avro(Bare(json.dumps(avro)))).agree(records)


@pytest.mark.slow
def test_a_record_of_twenty_megabytes_is_one_dead_letter(make_format: MakeFormat) -> None:
    both = make_format(SCHEMA, BARE, limits=DecodeLimits())
    decoded = both.agree([datum(), b"\x00" * 20_000_000, *[datum()] * 20])
    assert decoded.dead.column("code").to_pylist() == ["too_large"]
    assert decoded.events.num_rows == 21
