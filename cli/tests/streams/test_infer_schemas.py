"""Stream documents of records with schemas: Avro, Protobuf and JSON Schema, and several of them in one topic."""

from __future__ import annotations

import decimal
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest
import yaml

from conftest import NewRegistry, NewTopic
from headgate.errors import InputError
from headgate.main import run
from headgate.records.decoder import EventDecoder
from headgate.streams.inference import infer
from headgate.streams.sample import SampleRecord
from headgate.streams.written_records import observe_written
from streamcore.decode.formats import Avro, Bare, Csv, InputFormat, Registry
from streamcore.decode.scalar import RejectedRecord, StreamRecord
from streamcore.kafka import data_clients as clients
from streamcore.kafka.settings import KafkaSettings
from streamcore.schema import Envelope, StreamSchema
from streamcore.schema_registry.schemas import RegisteredSchema, SchemaReference
from tests.harness.decode.registered_records import Schemas, prefix

NOW_MS = 1_800_000_000_000
AT_MS = 1_790_000_000_000
TIME = {"type": "long", "logicalType": "timestamp-micros"}
PROTO = """syntax = "proto3"; package acme;
message Order {
  string id = 1; int64 created_at = 2; Kind kind = 3; optional double price = 4; Customer customer = 5;
  repeated Line lines = 6; map<string, int32> counts = 7; bytes raw = 8; google.protobuf.Timestamp paid = 9;
}
message Customer { string name = 1; Order last = 2; }
message Line { string sku = 1; sint32 quantity = 2; }
message Refund { string id = 1; int64 created_at = 2; string reason = 3; }
enum Kind { NEW = 0; OLD = 1; }
"""
JSON_SCHEMA = {
    "title": "order",
    "type": "object",
    "required": ["id", "at"],
    "properties": {
        "id": {"type": "string"},
        "at": {"type": "string", "format": "date-time"},
        "total": {"type": ["number", "null"]},
        "count": {"type": "integer"},
        "kind": {"type": "string", "enum": ["new", "old"]},
        "customer": {"$ref": "#/$defs/customer"},
        "address": {"$ref": "address.json"},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "free": {},
    },
    "$defs": {"customer": {"type": "object", "properties": {"name": {"type": "string"}}}},
}
ADDRESS = {"type": "object", "properties": {"city": {"type": "string"}}}


def avro(*fields: tuple[str, object], name: str = "Order") -> str:
    """Return the JSON of an Avro schema."""
    entries = [{"name": field, "type": kind} for field, kind in fields]
    return json.dumps({"type": "record", "name": name, "namespace": "acme", "fields": entries})


def datum(schema: str, value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), value)
    return out.getvalue()


def sample(values: Sequence[bytes | None]) -> list[SampleRecord]:
    return [
        SampleRecord(f"t[0] {n}", StreamRecord(value, None, {}, AT_MS + n, "t", 0, n)) for n, value in enumerate(values)
    ]


def document(
    values: Sequence[bytes | None], *schemas: RegisteredSchema, written: InputFormat | None = None
) -> tuple[StreamSchema, str]:
    """Return the inferred schema and its text; it takes each readable record of the sample."""
    form, records, lookup = written or Registry(), sample(values), Schemas(*schemas)
    observation = observe_written(records, form, lookup, NOW_MS)
    found = infer(observation, "s", "t", from_topic=True, written=True)
    stream = StreamSchema.parse(yaml.safe_load(found.text))
    decoded = EventDecoder(stream, NOW_MS, form, lookup).decode_each([one.record for one in records])
    rejected = [one for one in decoded if isinstance(one, RejectedRecord)]
    assert len(rejected) == len(observation.bad), (rejected, found.text)
    return stream, found.text


def types(stream: StreamSchema) -> dict[str, str]:
    return {one.name: str(one.type) for one in stream.fields}


def line(text: str, name: str) -> str:
    """Return the line of a field, without repeated spaces."""
    (found,) = [" ".join(one.split()) for one in text.splitlines() if one.startswith(f"  {name}: ")]
    return found


SCHEMA = avro(
    ("id", "string"),
    ("created_at", TIME),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}),
    ("price", ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]),
    ("small", "int"),
    ("sent", "long"),
    ("expires", {"type": "long"}),
    ("due", {"type": "int", "logicalType": "date"}),
    ("ratio", ["null", "float"]),
    ("raw", "bytes"),
    ("customer", ["null", {"type": "record", "name": "Customer", "fields": [{"name": "name", "type": "string"}]}]),
    ("tags", {"type": "array", "items": "string"}),
    ("counts", {"type": "map", "values": "long"}),
    ("next", ["null", "Order"]),
)
RECORD: dict[str, Any] = {
    "id": "a",
    "created_at": AT_MS * 1000,
    "kind": "NEW",
    "price": None,
    "small": AT_MS // 1000,
    "sent": 5,
    "expires": AT_MS // 1000,
    "due": 3,
    "ratio": None,
    "raw": b"x",
    "customer": None,
    "tags": ["x", "y"],
    "counts": {"x": 1},
    "next": None,
}


