"""Records that name their schema by an id: divided among schemas, and rejected with the id where one does not fit."""

from __future__ import annotations

import io
import json
import uuid
from dataclasses import replace
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from streamcore.decode.formats import Registry
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.stream_selection import NO_STREAM, UNREADABLE, OwnEvents, StreamSelection, TopicStream
from streamcore.decode.types import Decoded, RawBatch
from streamcore.schema import StreamSchema
from streamcore.schema_registry.schemas import RegisteredSchema, SchemaReference, SchemaType
from tests.harness.decode.registered_records import CLOCK_MS, Schemas, decode_with, prefix

STREAM = StreamSchema.parse(
    {
        "name": "shop",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {
            "ts": "timestamp not null",
            "user": "string not null",
            "amount": "long",
            "city": {"type": "string", "from": "address.city"},
        },
    }
)
TIME = {"type": "long", "logicalType": "timestamp-millis"}


def avro(number: int, *fields: tuple[str, object], references: tuple[SchemaReference, ...] = ()) -> RegisteredSchema:
    text = {"type": "record", "name": "Event", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    return RegisteredSchema(number, "AVRO", json.dumps(text), references)


def written(schema: RegisteredSchema, *others: str, **values: object) -> bytes:
    out, named = io.BytesIO(), dict[str, Any]()
    for other in others:
        fastavro.parse_schema(json.loads(other), named)
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema.text), named), values)
    assert isinstance(schema.id, int)
    return prefix(schema.id) + out.getvalue()


def decode(
    schemas: Schemas, records: list[bytes | None], extra: ExtraFields = ExtraFields.IGNORE, decoder: Any = None
) -> Decoded:
    decoder = decoder or Registry().decoder(STREAM, limits=DecodeLimits(), extra_fields=extra)
    return decode_with(decoder, STREAM, schemas, records)


ONE = avro(7, ("ts", TIME), ("user", "string"), ("amount", "int"))
TWO = avro(300, ("extra", "double"), ("user", "string"), ("amount", ["null", "long"]), ("ts", TIME))


def test_records_of_several_schemas_keep_their_order() -> None:
    records: list[bytes | None] = []
    for n in range(100):
        if n % 3:
            records.append(written(TWO, ts=n, user=f"u{n}", amount=None if n % 2 else n, extra=1.5))
        else:
            records.append(written(ONE, ts=n, user=f"u{n}", amount=n))
    records += [None, b"", b"\0\0\0", b"{}", b"\1" + prefix(7)]
    decoded = decode(Schemas(ONE, TWO), records)
    assert decoded.events.column("user").to_pylist() == [f"u{n}" for n in range(100)]
    expected = [n if n % 3 == 0 or n % 2 == 0 else None for n in range(100)]
    assert decoded.events.column("amount").to_pylist() == expected
    assert decoded.dead.column("row").to_pylist() == [100, 101, 102, 103, 104]
    assert decoded.dead.column("code").to_pylist() == ["no_value", *["no_schema_id"] * 4]


def test_an_id_is_looked_up_once_and_stays_absent_in_its_cut() -> None:
    schemas = Schemas(ONE)
    decoder = Registry().decoder(STREAM, limits=DecodeLimits(), extra_fields=ExtraFields.IGNORE)
    good, unknown = written(ONE, ts=1, user="a", amount=1), prefix(4_294_967_295) + b"x"
    for _ in range(3):
        decoded = decode(schemas, [good, unknown], decoder=decoder)
        assert decoded.dead.to_pylist() == [
            {"row": 1, "code": "unknown_schema", "reason": "the schema registry has no schema 4294967295"}
        ]
    assert sorted(schemas.asked) == [7, 4_294_967_295]
    # A replay of a cut in which the id was absent, by a process that knows it from a later cut.
    replayed = Schemas(ONE)
    replayed.pinned = {7}
    assert decode(replayed, [good], decoder=decoder).dead.column("code").to_pylist() == ["unknown_schema"]
    assert decode(Schemas(ONE), [good], decoder=decoder).dead.num_rows == 0


NEEDED = (("ts", TIME), ("user", "string"))


