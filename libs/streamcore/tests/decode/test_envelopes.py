"""Fields beside the values of records, envelopes, and several streams on a topic: the columns equal the reference."""

from __future__ import annotations

import dataclasses
import io
import json
import random
from collections.abc import Sequence

import fastavro
import orjson
import pyarrow as pa
import pytest

from streamcore.decode.formats import JSON, Avro, Bare, Confluent, Container, Csv, InputFormat
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.scalar import Physical, RejectedRecord, make_record
from streamcore.decode.scalar.event import IgnoredRecord, StreamRecord, decode_json_event
from streamcore.decode.stream_decoder import event_decoder
from streamcore.decode.stream_selection import (
    IGNORED,
    NO_STREAM,
    UNREADABLE,
    OwnEvents,
    StreamSelection,
    TopicStream,
)
from streamcore.decode.types import BesideValues, Decoded, RawBatch
from streamcore.errors import ConfigError
from streamcore.schema import StreamCondition, StreamSchema
from streamcore.schema.record_layout import header_names
from streamcore.timestamps import load_zone
from tests.harness.decode.projections import decode_and_project

CLOCK_MS = 1_800_000_000_000
LIMITS = DecodeLimits()


def stream(fields: dict[str, object], **more: object) -> StreamSchema:
    document = {"name": "s", "event_time": "at", "keys": [[]], "fields": fields, **more}
    return StreamSchema.parse(document)


KAFKA = stream(
    {
        "n": "long",
        "at": {"type": "timestamp not null", "from": "_kafka.timestamp"},
        "account": {"type": "long not null", "from": "_kafka.key"},
        "trace": {"type": "string", "from": "_kafka.headers.trace-id"},
        "sent": {"type": "timestamp", "from": "_kafka.headers.`sent.at`", "unit": "s"},
        "source": {"type": "string", "from": "_kafka.topic"},
        "part": {"type": "long", "from": "_kafka.partition"},
        "place": {"type": "long", "from": "_kafka.offset"},
        "whole": {"type": "string", "from": "_kafka.value"},
    }
)
CLOUD = stream(
    {
        "id": {"type": "string not null", "from": "_cloudevent.id"},
        "kind": {"type": "string not null", "from": "_cloudevent.type"},
        "at": {"type": "timestamp not null", "from": "_cloudevent.time"},
        "retries": {"type": "string", "from": "_cloudevent.retries"},
        "media": {"type": "string", "from": "_cloudevent.datacontenttype"},
        "amount": {"type": "decimal(9,2)", "from": "order.amount"},
        "customer": "string",
    },
    envelope="cloudevents",
)
DEBEZIUM = stream(
    {
        "op": "string not null",
        "at": {"type": "timestamp not null", "from": "ts_ms"},
        "id": {"type": "long", "from": "after.id"},
        "old": {"type": "long", "from": "before.id"},
        "table": {"type": "string", "from": "source.table"},
        "row": {"type": "long", "from": "_kafka.key"},
    },
    envelope="debezium",
)


def batch(records: Sequence[StreamRecord], headers: frozenset[str]) -> RawBatch:
    def column(values: list[bytes | None]) -> pa.Array:
        return pa.array(values, pa.binary())

    beside = BesideValues(
        records[0].topic if records else None,
        pa.array([r.partition for r in records], pa.int32()),
        column([r.key for r in records]),
        pa.array([r.timestamp_ms for r in records], pa.int64()),
        {name: column([r.headers.get(name) for r in records]) for name in headers},
    )
    numbers = pa.array([r.partition or 0 for r in records], pa.int32())
    offsets = pa.array([r.offset or 0 for r in records], pa.int64())
    return RawBatch(column([r.value for r in records]), numbers, offsets, CLOCK_MS, beside)


def by_reference(schema: StreamSchema, record: StreamRecord) -> tuple[Physical, ...] | RejectedRecord | IgnoredRecord:
    return decode_json_event(
        schema,
        record,
        clock_ms=CLOCK_MS,
        zone=load_zone(schema.zone),
        limits=LIMITS,
        extra_fields=ExtraFields.IGNORE,
    )


