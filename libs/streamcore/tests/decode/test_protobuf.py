"""Protobuf records of a registry, against Google's own library as the oracle."""

from __future__ import annotations

import datetime
import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from streamcore.decode.formats import Registry
from streamcore.decode.protobuf.schema import ProtoSchemaError, parse_proto_schema
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.types import Decoded
from streamcore.schema import StreamSchema
from streamcore.schema_registry.schemas import RegisteredSchema, SchemaReference
from streamcore.wire.map_entries import KEY, VALUE
from tests.harness.decode.random_avro import varint
from tests.harness.decode.registered_records import Schemas, decode_with, prefix

STREAM = StreamSchema.parse(
    {
        "name": "shop",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {
            "ts": "timestamp not null",
            "user": "string not null",
            "count": "long",
            "small": "long",
            "zig": "long",
            "big": "long",
            "fixed": "long",
            "price": "decimal(12,2)",
            "risk": "double",
            "ratio": "double",
            "ok": "boolean",
            "kind": "string",
            "note": "string",
            "at": "timestamp",
            "city": {"type": "string", "from": "address.city"},
            "zip": {"type": "long", "from": "address.place.zip"},
        },
    }
)
PROTO = """
// The events of a shop.
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import "missing.proto";
option java_package = "shop";
message Other { option deprecated = true; reserved 2, 4 to 6; reserved "x";
  string a = 1 [json_name = "b", deprecated = true];
  message Nested { string user = 1; int64 ts = 2; } }
enum Kind { KIND_UNKNOWN = 0; VIEW = 1; PAY = 2; NEGATIVE = -1; }
message Event {
  int64 ts = 1;
  string user = 2;
  int64 count = 3;
  int32 small = 4;
  sint64 zig = 5;
  uint64 big = 6;
  sfixed64 fixed = 7;
  string price = 8;
  double risk = 9;
  float ratio = 10;
  bool ok = 11;
  Kind kind = 12;
  optional string note = 13;
  google.protobuf.Timestamp at = 14;
  Address address = 1500;
  repeated string tags = 16;
  map<string, int64> counts = 17;
  oneof more { string text = 18; bytes raw = 19; }
  message Address { Place place = 1; string city = 2; message Place { uint32 zip = 1; } }
}
"""
_F = descriptor_pb2.FieldDescriptorProto