@pytest.mark.parametrize(
    ("schema", "code", "parts"),
    [
        (avro(9, *NEEDED, ("amount", "double")), "wrong_type", ("schema 9", "amount", "double", "long")),
        (avro(9, ("ts", TIME)), "missing_field", ("schema 9", "user", "string")),
        (avro(9, *NEEDED, ("address", "string")), "wrong_type", ("schema 9", "city", "string", "record")),
        (RegisteredSchema(9, "AVRO", "{"), "unusable_schema", ("schema 9",)),
        (RegisteredSchema(9, "THRIFT", "struct"), "unusable_schema", ("schema 9", "THRIFT")),
        (RegisteredSchema(9, "PROTOBUF", "message {"), "unusable_schema", ("schema 9",)),
    ],
)  # fmt: skip
def test_a_schema_that_does_not_fit_rejects_its_records_alone(
    schema: RegisteredSchema, code: str, parts: tuple[str, ...]
) -> None:
    records: list[bytes | None] = [prefix(9) + b"whatever", written(ONE, ts=1, user="a", amount=1)]
    (dead,) = decode(Schemas(ONE, schema), records).dead.to_pylist()
    assert (dead["row"], dead["code"]) == (0, code)
    assert all(part in dead["reason"] for part in parts), dead["reason"]


def test_a_schema_uses_types_of_others() -> None:
    city = '{"type": "enum", "name": "geo.City", "symbols": ["ROME", "OSLO"]}'
    address = '{"type": "record", "name": "geo.Address", "fields": [{"name": "city", "type": "City"}]}'
    references = (SchemaReference("geo.City", city), SchemaReference("geo.Address", address))
    schema = avro(5, ("ts", TIME), ("user", "string"), ("address", ["null", "geo.Address"]), references=references)
    records: list[bytes | None] = [
        written(schema, city, address, ts=1, user="a", address={"city": "OSLO"}),
        written(schema, city, address, ts=2, user="b", address=None),
    ]
    assert decode(Schemas(schema), records).events.column("city").to_pylist() == ["OSLO", None]
    alone = RegisteredSchema(5, "AVRO", schema.text)
    assert decode(Schemas(alone), records).dead.column("code").to_pylist() == ["unusable_schema"] * 2


def test_the_records_of_a_json_schema_are_json() -> None:
    schema = RegisteredSchema(3, "JSON", '{"type": "object"}')
    records: list[bytes | None] = [
        prefix(3) + b'{"ts": 5, "user": "a", "address": {"city": "Rome"}, "more": []}',
        prefix(3) + b'{"ts": 5, "user": 1}',
    ]
    decoded = decode(Schemas(schema), records)
    assert decoded.events.column("city").to_pylist() == ["Rome"]
    assert decoded.dead.column("code").to_pylist() == ["wrong_type"]
    assert decode(Schemas(schema), records, ExtraFields.REJECT).dead.column("code").to_pylist() == [
        "extra_field",
        "wrong_type",
    ]


# --- ids in a header ------------------------------------------------------------------------------------------------

GUID = "5f1b3a52-0f3c-4e7d-9a57-6f0d6e1c2b3a"
BY_GUID = b"\1" + uuid.UUID(GUID).bytes


def decode_headers(schemas: Schemas, records: list[tuple[bytes | None, bytes | None]], **kind: bool) -> Decoded:
    """Decode records, each with the header of its schema's id and its value."""
    format_ = Registry(**kind) if kind else Registry(in_header=True)
    decoder = format_.decoder(STREAM, limits=DecodeLimits(), extra_fields=ExtraFields.IGNORE)
    headers = {"__value_schema_id": [header for header, _ in records]}
    return decode_with(decoder, STREAM, schemas, [value for _, value in records], headers)