def agree(schema: StreamSchema, records: Sequence[StreamRecord]) -> Decoded:
    """Decode in columns and by the reference; assert that both are equal in every record."""
    decoder = OwnEvents(TopicStream(schema, JSON), LIMITS, ExtraFields.IGNORE)
    decoded = decode_and_project(decoder, batch(records, header_names(schema)), schema)
    rows = iter(zip(*(decoded.events.column(n).to_pylist() for n in schema.names), strict=True))
    dead, ignored = iter(decoded.dead.to_pylist()), iter(decoded.ignored)
    for row, record in enumerate(records):
        match by_reference(schema, record):
            case RejectedRecord(code, reason):
                assert next(dead) == {"row": row, "code": code.value, "reason": reason}
            case IgnoredRecord():
                assert next(ignored) == row
            case values:
                assert next(rows) == values, record
    assert [*rows, *dead, *ignored] == []
    return decoded


def json_of(value: object) -> bytes:
    return orjson.dumps(value)


# --- what Kafka keeps of a record -------------------------------------------------------------------------------------


def kafka_record(n: int = 1, key: bytes | None = b"7", **headers: bytes) -> StreamRecord:
    named = {name.replace("_", "-").replace("-dot-", "."): value for name, value in headers.items()}
    return StreamRecord(json_of({"n": n}), key, named, 1_700_000_000_000 + n, "t", 3, 40 + n)


def test_key_headers_and_position_of_a_record_are_fields() -> None:
    decoded = agree(KAFKA, [kafka_record(trace_id=b"ab", sent_dot_at=b"1700000000.5"), kafka_record(2)])
    assert decoded.events.select(KAFKA.names).to_pylist() == [
        {
            "n": 1,
            "at": 1_700_000_000_001,
            "account": 7,
            "trace": "ab",
            "sent": 1_700_000_000_500,
            "source": "t",
            "part": 3,
            "place": 41,
            "whole": '{"n":1}',
        },
        {
            "n": 2,
            "at": 1_700_000_000_002,
            "account": 7,
            "trace": None,
            "sent": None,
            "source": "t",
            "part": 3,
            "place": 42,
            "whole": '{"n":2}',
        },
    ]
    assert decoded.events["__event_ms"].to_pylist() == [1_700_000_000_001, 1_700_000_000_002]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (kafka_record(key=b"seven"), 'wrong_type: field account (from _kafka.key): found the text "seven"'),
        (kafka_record(key=None), "missing_field: field account (from _kafka.key) is null; a long is needed"),
        (kafka_record(key=b"\xff"), "not_utf8: field account (from _kafka.key): byte 0 (0xff) is not UTF-8"),
        (kafka_record(trace_id=b"\xff"), "not_utf8: field trace (from _kafka.headers.trace-id): byte 0 (0xff)"),
        (kafka_record(sent_dot_at=b"soon"), "bad_timestamp: field sent (from _kafka.headers.`sent.at`): found"),
        (StreamRecord(b"{}", b"7"), "missing_field: field at (from _kafka.timestamp) is null; a timestamp is needed"),
        (StreamRecord(b"{}", b"7", {}, CLOCK_MS * 2), "from_the_future: field at: 2084"),
        (StreamRecord(b"{", None), "not_json: not JSON"),  # the value comes first
    ],
)
def test_a_value_that_does_not_convert_is_a_dead_letter_with_its_place(record: StreamRecord, reason: str) -> None:
    decoded = agree(KAFKA, [kafka_record(), record, kafka_record(2)])
    (dead,) = decoded.dead.to_pylist()
    assert f"{dead['code']}: {dead['reason']}".startswith(reason)
    assert decoded.events["n"].to_pylist() == [1, 2]


def test_a_row_of_a_file_has_no_kafka_values() -> None:
    schema = stream(
        {"at": "timestamp not null", **{n: {"type": "string", "from": f"_kafka.{n}"} for n in ("key", "topic")}}
    )
    decoded = agree(schema, [StreamRecord(b'{"at":5}')])
    assert decoded.events.select(schema.names).to_pylist() == [{"at": 5, "key": None, "topic": None}]


def test_lines_have_kafka_values_too() -> None:
    schema = stream({"at": "timestamp not null", "n": "long", "k": {"type": "string", "from": "_kafka.key"}})
    decoder = event_decoder(schema, Csv(), LIMITS, ExtraFields.IGNORE)
    decoded = decoder.decode(
        batch([StreamRecord(b"5,6", b"x"), StreamRecord(b"5,y"), StreamRecord(b"7,")], frozenset())
    )
    assert decoded.events.select(schema.names).to_pylist() == [
        {"at": 5, "n": 6, "k": "x"},
        {"at": 7, "n": None, "k": None},
    ]
    assert decoded.dead["row"].to_pylist() == [1]