def message_classes() -> tuple[Any, Any]:
    """Return Google's classes of Event and of Other.Nested, of a descriptor that is written by hand."""
    from google.protobuf import timestamp_pb2

    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop.v1", syntax="proto3")
    file.dependency.append(timestamp_pb2.DESCRIPTOR.name)
    other = file.message_type.add(name="Other")
    nested = other.nested_type.add(name="Nested")
    nested.field.add(name="user", number=1, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
    nested.field.add(name="ts", number=2, type=_F.TYPE_INT64, label=_F.LABEL_OPTIONAL)
    kind = file.enum_type.add(name="Kind")
    for name, number in (("KIND_UNKNOWN", 0), ("VIEW", 1), ("PAY", 2), ("NEGATIVE", -1)):
        kind.value.add(name=name, number=number)
    event = file.message_type.add(name="Event")
    types = ["INT64", "STRING", "INT64", "INT32", "SINT64", "UINT64", "SFIXED64", "STRING", "DOUBLE", "FLOAT", "BOOL"]
    names = ["ts", "user", "count", "small", "zig", "big", "fixed", "price", "risk", "ratio", "ok"]
    for number, (name, one) in enumerate(zip(names, types, strict=True), 1):
        event.field.add(name=name, number=number, type=getattr(_F, f"TYPE_{one}"), label=_F.LABEL_OPTIONAL)
    event.field.add(name="kind", number=12, type=_F.TYPE_ENUM, type_name=".shop.v1.Kind", label=_F.LABEL_OPTIONAL)
    event.oneof_decl.add(name="_note")
    event.field.add(
        name="note", number=13, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL, proto3_optional=True, oneof_index=0
    )
    stamp = ".google.protobuf.Timestamp"
    event.field.add(name="at", number=14, type=_F.TYPE_MESSAGE, type_name=stamp, label=_F.LABEL_OPTIONAL)
    address = event.nested_type.add(name="Address")
    place = address.nested_type.add(name="Place")
    place.field.add(name="zip", number=1, type=_F.TYPE_UINT32, label=_F.LABEL_OPTIONAL)
    inner, home = ".shop.v1.Event.Address.Place", ".shop.v1.Event.Address"
    address.field.add(name="place", number=1, type=_F.TYPE_MESSAGE, type_name=inner, label=_F.LABEL_OPTIONAL)
    address.field.add(name="city", number=2, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
    event.field.add(name="address", number=1500, type=_F.TYPE_MESSAGE, type_name=home, label=_F.LABEL_OPTIONAL)
    event.field.add(name="tags", number=16, type=_F.TYPE_STRING, label=_F.LABEL_REPEATED)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
    found = message_factory.GetMessageClass
    by_name = pool.FindMessageTypeByName
    return found(by_name("shop.v1.Event")), found(by_name("shop.v1.Other.Nested"))


EVENT, NESTED = message_classes()
SCHEMA = RegisteredSchema(4, "PROTOBUF", PROTO)
FIRST, SECOND, NESTED_PATH = b"\0", b"\2\2", b"\4\0\0"  # messages 0 (short form), 1 and 0.0


def decode(
    records: Sequence[bytes | None], stream: StreamSchema = STREAM, schema: RegisteredSchema = SCHEMA
) -> Decoded:
    decoder = Registry().decoder(stream, limits=DecodeLimits(), extra_fields=ExtraFields.IGNORE)
    return decode_with(decoder, stream, Schemas(schema), records)


def expected(event: Any) -> dict[str, object]:
    """Return the row of an event, by Google's library."""
    names = {0: "KIND_UNKNOWN", 1: "VIEW", 2: "PAY", -1: "NEGATIVE"}
    row = {name: getattr(event, name) for name in ("ts", "user", "count", "small", "zig", "big", "fixed")}
    row |= {name: getattr(event, name) for name in ("risk", "ratio", "ok")}
    row["kind"] = names.get(event.kind, str(event.kind))
    row["note"] = event.note if event.HasField("note") else None
    row["at"] = event.at.seconds * 1000 + event.at.nanos // 1_000_000 if event.HasField("at") else None
    home = event.HasField("address")
    row["city"] = event.address.city if home else None
    row["zip"] = event.address.place.zip if home and event.address.HasField("place") else None
    return row


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
INTS = st.sampled_from([0, 1, -1, 127, 128, 2**31 - 1, -(2**31)]) | st.integers(-(2**31), 2**31 - 1)
LONGS = INTS | st.integers(-(2**63), 2**63 - 1)
#: Without those that are implausible: seconds that were read as milliseconds.
TIMES = st.integers(0, 10**9 - 1) | st.integers(10**10, 10**12)
EVENTS = st.fixed_dictionaries(
    {"ts": TIMES, "user": TEXTS, "price": st.just("12.5")},
    optional={
        "count": LONGS,
        "small": INTS,
        "zig": LONGS,
        "big": st.integers(0, 2**63 - 1),
        "fixed": LONGS,
        "risk": st.floats(allow_nan=False, allow_infinity=False),
        "ratio": st.floats(allow_nan=False, allow_infinity=False, width=32),
        "ok": st.booleans(),
        "kind": st.sampled_from([0, 1, 2, -1, 77]),
        "note": TEXTS,
        "tags": st.lists(TEXTS, max_size=3),
        "address": st.fixed_dictionaries({}, optional={"city": TEXTS, "place": st.just({"zip": 9})}),
        "at": st.fixed_dictionaries({"seconds": st.integers(0, 10**10), "nanos": st.integers(0, 10**9 - 1)}),
    },
)


@given(st.lists(EVENTS, min_size=1, max_size=40))
def test_events_are_those_of_googles_library(values: list[dict[str, object]]) -> None:
    events = [EVENT(**one) for one in values]
    decoded = decode([prefix(4) + SECOND + event.SerializeToString() for event in events])
    assert decoded.dead.to_pylist() == []
    rows = decoded.events.select([*expected(EVENT())]).cast(_plain(decoded)).to_pylist()
    for row, event in zip(rows, events, strict=True):
        assert row == expected(event)
    assert {*decoded.events.column("price").to_pylist()} == {1250}


def _plain(decoded: Decoded) -> Any:
    return decoded.events.select([*expected(EVENT())]).schema


def test_the_indexes_name_the_message_type() -> None:
    stream = StreamSchema.parse(
        {"name": "n", "event_time": "ts", "keys": [["user"]], "fields": {"ts": "timestamp not null", "user": "string"}}
    )
    nested = NESTED(user="a", ts=5).SerializeToString()
    decoded = decode([prefix(4) + path + nested for path in (NESTED_PATH, SECOND, FIRST, b"\2\6", b"\3")], stream)
    assert decoded.events.column("user").to_pylist() == ["a", ""], "Event has other wire types, so its defaults count"
    by_row = {one["row"]: (one["code"], one["reason"]) for one in decoded.dead.to_pylist()}
    assert by_row[2][0] == "missing_field"
    assert "schema 4" in by_row[2][1]
    assert by_row[3] == ("not_protobuf", "schema 4: it has no message type at 3, which the record names")
    assert by_row[4][0] == "not_protobuf"


def test_a_field_may_come_twice_in_parts_and_with_another_wire_type() -> None:
    once = EVENT(ts=1, user="a", address={"city": "Rome"}, price="1")
    again = EVENT(user="b", address={"place": {"zip": 7}})
    wrong_wire = b"\x19" + b"\1" * 8  # field 3 as 64 bits
    record = once.SerializeToString() + wrong_wire + again.SerializeToString()
    both = EVENT.FromString(record)
    (row,) = decode([prefix(4) + SECOND + record]).events.to_pylist()
    assert (row["user"], row["city"], row["zip"], row["count"]) == ("b", "Rome", 7, 0)
    assert (both.user, both.address.city, both.address.place.zip, both.count) == ("b", "Rome", 7, 0)


@pytest.mark.parametrize("count", [1, 20])
def test_broken_messages_are_dead_letters(count: int) -> None:
    good = EVENT(ts=1, user="abc", price="1", address={"city": "Rome", "place": {"zip": 1}}).SerializeToString()
    broken = [good[:end] for end in range(len(good))]
    broken += [
        good + b"\x0b",
        good + b"\x00\x00",
        good + b"\xff" * 11,
        good + b"\x12\x02\xff\xfe",
        b"\x12\xff\xff\xff\xff\x0f",
    ]
    decoded = decode([prefix(4) + SECOND + record for record in broken] * count)
    for one in decoded.dead.to_pylist():
        record = broken[one["row"] % len(broken)]
        try:
            event = EVENT.FromString(record)
        except Exception:
            assert one["code"] in ("not_protobuf", "not_utf8"), (record, one)
        else:  # the default "" is no decimal
            assert (one["code"], event.price) == ("wrong_type", ""), (record, one)


def test_a_whole_number_of_more_than_63_bits_is_out_of_range() -> None:
    record = EVENT(ts=1, price="1", big=2**63).SerializeToString()
    assert decode([prefix(4) + SECOND + record]).dead.column("code").to_pylist() == ["out_of_range"]


def test_types_are_found_in_files_that_the_schema_uses() -> None:
    stream = StreamSchema.parse(
        {
            "name": "n",
            "event_time": "ts",
            "keys": [["user"]],
            "fields": {"ts": "timestamp not null", "user": {"type": "string", "from": "who.name"}},
        }
    )
    text = 'syntax = "proto3"; package a.b; import "u.proto"; message E { uint64 ts = 1; c.User who = 2; }'
    user = 'syntax = "proto2"; package a.c; message User { required string name = 1 [default = "x"]; }'
    schema = RegisteredSchema(4, "PROTOBUF", text, (SchemaReference("u.proto", user),))
    record = prefix(4) + FIRST + b"\x08\x05\x12\x03\x0a\x01z"
    assert decode([record], stream, schema).events.column("user").to_pylist() == ["z"]
    alone = RegisteredSchema(4, "PROTOBUF", text)
    (dead,) = decode([record], stream, alone).dead.to_pylist()
    assert dead["code"] == "wrong_type"
    assert "c.User" in dead["reason"]


@pytest.mark.parametrize(
    "text",
    [
        "message",
        "message A {",
        "message A { string a = 0; }",
        "message A { string a = 1; int32 b = 1; }",
        "A { }",
        "message A {} message A {}",
        "message A { string a = x; }",
        "message A { " * 40,
        "enum E { A; }",
        "option a = {;",
        "message A { optional group G = 1 { } }",
        "message A { A a = 1 [features.message_encoding = DELIMITED]; }",
        "message A { map<double, string> a = 1; }",
    ],
)
def test_a_text_that_is_no_schema_is_named(text: str) -> None:
    with pytest.raises(ProtoSchemaError, match="the schema"):
        parse_proto_schema(text)


def test_times_are_read() -> None:
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_901, datetime.UTC)
    event = EVENT(ts=1, price="1")
    event.at.FromDatetime(at.replace(tzinfo=None))
    (row,) = decode([prefix(4) + SECOND + event.SerializeToString()]).events.to_pylist()
    assert row["at"] == int(at.timestamp() * 1000)


# --- repeated fields, maps, messages as structs, and oneofs ---------------------------------------------------------

NESTED_STREAM = StreamSchema.parse(
    {
        "name": "n",
        "event_time": "ts",
        "keys": [[]],
        "fields": {
            "ts": "timestamp not null",
            "tags": "array<string>",
            "numbers": "array<long>",
            "labels": "map<string,string>",
            "items": "array<struct<sku:string, price:decimal(9,2), at:timestamp, more:array<double>, absent:long>>",
            "by_id": "map<string,struct<sku:string>>",
            "at": "timestamp",
            "text": "string",
            "other": {"type": "string", "from": "choice.other"},
        },
    }
)
NESTED_PROTO = """
syntax = "proto3"; import "google/protobuf/timestamp.proto";
message E {
  int64 ts = 1; repeated string tags = 2; repeated sint32 numbers = 3; map<string, string> labels = 4;
  message Item {
    string sku = 1; optional string price = 2; google.protobuf.Timestamp at = 3; repeated double more = 4;
  }
  repeated Item items = 5; map<int64, Item> by_id = 6; google.protobuf.Timestamp at = 7;
  message Choice { string other = 1; }
  oneof one { string text = 8; Choice choice = 9; uint64 unread = 10; }
}
"""


def nested_rows(*messages: bytes, text: str = NESTED_PROTO, stream: StreamSchema = NESTED_STREAM) -> list[Any]:
    """Return the rows of messages: those of a few, which the reference decodes, and of many, and these are the same."""
    schema, records = RegisteredSchema(4, "PROTOBUF", text), [prefix(4) + FIRST + one for one in messages]
    few, many = decode(records, stream, schema), decode(records * 20, stream, schema)
    assert few.dead.num_rows == many.dead.num_rows == 0, few.dead.to_pylist()
    rows = [[row[name] for name in stream.names] for row in few.events.to_pylist()]
    assert [[row[name] for name in stream.names] for row in many.events.to_pylist()] == rows * 20
    return rows


def value(number: int, content: bytes | int) -> bytes:
    tag = number << 3 | (0 if isinstance(content, int) else 2)
    return varint(tag) + (varint(content) if isinstance(content, int) else varint(len(content)) + content)


AT = value(1, 5)


def test_what_a_message_lacks_is_empty_null_or_its_default() -> None:
    item: dict[str, object] = {"sku": "", "price": None, "at": None, "more": [], "absent": None}
    assert nested_rows(AT, AT + value(5, b"")) == [
        [5, [], [], [], [], [], None, None, None],
        [5, [], [], [], [item], [], None, None, None],
    ]


def test_numbers_are_read_packed_or_not_and_in_parts() -> None:
    message = AT + value(3, 2) + value(3, b"\x04\x06") + value(2, b"a") + value(3, b"") + value(3, 8)
    assert nested_rows(message)[0][2] == [1, 2, 3, 4]


def test_the_last_value_of_a_key_counts_at_the_place_of_the_first() -> None:
    labels = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]
    message = AT + b"".join(value(4, value(1, key) + value(2, text)) for key, text in labels)
    assert nested_rows(message)[0][3] == [{KEY: "a", VALUE: "3"}, {KEY: "b", VALUE: "2"}]


