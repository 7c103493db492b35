"""Protobuf records of a registry, against Google's own library as the oracle."""

from __future__ import annotations

import datetime
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
EVENTS = st.fixed_dictionaries(
    {"ts": st.integers(0, 10**12), "user": TEXTS, "price": st.just("12.5")},
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