@pytest.mark.parametrize(
    ("field", "error"),
    [
        ({"type": "long", "from": "_kafka.size"}, "there are _kafka.value, _kafka.key, _kafka.headers.NAME"),
        ({"type": "string", "from": "_kafka.headers.a.b"}, "a header's name with dots is in backquotes"),
        ({"type": "long", "from": "_kafka.value"}, "its type is string, not long"),
        ({"type": "string", "from": "_kafka.offset"}, "its type is long, not string"),
        ({"type": "string", "from": "_cloudevent.id"}, "in a stream with envelope: cloudevents"),
    ],
)
def test_a_place_that_no_record_has_is_an_error_of_the_document(field: object, error: str) -> None:
    with pytest.raises(ConfigError, match=error.replace("(", r"\(")):
        stream({"at": "timestamp not null", "x": field})


def test_the_value_of_a_record_is_a_field_only_if_records_are_text() -> None:
    schema = stream({"at": "timestamp not null", "whole": {"type": "string", "from": "_kafka.value"}})
    decoder = event_decoder(schema, Csv(), LIMITS, ExtraFields.IGNORE)
    assert decoder.decode(batch([StreamRecord(b"5")], frozenset())).events["whole"].to_pylist() == ["5"]
    with pytest.raises(ConfigError, match=r"field whole .*: the records of this format are no text"):
        event_decoder(schema, Avro(Container()), LIMITS, ExtraFields.IGNORE)


# --- extra fields -----------------------------------------------------------------------------------------------------

EXTRA = stream(
    {
        "n": {"type": "long", "from": "deep.n"},
        "at": "timestamp not null",
        "rest": {"type": "string", "from": "_extra_fields"},
        "key": {"type": "string", "from": "_kafka.key"},
    }
)


def test_extra_fields_are_as_the_record_has_them() -> None:
    values = [
        b'{"at": 1, "deep": {"n": 2}, "big" : 12345678901234567890123.50, "b\\u00e9": [ {"at":2}, "}" ], "z":null}',
        b' \t{"\\u0061t":2,"":"","deep":null}\n',
        b'{"at":3}',
        b'{"at":4,"x":1,"x":2}',
        b'{"at":5,"x":"' + "é😀".encode() * 40 + b'"}',
    ]
    decoded = agree(EXTRA, [StreamRecord(value) for value in (*values, b'{"at":"no","x":1}', b"{", None)])
    assert decoded.events["rest"].to_pylist() == [
        '{"big" : 12345678901234567890123.50,"b\\u00e9": [ {"at":2}, "}" ],"z":null}',
        '{"":""}',
        None,
        '{"x":1,"x":2}',
        '{"x":"' + "é😀" * 40 + '"}',
    ]
    assert decoded.dead.num_rows == 3


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.quick_cases(5)
def test_extra_fields_of_any_object(seed: int) -> None:
    draw = random.Random(seed)

    def value(depth: int) -> object:
        kind = draw.randrange(8 if depth else 5)
        if kind > 5:
            return {name(): value(depth - 1) for _ in range(draw.randrange(4))}
        if kind == 5:
            return [value(depth - 1) for _ in range(draw.randrange(4))]
        return (None, True, draw.random() * 1e9, -draw.randrange(10**30), name())[kind]

    def name() -> str:
        return "".join(draw.choice('a"\\/{}[],: é😀\n\u2028') for _ in range(draw.randrange(9)))

    def record() -> bytes:
        members = {name(): value(3) for _ in range(draw.randrange(6))} | {"at": draw.randrange(10**12)}
        shuffled = dict(draw.sample([*members.items()], len(members)))
        text = json.dumps(shuffled, ensure_ascii=draw.random() < 0.5, indent=draw.choice([None, 1]))
        return text.encode()

    decoded = agree(EXTRA, [StreamRecord(record()) for _ in range(100)])
    assert decoded.events["rest"].null_count < decoded.events.num_rows