def test_an_entry_may_lack_its_key_and_its_value() -> None:
    message = AT + value(4, b"") + value(6, value(2, value(1, b"x"))) + value(6, value(1, 7))
    row = nested_rows(message)[0]
    assert row[3] == [{KEY: "", VALUE: ""}]
    assert row[5] == [{KEY: "0", VALUE: {"sku": "x"}}, {KEY: "7", VALUE: {"sku": ""}}]


def test_messages_that_come_twice_are_merged_and_of_a_oneof_the_last_one_counts() -> None:
    merged = AT + value(7, value(1, 3)) + value(7, value(2, 7_000_000))
    text, choice, unread = value(8, b"t"), value(9, value(1, b"c")), value(10, 1)
    assert [row[6:] for row in nested_rows(merged, AT + text, AT + text + choice, AT + choice + text + unread)] == [
        [3_007, None, None],
        [None, "t", None],
        [None, None, "c"],
        [None, None, None],
    ]


def test_unknown_groups_are_passed_over() -> None:
    inner = value(1, b"x") + varint(3 << 3 | 3) + varint(3 << 3 | 4)
    group = varint(20 << 3 | 3) + inner + varint(20 << 3 | 4)
    assert nested_rows(AT + group + value(2, b"a"))[0][:2] == [5, ["a"]]
    schema = RegisteredSchema(4, "PROTOBUF", NESTED_PROTO)
    # Google's library lets pass a field with number 0 in an unknown group, although no field has it.
    no_field = varint(20 << 3 | 3) + b"\x00\x01" + varint(20 << 3 | 4)
    broken = [group[:-2], group[:-2] + varint(21 << 3 | 4), varint(20 << 3 | 4), varint(20 << 3 | 3) * 200, no_field]
    dead = decode([prefix(4) + FIRST + AT + one for one in broken], NESTED_STREAM, schema).dead
    assert dead.column("code").to_pylist() == ["not_protobuf"] * 5