def test_types_are_those_of_an_avro_schema_and_presence_is_that_of_the_sample() -> None:
    records = [RECORD, RECORD | {"id": "b", "price": decimal.Decimal("12.50"), "customer": {"name": "ann"}}]
    values = [prefix(7) + datum(SCHEMA, one) for one in records]
    stream, text = document([*values, None], RegisteredSchema(7, "AVRO", SCHEMA))
    assert types(stream) == {
        "id": "string",
        "created_at": "timestamp",
        "kind": "string",
        "price": "decimal(9,2)",
        "small": "long",
        "sent": "long",
        "expires": "long",
        "due": "timestamp",
        "ratio": "double",
        "customer_name": "string",
        "tags": "array<string>",
        "counts": "map<string,long>",
    }
    assert (stream.event_time, stream.event_id) == ("created_at", "id")
    assert line(text, "price") == "price: decimal(9,2) # 50%, optional, 1 value, such as 12.50"
    assert "50%, optional" in line(text, "customer_name")
    assert "0%, optional" in line(text, "ratio")
    assert "100%, one of NEW, OLD" in line(text, "kind")
    assert "100%, up to 2 elements" in line(text, "tags")
    assert text.startswith("# From t: 2 records, 1 more cannot be read.\n# Written with schema 7 (2).\n"), (
        "a null is one"
    )
    assert "#   raw: bytes (schema 7): no type of a stream fits" in text
    assert "#   next: record inside of itself (schema 7): no type of a stream fits" in text


def test_a_whole_number_is_a_time_if_its_name_and_values_say_so_and_its_type_has_room() -> None:
    schema = avro(("at", "long"), ("small_ts", "int"), ("name", "string"))
    values = [
        prefix(1) + datum(schema, {"at": AT_MS // 1000 + n, "small_ts": AT_MS // 1000, "name": "x"}) for n in (0, 1)
    ]
    stream, text = document(values, RegisteredSchema(1, "AVRO", schema))
    assert types(stream) == {"at": "timestamp", "small_ts": "long", "name": "string"}
    assert "at: {type: timestamp not null, unit: s}" in line(text, "at")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("int", "long", "long"),
        ("long", "double", "double"),
        ("string", ["null", "string"], "string"),
        ("string", {"type": "enum", "name": "E", "symbols": ["a"]}, "string"),
        ("string", TIME, "timestamp"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, "long", "decimal(17,2)"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 4},
            "decimal(8,4)",
        ),
        ("string", "long", ""),
        ("boolean", "long", ""),
        ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, "double", ""),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "double"}, "array<double>"),
        ({"type": "array", "items": "int"}, "int", ""),
    ],
    ids=str,
)
def test_of_several_schemas_the_type_is_what_fits_all(first: object, second: object, expected: str) -> None:
    text_value = "2026-01-01T00:00:00Z" if TIME in (first, second) else "a"
    examples = {"boolean": True, "double": 0.5, "string": text_value}

    def value(kind: Any) -> object:
        match kind:
            case {"logicalType": "decimal"}:
                return decimal.Decimal("1.50")
            case {"type": "enum"}:
                return "a"
            case {"type": "array"}:
                return [1]
            case list():
                return None
        return examples.get(kind, 3) if isinstance(kind, str) else AT_MS * 1000

    schemas = [avro(("at", TIME), ("x", kind)) for kind in (first, second)]
    records = [
        prefix(n) + datum(schema, {"at": AT_MS * 1000, "x": value(kind)})
        for n, (schema, kind) in enumerate(zip(schemas, (first, second), strict=True), 1)
    ]
    stream, text = document(records, *(RegisteredSchema(n, "AVRO", one) for n, one in enumerate(schemas, 1)))
    assert types(stream).get("x", "") == expected, text
    if not expected:
        (left,) = [one for one in text.splitlines() if one.startswith("#   x: ")]
        assert "(schema 1)" in left
        assert "(schema 2)" in left