@pytest.mark.parametrize(
    ("field", "more", "error"),
    [
        ("long", {}, "its type is string, an object of JSON"),
        ("string not null", {}, "an event may have no extra fields; leave out not null"),
        ("string", {"envelope": "debezium"}, "in a stream without an envelope"),
    ],
)
def test_a_field_of_extra_fields_is_a_text_that_may_be_null(field: str, more: dict[str, object], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        stream({"at": "timestamp not null", "x": {"type": field, "from": "_extra_fields"}}, **more)


def test_only_objects_have_extra_fields() -> None:
    kafka_only = stream(
        {
            "at": {"type": "timestamp not null", "from": "_kafka.timestamp"},
            "x": {"type": "string", "from": "_extra_fields"},
        }
    )
    cases: list[tuple[StreamSchema, InputFormat]] = [(EXTRA, Avro(Container())), (EXTRA, Csv()), (kafka_only, JSON)]
    for schema, written in cases:
        with pytest.raises(ConfigError, match="only records of JSON with another field in their value"):
            event_decoder(schema, written, LIMITS, ExtraFields.IGNORE)


# --- CloudEvents ------------------------------------------------------------------------------------------------------

ATTRIBUTES = {"specversion": "1.0", "id": "e1", "type": "order", "source": "/shop", "time": "2026-01-01T00:00:00Z"}
DATA = {"order": {"amount": 12.5}, "customer": "kim"}


def structured(**changes: object) -> StreamRecord:
    return StreamRecord(json_of(ATTRIBUTES | {"data": DATA} | changes))


def binary(value: bytes | None = json_of(DATA), **changes: bytes | None) -> StreamRecord:
    headers = {f"ce_{name}": text.encode() for name, text in ATTRIBUTES.items()}
    return StreamRecord(value, None, {**headers, "content-type": b"application/json"} | changes)


def test_both_modes_of_a_cloud_event_give_one_event() -> None:
    decoded = agree(CLOUD, [structured(datacontenttype="application/json"), binary(), structured(retries="2")])
    one, other, third = decoded.events.select(CLOUD.names).to_pylist()
    assert one == other
    assert (one["id"], one["kind"], one["amount"], one["customer"]) == ("e1", "order", 1250, "kim")
    assert (third["retries"], third["media"]) == ("2", None)


def test_reasons_name_the_place_in_the_mode_of_the_record() -> None:
    records = [
        structured(id=None),
        binary(ce_id=None),
        structured(data={"customer": 1}),
        binary(json_of({"customer": 1})),
        StreamRecord(json_of(DATA)),
    ]
    dead = agree(CLOUD, records).dead["reason"].to_pylist()
    assert [reason.split(";")[0] for reason in dead] == [
        "field id is null",
        "field id (from _kafka.headers.ce_id) is null",
        "field customer (from data.customer): found the number 1",
        "field customer: found the number 1",
        "field id is missing",
    ]


# --- Debezium ---------------------------------------------------------------------------------------------------------

CHANGE = {"before": None, "after": {"id": 1}, "op": "c", "ts_ms": 5, "source": {"table": "orders"}}


def test_changes_with_and_without_their_schema_are_one_event() -> None:
    wrapped = {"schema": {"type": "struct", "fields": []}, "payload": CHANGE}
    records = [StreamRecord(json_of(value), b"1") for value in (CHANGE, wrapped, {"payload": CHANGE})]
    rows = agree(DEBEZIUM, records).events.select(DEBEZIUM.names).to_pylist()
    assert rows == [{"op": "c", "at": 5, "id": 1, "old": None, "table": "orders", "row": 1}] * 3


def test_tombstones_are_ignored_and_snapshot_reads_and_deletions_are_events() -> None:
    deleted = CHANGE | {"before": {"id": 1}, "after": None, "op": "d"}
    records = [StreamRecord(json_of(CHANGE | {"op": "r"})), StreamRecord(json_of(deleted)), StreamRecord(None, b"1")]
    decoded = agree(DEBEZIUM, records)
    assert decoded.events.select(["op", "id", "old"]).to_pylist() == [
        {"op": "r", "id": 1, "old": None},
        {"op": "d", "id": None, "old": 1},
    ]
    assert decoded.ignored == (2,)


def test_changes_in_avro_are_read_by_their_writers_schema() -> None:
    row = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}]}
    written = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", row]},
            {"name": "after", "type": ["null", "Row"]},
            {
                "name": "source",
                "type": {"type": "record", "name": "S", "fields": [{"name": "table", "type": "string"}]},
            },
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": "long"},
        ],
    }
    values = []
    for change in (CHANGE, CHANGE | {"before": {"id": 1}, "after": None, "op": "d"}):
        fastavro.schemaless_writer(stored := io.BytesIO(), fastavro.parse_schema(written), change)
        values.append(stored.getvalue())
    decoder = event_decoder(DEBEZIUM, Avro(Bare(orjson.dumps(written).decode())), LIMITS, ExtraFields.IGNORE)
    decoded = decoder.decode(batch([StreamRecord(value, b"5") for value in (*values, None)], frozenset()))
    columns = ("op", "id", "old", "table", "row")
    assert [(*row.values(),) for row in decoded.events.select(columns).to_pylist()] == [
        ("c", 1, None, "orders", 5),
        ("d", None, 1, "orders", 5),
    ]
    assert decoded.ignored == (2,)