def test_fields_have_presence_as_syntax_and_editions_say() -> None:
    fields = {"ts": "timestamp not null", "a": "long", "b": "long"}
    stream = StreamSchema.parse({"name": "n", "event_time": "ts", "keys": [[]], "fields": fields})
    implicit = "[features.field_presence = IMPLICIT]"
    for text, expected in (
        (
            'syntax = "proto2"; message E { required int64 ts = 1; optional int64 a = 2; optional int32 b = 3; }',
            [5, None, None],
        ),
        ('syntax = "proto3"; message E { int64 ts = 1; optional int64 a = 2; int32 b = 3; }', [5, None, 0]),
        (f'edition = "2023"; message E {{ int64 ts = 1; int64 a = 2; int32 b = 3 {implicit}; }}', [5, None, 0]),
        (
            'edition = "2023"; option features.field_presence = IMPLICIT;'
            " message E { int64 ts = 1; int64 a = 2 [features = { field_presence: EXPLICIT }]; int32 b = 3; }",
            [5, None, 0],
        ),
    ):
        assert nested_rows(AT, text=text, stream=stream) == [expected], text


@pytest.mark.parametrize(
    ("kind", "found", "accepted"),
    [
        ("array<long>", "int64", "array<long> is a repeated field"),
        ("long", "repeated int64", "long is "),
        ("array<long>", "repeated string", "long is "),
        ("map<string,long>", "repeated E", "map<string,long> is a map"),
        ("array<long>", "map<string, int64>", "array<long> is a repeated field"),
        ("map<string,long>", "map<int32, string>", "long is "),
        ("struct<a:long>", "int64", "struct<a:long> is a message"),
        ("array<struct<ts:string>>", "repeated E", "string is enum, string"),
    ],
)
def test_a_schema_of_another_shape_is_named_with_both_types(kind: str, found: str, accepted: str) -> None:
    fields = {"ts": "timestamp not null", "x": kind}
    stream = StreamSchema.parse({"name": "n", "event_time": "ts", "keys": [[]], "fields": fields})
    label = "" if found.startswith("map") else "optional " if "repeated" not in found else ""
    text = f'syntax = "proto3"; message E {{ int64 ts = 1; {label}{found} x = 2; }}'
    (dead,) = decode([prefix(4) + FIRST + AT], stream, RegisteredSchema(4, "PROTOBUF", text)).dead.to_pylist()
    assert dead["code"] == "wrong_type"
    assert dead["reason"].startswith("schema 4: field x")
    assert f"accepted for a {accepted}" in dead["reason"]