def test_a_field_that_one_schema_lacks_is_optional_and_kinds_of_records_are_named() -> None:
    order, refund = avro(("at", TIME), ("id", "string")), avro(("at", TIME), ("reason", "string"), name="Refund")
    values = [
        prefix(1) + datum(order, {"at": AT_MS * 1000, "id": "a"}),
        prefix(2) + datum(refund, {"at": AT_MS * 1000, "reason": "b"}),
    ]
    stream, text = document(values, RegisteredSchema(1, "AVRO", order), RegisteredSchema(2, "AVRO", refund))
    assert types(stream) == {"at": "timestamp", "id": "string", "reason": "string"}
    assert "50%, optional" in line(text, "id")
    assert "optional" not in line(text, "at")
    assert "# Records of several kinds: acme.Order (1), acme.Refund (1)." in text
    assert "from: _schema.name" in text


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def proto(*fields: tuple[int, int | bytes]) -> bytes:
    """Return a message of whole numbers and of texts or messages."""
    return b"".join(
        varint(number << 3) + varint(value) if isinstance(value, int) else
        varint(number << 3 | 2) + varint(len(value)) + value
        for number, value in fields
    )  # fmt: skip


def test_types_of_messages_of_protobuf() -> None:
    order = proto((1, b"a"), (2, AT_MS), (3, 1), (5, proto((1, b"ann"))), (6, proto((1, b"s"), (2, 4))))
    values = [prefix(3) + b"\0" + order, prefix(3) + b"\0" + proto((2, AT_MS + 1), (1, b"b"))]
    stream, text = document(values, RegisteredSchema(3, "PROTOBUF", PROTO))
    assert types(stream) == {
        "id": "string",
        "created_at": "timestamp",
        "kind": "string",
        "price": "double",
        "customer_name": "string",
        "lines": "array<struct<sku:string, quantity:long>>",
        "counts": "map<string,long>",
        "paid": "timestamp",
    }
    assert "100%, one of NEW, OLD" in line(text, "kind")
    assert "0%, optional" in line(text, "price")
    assert "#   raw: bytes (schema 3): no type of a stream fits" in text
    assert "record inside of itself" in text
    other = prefix(3) + b"\2\4" + proto((1, b"r"), (2, AT_MS), (3, b"broken"))  # index 2: a line
    _, text = document(
        [*values, other, prefix(3) + b"\2\6" + proto((1, b"r"), (3, b"bad"))], RegisteredSchema(3, "PROTOBUF", PROTO)
    )
    assert "acme.Refund (1)" in text


def test_types_of_a_json_schema() -> None:
    registered = RegisteredSchema(
        5, "JSON", json.dumps(JSON_SCHEMA), (SchemaReference("address.json", json.dumps(ADDRESS)),)
    )
    records: list[dict[str, object]] = [
        {"id": "a", "at": "2026-01-01T00:00:00Z", "total": 1.25, "count": 1, "free": True, "more": 7},
        {"id": "b", "at": "2026-01-02T00:00:00Z", "customer": {"name": "ann"}, "lines": [{"sku": "x"}]},
    ]
    stream, text = document([prefix(5) + json.dumps(one).encode() for one in records], registered)
    found = types(stream)
    assert found["at"] == "timestamp"
    assert found["total"] == "decimal(6,2)", "the schema says number, the values how many digits"
    assert (found["count"], found["kind"], found["free"], found["more"]) == ("long", "string", "boolean", "long")
    assert (found["lines"], found["labels"]) == ("array<struct<sku:string>>", "map<string,string>")
    assert {"city", "either"} <= found.keys()
    assert "0%, optional, one of new, old" in line(text, "kind")
    assert "optional" not in line(text, "at")
    assert stream.event_time == "at"


def test_schemas_of_all_languages_in_one_topic() -> None:
    schema = avro(("id", "string"), ("at", TIME), ("count", "int"))
    values = [
        prefix(1) + datum(schema, {"id": "a", "at": AT_MS * 1000, "count": 1}),
        prefix(5) + json.dumps({"id": "b", "at": "2026-01-02T00:00:00Z", "count": 2}).encode(),
    ]
    stream, _ = document(
        values,
        RegisteredSchema(1, "AVRO", schema),
        RegisteredSchema(5, "JSON", json.dumps(JSON_SCHEMA), (SchemaReference("address.json", json.dumps(ADDRESS)),)),
    )
    assert [types(stream)[name] for name in ("id", "at", "count")] == ["string", "timestamp", "long"]


def test_records_that_cannot_be_read_are_counted() -> None:
    schema = avro(("id", "string"), ("at", TIME))
    good = prefix(1) + datum(schema, {"id": "a", "at": AT_MS * 1000})
    values = [good, good[:-3], prefix(2) + b"x", b"{}", prefix(9) + b"x"]
    _, text = document(
        values,
        RegisteredSchema(1, "AVRO", schema),
        RegisteredSchema(2, "AVRO", '"string"'),
        RegisteredSchema(9, "XML", ""),
    )
    assert text.startswith("# From t: 1 record, 4 more cannot be read.\n")
    with pytest.raises(
        InputError, match=r"no record of the sample can be read: t\[0\] 0: the schema registry has no schema 4"
    ):
        document([prefix(4) + b"x"])
    with pytest.raises(InputError, match="records of text have no schema"):
        document([b"1,2"], written=Csv())