# --- the way back -----------------------------------------------------------------------------------------------------

WRITTEN: list[tuple[StreamSchema, dict[str, object]]] = [
    (
        KAFKA,
        {"n": 5, "at": 1_700_000_000_000, "account": 7, "trace": "x", "source": "t", "part": 2, "place": 9}
        | {"whole": '{"n":5}'},
    ),
    (CLOUD, {"id": "e", "kind": "k", "at": 1_700_000_000_000, "customer": "c"}),
    (DEBEZIUM, {"op": "u", "at": 1_700_000_000_000, "id": 4, "old": 3, "table": "t", "row": 8}),
]


@pytest.mark.parametrize(("schema", "values"), WRITTEN, ids=["kafka", "cloudevents", "debezium"])
def test_a_record_can_be_made_of_the_values_of_an_event(schema: StreamSchema, values: dict[str, object]) -> None:
    """As the tests of rules do."""
    found = by_reference(schema, make_record(schema, values))
    assert isinstance(found, tuple)
    assert {name: value for name, value in zip(schema.names, found, strict=True) if value is not None} == values


# --- all together, at random ------------------------------------------------------------------------------------------


def random_record(rng: random.Random) -> StreamRecord:
    """Return a record that may be any of the above, whole or broken."""
    change = CHANGE | {"op": rng.choice(["c", "u", "d", "r", None, 5]), "after": rng.choice([None, {"id": 4}, 3])}
    event = ATTRIBUTES | {"data": rng.choice([None, DATA, 1, {"customer": 2}]), "id": rng.choice(["a", 1, None])}
    value = rng.choice(
        [
            None,
            b"{",
            b"[]",
            json_of({"n": rng.choice([1, "x", None])}),
            json_of(change),
            json_of({"schema": None, "payload": rng.choice([change, None])}),
            b' \n{ "payload" : ' + json_of(change) + b"}",
            json_of(event),
            json_of(DATA),
        ]
    )
    names = {"ce_specversion": b"1.0", "ce_id": b"i", "ce_type": b"t", "ce_time": b"2026-01-01T00:00:00+01:00"}
    headers: dict[str, bytes | None] = {
        n: rng.choice([*[v] * 8, None, b"\xff"]) for n, v in names.items() if rng.random() < 0.9
    }
    headers |= {n: rng.choice([b"1", b"", b"x", None]) for n in ("trace-id", "sent.at") if rng.random() < 0.5}
    key = rng.choice([None, b"", b"12", b"012", b"\xff", b"9" * 30])
    return StreamRecord(
        value, key, headers, rng.choice([None, 1, CLOCK_MS, CLOCK_MS * 3, -5]), "t", 1, rng.randrange(99)
    )


SELECTING = dataclasses.replace(DEBEZIUM, when=StreamCondition.parse({"from": "op", "equals": ["c", "r"]}))


@pytest.mark.parametrize(
    "schema", [KAFKA, CLOUD, DEBEZIUM, SELECTING], ids=["kafka", "cloudevents", "debezium", "selecting"]
)
def test_columns_equal_the_reference_at_random(schema: StreamSchema) -> None:
    rng = random.Random(20)
    events = dead = 0
    for size in (0, 1, 3, 400):
        decoded = agree(schema, [random_record(rng) for _ in range(size)])
        events, dead = events + decoded.events.num_rows, dead + decoded.dead.num_rows
    assert min(events, dead) > 5


# --- several streams on a topic ---------------------------------------------------------------------------------------


def selecting(path: str | None, *values: object, name: str = "s", **more: object) -> TopicStream:
    when = {} if path is None else {"when": {"from": path, "equals": [*values]}}
    return TopicStream(stream({"at": "timestamp not null"}, name=name, **when, **more), JSON)


def owners(streams: Sequence[TopicStream], *records: StreamRecord) -> list[int]:
    headers = frozenset().union(*(header_names(one.schema) for one in streams))
    selected = StreamSelection(streams, LIMITS).select(batch(records, headers))
    assert selected.dead["row"].to_pylist() == [n for n, owner in enumerate(selected.owner) if owner == UNREADABLE]
    return [int(owner) for owner in selected.owner]