@pytest.mark.slow
def test_records_with_many_elements_make_no_room_for_as_many_in_all_that_follow() -> None:
    decoder = Registry().decoder(NESTED_STREAM, limits=DecodeLimits(), extra_fields=ExtraFields.IGNORE)
    schemas = Schemas(RegisteredSchema(4, "PROTOBUF", NESTED_PROTO))
    large, small = (prefix(4) + FIRST + AT + value(3, b"\2" * count) for count in (20_000, 1))
    assert decode_with(decoder, NESTED_STREAM, schemas, [large] * 20).events.num_rows == 20
    tracemalloc.start()
    try:
        decode_with(decoder, NESTED_STREAM, schemas, [small] * 2_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 30_000_000


def test_more_elements_than_ever_before_are_read() -> None:
    """The walk makes room for what a record has more than those before it."""
    decoder = Registry().decoder(NESTED_STREAM, limits=DecodeLimits(), extra_fields=ExtraFields.IGNORE)
    schemas = Schemas(RegisteredSchema(4, "PROTOBUF", NESTED_PROTO))
    for count in (1, 3_000, 2):
        message = AT + value(3, b"\x02" * count) + value(2, b"a") * count
        records = [prefix(4) + FIRST + AT, prefix(4) + FIRST + message] * 20
        events = decode_with(decoder, NESTED_STREAM, schemas, records).events
        assert events.column("numbers").to_pylist() == [[], [1] * count] * 20
        assert events.column("tags").to_pylist() == [[], ["a"] * count] * 20