def test_the_id_of_a_schema_may_be_in_a_header() -> None:
    """By its number and by its GUID, with records of both among others that begin with it; without the option the
    header means nothing."""
    schemas = Schemas(ONE, TWO, replace(TWO, id=GUID))
    one, two = written(ONE, ts=1, user="a", amount=1)[5:], written(TWO, ts=2, user="b", amount=2, extra=1.5)[5:]
    records = [
        (prefix(7), one),
        (BY_GUID, two),
        (None, prefix(300) + two),
        (prefix(9), one),
        (b"\1" + bytes(16), two),
        (b"\2" + bytes(16), two),
        (b"", one),
        (None, one),
        (BY_GUID, None),
    ]
    decoded = decode_headers(schemas, [*records, (prefix(7), one)])
    assert decoded.events["user"].to_pylist() == ["a", "b", "b", "a"]
    assert decoded.events["amount"].to_pylist() == [1, 2, 2, 1]
    rejected = [(row["row"], row["code"], row["reason"]) for row in decoded.dead.to_pylist()]
    assert [row[:2] for row in rejected] == [
        *[(n, "unknown_schema") for n in (3, 4)],
        *[(n, "no_schema_id") for n in (5, 6, 7)],
        (8, "no_value"),
    ]
    assert "00000000-0000" in rejected[1][2]
    assert "__value_schema_id" in rejected[2][2]
    ignored = decode_headers(schemas, records[:3], in_header=False)
    assert ignored.dead["row"].to_pylist() == [0, 1]


def test_a_header_has_the_message_of_a_record_of_protobuf() -> None:
    proto = "message Other { } message Shop { int64 ts = 1; string user = 2; }"
    schemas = Schemas(RegisteredSchema(GUID, SchemaType.PROTOBUF, 'syntax = "proto3"; ' + proto))
    decoded = decode_headers(schemas, [(BY_GUID + b"\x02\x02", b"\x08\x05\x12\x01a")])
    assert decoded.events.select(["ts", "user"]).to_pylist() == [{"ts": 5, "user": "a"}]
    cut_off = decode_headers(schemas, [(BY_GUID + b"\x02", b""), (BY_GUID + b"\x02\x08", b"\x08\x05")])
    assert cut_off.dead["code"].to_pylist() == ["not_protobuf"] * 2


# --- kinds of event by the name of their schema -----------------------------------------------------------------------


def test_the_name_of_a_registered_schema_tells_streams_apart() -> None:
    """Records of Avro, of two messages of one Protobuf file, and of JSON Schema, in one topic."""
    avro = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "at", "type": "long"}]}
    proto = 'syntax = "proto3"; package shop; message Login { int64 at = 1; } message Refund { int64 at = 1; }'
    schemas = Schemas(
        RegisteredSchema(1, SchemaType.AVRO, json.dumps(avro)),
        RegisteredSchema(2, SchemaType.PROTOBUF, proto),
        RegisteredSchema(3, SchemaType.JSON, '{"title": "Session", "type": "object"}'),
        RegisteredSchema(4, SchemaType.AVRO, '"long"'),
        RegisteredSchema(5, SchemaType.AVRO, "{"),
    )
    names = ["shop.Order", "shop.Login", "shop.Refund", "Session"]

    def of_schema(name: str) -> StreamSchema:
        document = {"name": name.lower().replace(".", "_"), "event_time": "at", "keys": [[]]}
        when = {"from": "_schema.name", "equals": name}
        return StreamSchema.parse({**document, "fields": {"at": "timestamp not null"}, "when": when})

    streams = [TopicStream(of_schema(name), Registry()) for name in names]
    records = [
        prefix(3) + b'{"at": 5}',
        prefix(1) + b"\x0a",
        prefix(2) + b"\x02\x02" + b"\x08\x05",  # one index, 1: the second message
        prefix(2) + b"\x00" + b"\x08\x05",
        prefix(2) + b"\x02\x0a" + b"\x08\x05",  # there is no sixth message
        prefix(4) + b"\x0a",
        prefix(5) + b"\x0a",
        prefix(9) + b"\x0a",
        b"x",
        None,
    ]
    count = len(records)
    values, numbers = pa.array(records, pa.large_binary()), pa.array(range(count), pa.int64())
    batch = RawBatch(values, pa.array([0] * count, pa.int32()), numbers, CLOCK_MS, schemas=schemas)
    selected = StreamSelection(streams, DecodeLimits()).select(batch)
    assert selected.owner.tolist() == [3, 0, 2, 1, NO_STREAM, NO_STREAM, *[UNREADABLE] * 4]
    assert selected.dead.column("code").to_pylist() == ["unusable_schema", "unknown_schema", "no_schema_id", "no_value"]
    decoded = OwnEvents(streams[2], DecodeLimits(), ExtraFields.IGNORE).decode(batch.take(pa.array([2])))
    assert decoded.events["at"].to_pylist() == [5]