def of_type(value: object, **headers: bytes) -> StreamRecord:
    return StreamRecord(json_of({"type": value, "at": 1}), None, headers)


def test_a_discriminator_divides_the_records_among_streams() -> None:
    streams = [selecting("type", "paid", "settled"), selecting("type", "refunded")]
    records = [of_type("paid"), of_type("refunded"), of_type("settled"), of_type("x"), of_type(5), StreamRecord(b"{}")]
    assert owners(streams, *records, StreamRecord(b"{")) == [0, 1, 0, NO_STREAM, NO_STREAM, NO_STREAM, UNREADABLE]


def test_a_stream_without_a_condition_takes_the_rest() -> None:
    streams = [selecting(None), selecting("type", "paid")]
    assert owners(streams, of_type("paid"), of_type(None), StreamRecord(b"{}")) == [1, 0, 0]


def test_headers_numbers_and_attributes_tell_streams_apart() -> None:
    by_header = selecting("_kafka.headers.kind", "a")
    by_number = selecting("type", 7)
    by_flag = selecting("type", True)
    assert owners(
        [by_header], of_type(1, kind=b"a"), of_type(1, kind=b"b"), StreamRecord(b"{", None, {"kind": b"a"})
    ) == [
        0,
        NO_STREAM,
        0,  # the value is not looked at; the decoder of the stream rejects it
    ]
    assert owners([by_number, by_flag], of_type(7), of_type(True), of_type("7")) == [0, 1, NO_STREAM]
    cloud = selecting("_cloudevent.type", "order", envelope="cloudevents")
    assert owners([cloud], structured(), binary(), binary(ce_type=b"x")) == [0, 0, NO_STREAM]


def test_a_tombstone_of_debezium_is_of_no_stream_and_no_mistake() -> None:
    streams = [selecting("source.table", name, envelope="debezium") for name in ("orders", "customers")]
    records = [StreamRecord(json_of(CHANGE)), StreamRecord(None, b"1"), StreamRecord(json_of({"payload": CHANGE}))]
    assert owners(streams, *records) == [0, IGNORED, 0]


def test_the_reference_takes_the_records_of_its_own_stream() -> None:
    schema = selecting("type", "paid").schema
    taken = [by_reference(schema, one) for one in (of_type("paid"), of_type("x"), of_type(1), StreamRecord(b"["))]
    assert [type(one).__name__ for one in taken] == ["tuple", "IgnoredRecord", "IgnoredRecord", "RejectedRecord"]


@pytest.mark.parametrize("framing", ["container", "confluent"])
def test_the_name_of_a_schema_tells_streams_apart(framing: str) -> None:
    written = {
        name: {"type": "record", "name": name, "namespace": "shop", "fields": [{"name": "at", "type": "long"}]}
        for name in ("Order", "Refund", "Login")
    }

    def value(name: str) -> bytes:
        stored, parsed = io.BytesIO(), fastavro.parse_schema(written[name])
        if framing == "container":
            fastavro.writer(stored, parsed, [{"at": 5}])
            return stored.getvalue()
        fastavro.schemaless_writer(stored, parsed, {"at": 5})
        return b"\0" + [*written].index(name).to_bytes(4, "big") + stored.getvalue()

    streams = [
        TopicStream(
            selecting("_schema.name", f"shop.{name}").schema,
            Avro(
                Container()
                if framing == "container"
                else Confluent({[*written].index(name): orjson.dumps(written[name]).decode()})
            ),
        )
        for name in ("Order", "Refund")
    ]
    records = [StreamRecord(value(name)) for name in ("Refund", "Login", "Order")]
    assert owners(streams, *records, StreamRecord(b"x")) == [1, NO_STREAM, 0, UNREADABLE]


def formats() -> list[InputFormat]:
    return [JSON, Csv(("type", "at"))]


@pytest.mark.parametrize("written", formats(), ids=["json", "csv"])
def test_each_format_has_discriminators(written: InputFormat) -> None:
    one = TopicStream(selecting("type", "paid").schema, written)
    values = [b'{"type":"paid"}', b"{}"] if written == JSON else [b"paid,1", b"x,1"]
    assert owners([one], *(StreamRecord(value) for value in values)) == [0, NO_STREAM]