def test_bare_avro_and_changes_of_debezium_have_the_schema_of_the_settings() -> None:
    row = {
        "type": "record",
        "name": "Row",
        "fields": [{"name": "id", "type": "long"}, {"name": "email", "type": "string"}],
    }
    schema = avro(
        ("before", ["null", row]),
        ("after", ["null", "Row"]),
        ("source", {"type": "record", "name": "Source", "fields": [{"name": "table", "type": "string"}]}),
        ("op", "string"),
        ("ts_ms", ["null", "long"]),
    )
    source = {"table": "users"}
    one, other = {"id": 1, "email": "a"}, {"id": 2, "email": "b"}
    values = [
        datum(schema, {"before": None, "after": one, "source": source, "op": "c", "ts_ms": AT_MS}),
        datum(schema, {"before": other, "after": None, "source": source, "op": "d", "ts_ms": AT_MS + 1}),
        None,
    ]
    stream, text = document(values, written=Avro(Bare(schema)))
    assert stream.envelope is Envelope.DEBEZIUM
    assert types(stream) == {
        "before_id": "long",
        "before_email": "string",
        "after_id": "long",
        "after_email": "string",
        "table": "string",
        "op": "string",
        "ts_ms": "timestamp",
    }
    assert "50%, optional" in line(text, "after_id")
    assert "# From t: 2 records." in text


@pytest.mark.kafka
@pytest.mark.registry
@pytest.mark.slow
def test_a_topic_of_a_real_registry(
    tmp_path: Path,
    kafka: KafkaSettings,
    new_topic: NewTopic,
    new_registry: NewRegistry,
    capsys: pytest.CaptureFixture[str],
) -> None:
    registry, topic = new_registry(), new_topic()
    registry.start()
    first, second = avro(("id", "string"), ("at", TIME)), avro(("id", "string"), ("at", TIME), ("n", ["null", "long"]))
    values = [
        prefix(registry.register(f"{topic}-value", first)) + datum(first, {"id": "a", "at": AT_MS * 1000}),
        prefix(registry.register(f"{topic}-value", second)) + datum(second, {"id": "b", "at": AT_MS * 1000, "n": 5}),
        prefix(registry.register("proto", PROTO.replace("google.protobuf.Timestamp paid", "int64 paid"), "PROTOBUF"))
        + b"\2\6" + proto((1, b"c"), (2, AT_MS), (3, b"late")),
        prefix(registry.register("json", '{"type": "object", "properties": {"id": {"type": "string"}}}', "JSON"))
        + b'{"id": "d"}',
    ]  # fmt: skip
    producer = clients.producer(kafka)
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    where = ["--topic", topic, "--bootstrap", kafka.bootstrap]

    assert run(["streams", "infer", *where, "--name", "orders"]) != 0
    assert "say with --settings or --registry how they are written" in capsys.readouterr().err
    assert run(["streams", "infer", *where, "--name", "orders", "--registry", registry.url]) == 0
    text = capsys.readouterr().out
    (tmp_path / "orders.yaml").write_text(text)
    assert types(StreamSchema.parse(yaml.safe_load(text))) == {
        "received": "timestamp",
        "id": "string",
        "at": "timestamp",
        "n": "long",
        "created_at": "timestamp",
        "reason": "string",
    }
    app = {
        "streams": [{"schema_file": str(tmp_path / "orders.yaml"), "topic": topic, "format": {"kind": "registry"}}],
        "schema_registry": {"url": registry.url},
    }
    settings = tmp_path / "app.yaml"
    settings.write_text(yaml.safe_dump(app))
    assert (
        run(["streams", "check", *where, "--stream", str(tmp_path / "orders.yaml"), "--settings", str(settings)]) == 0
    )
    assert capsys.readouterr().out.startswith("orders takes 4 of 4 records")
    (tmp_path / "orders.yaml").unlink()  # it need not be there
    assert run(["streams", "infer", *where, "--name", "orders", "--settings", str(settings)]) == 0
    assert capsys.readouterr().out == text
    app["streams"][0]["topic"] = "other"  # type: ignore[index]
    settings.write_text(yaml.safe_dump(app))
    assert run(["streams", "infer", *where, "--settings", str(settings)]) != 0
    assert f"it does not name the topic {topic}; its topics are other" in capsys.readouterr().err
    registry.kill()
    assert run(["streams", "infer", *where, "--registry", registry.url]) != 0
    assert "is it up and reachable?" in capsys.readouterr().err
