"""Fields that are arrays, structs or maps: their types as text, and their values in each format that has them."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.columnar.polars_types import polars_type
from streamcore.decode.formats import JSON, AccessLog, Avro, Bare, Csv, InputFormat
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.types import Decoded, RawBatch
from streamcore.errors import ConfigError
from streamcore.schema import LONG, STRING, StreamSchema, Type, array_of, map_of, struct_of
from streamcore.wire.map_entries import KEY, VALUE
from tests.harness.decode.projections import decode_and_project
from tests.harness.decode.random_avro import zigzag

CLOCK_MS = 1_800_000_000_000
ITEM = "struct<sku:string, price:decimal(9,2), tags:map<string,array<long>>>"
FIELDS = {"at": "timestamp not null", "items": f"array<{ITEM}>", "first": ITEM, "labels": "map<string,string>"}
SCHEMA = StreamSchema.parse({"name": "orders", "event_time": "at", "keys": [[]], "fields": FIELDS})


def decode(records: list[bytes], form: InputFormat = JSON, schema: StreamSchema = SCHEMA) -> Decoded:
    count = len(records)
    batch = RawBatch(
        values=pa.array(records, pa.large_binary()),
        partition=pa.array([0] * count, pa.int32()),
        offset=pa.array([*range(count)], pa.int64()),
        clock_ms=CLOCK_MS,
    )
    decoder = form.decoder(schema, limits=DecodeLimits(), extra_fields=ExtraFields.IGNORE)
    return decode_and_project(decoder, batch, schema)


def reason(value: dict[str, Any]) -> str:
    dead = decode([json.dumps({"at": 1, **value}).encode()]).dead
    [found] = dead["reason"].to_pylist()
    return str(found)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("array<long>", array_of(LONG)),
        ("map<string, array<string>>", map_of(array_of(STRING))),
        (" struct< a : long , `b c`:string > ", struct_of({"a": LONG, "b c": STRING})),
        ("array<decimal(9,2)>", array_of(Type.parse("decimal(9, 2)"))),
    ],
)
def test_a_type_is_read_and_its_text_reads_back(text: str, kind: Type) -> None:
    assert Type.parse(text) == kind
    assert Type.parse(str(kind)) == kind
    assert pa.array([], kind.arrow).type == kind.arrow
    assert polars_type(kind).is_nested()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("array<long", "> is needed at character 11"),
        ("array<long>>", "'>' is too much"),
        ("array", "< is needed"),
        ("map<long,string>", "the keys of a map are strings"),
        ("struct<>", "a struct has names and types"),
        ("struct<a:long, A:long>", "A is there twice"),
        ("struct<`@map_key`:long>", "'@map_key' is no name of a member"),
        ("struct<`*`:long>", "'*' is no name of a member"),
        ("array<int>", "unknown type"),
        ("array<" * 17 + "long" + ">" * 17, "more than 16 types inside each other"),
    ],
)
def test_a_text_that_is_no_type_gets_a_reason(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        Type.parse(text)
    assert message in str(error.value)


@pytest.mark.parametrize("use", [{"keys": [["items"]]}, {"event_id": "labels"}])
def test_a_nested_field_is_no_key_and_no_id(use: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="no key and no id; declare the value in it as a field of its own"):
        StreamSchema.parse({"name": "orders", "event_time": "at", "keys": [[]], "fields": FIELDS, **use})


@pytest.mark.parametrize("form", [Csv(), AccessLog()], ids=["csv", "log"])
def test_a_line_of_text_has_no_nested_types(form: InputFormat) -> None:
    with pytest.raises(ConfigError, match="field items: a cell of a line is text, no array"):
        decode([], form)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"items": {}}, "field items: found an object; accepted is an array"),
        ({"items": [{"price": "x"}]}, 'field items[0].price: found the text "x"; accepted is a number'),
        ({"items": [None, 1]}, "field items[1]: found the number 1; accepted is an object"),
        ({"items": [{"tags": {"a b": [1, True]}}]}, 'field items[0].tags["a b"][1]: found true; accepted is a whole'),
        ({"first": []}, "field first: found an array; accepted is an object"),
        ({"labels": {"a": 1}}, 'field labels["a"]: found the number 1; accepted is text'),
    ],
)
def test_a_value_of_another_type_is_a_dead_letter_that_names_its_place(value: dict[str, Any], message: str) -> None:
    assert reason(value).startswith(message)


def test_a_name_that_is_there_twice_is_a_dead_letter_where_it_is_read() -> None:
    records = [
        b'{"at":1,"first":{"sku":"a","sku":"b"}}',
        b'{"at":1,"first":{"x":1,"x":2}}',
        b'{"at":1,"labels":{"a":"","a":""}}',
    ]
    decoded = decode(records)
    assert decoded.dead["row"].to_pylist() == [0, 2]
    assert decoded.dead["code"].to_pylist() == ["duplicate_field"] * 2


def test_absent_null_and_empty_differ() -> None:
    values: list[dict[str, Any]] = [{}, {"items": None}, {"items": []}, {"items": [None]}, {"items": [{}]}]
    found = decode([json.dumps({"at": 1, **value}).encode() for value in values]).events["items"].to_pylist()
    assert found == [None, None, [], [None], [{"sku": None, "price": None, "tags": None}]]


AVRO_ITEM: dict[str, Any] = {
    "type": "record",
    "name": "Item",
    "fields": [
        {"name": "sku", "type": ["null", "string"]},
        {"name": "unknown", "type": {"type": "array", "items": "double"}},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": ["null", "long"]}}},
    ],
}
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "at", "type": "long"},
        {"name": "items", "type": ["null", {"type": "array", "items": ["null", AVRO_ITEM]}]},
        {"name": "first", "type": ["null", "Item"]},
        {"name": "labels", "type": {"type": "map", "values": ["null", "string"]}},
    ],
}
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
ITEMS = st.fixed_dictionaries(
    {
        "sku": st.none() | NAMES,
        "unknown": st.lists(st.just(1.5), max_size=3),
        "price": st.none() | st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2)),
        "tags": st.dictionaries(NAMES, st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3), max_size=3),
    }
)
ORDERS = st.fixed_dictionaries(
    {
        "at": st.integers(0, CLOCK_MS),
        "items": st.none() | st.lists(st.none() | ITEMS, max_size=4),
        "first": st.none() | ITEMS,
        "labels": st.dictionaries(NAMES, st.none() | NAMES, max_size=3),
    }
)


def to_avro(value: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), value)
    return stream.getvalue()


@given(st.lists(ORDERS, min_size=1, max_size=6))
def test_avro_and_json_give_the_same_values(orders: list[dict[str, Any]]) -> None:
    from_json = decode([json.dumps(order, default=str).encode() for order in orders])
    from_avro = decode([to_avro(order) for order in orders], Avro(Bare(json.dumps(AVRO))))
    assert from_json.dead.num_rows == from_avro.dead.num_rows == 0
    assert from_json.events.equals(from_avro.events)


@given(ORDERS, st.data())
def test_avro_that_is_cut_off_is_a_dead_letter(order: dict[str, Any], data: st.DataObject) -> None:
    whole = to_avro(order)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert decode([cut], Avro(Bare(json.dumps(AVRO)))).dead.num_rows == 1


LIST_STREAM = StreamSchema.parse(
    {
        "name": "lists",
        "event_time": "at",
        "keys": [[]],
        "fields": {"at": "timestamp not null", "x": "array<struct<a:long>>", "labels": "map<string,long>"},
    }
)
#: The items of ``x`` have no bytes.
LIST_AVRO = {
    "type": "record",
    "name": "L",
    "fields": [
        {"name": "at", "type": "long"},
        {"name": "x", "type": {"type": "array", "items": {"type": "record", "name": "N", "fields": []}}},
        {"name": "labels", "type": {"type": "map", "values": "long"}},
        {"name": "skipped", "type": {"type": "array", "items": "double"}},
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 20], ids=["reference", "walk"])
def test_counts_of_avro_that_cannot_be_are_dead_letters_and_others_are_not(count: int) -> None:
    many, too_many, lowest = zigzag(65_536), zigzag(65_537), b"\xff" * 9 + b"\x01"
    key = b"\x02k\x0e"
    right = [
        b"\x02" + many + b"\0\0\0",
        b"\x02" + zigzag(-3) + b"\0\0\0" + zigzag(2) + b"8 bytes." * 2 + b"\0",
        b"\x02\0" + zigzag(-1) + b"\x06" + key + b"\0" + zigzag(-1) + b"\x10" + b"8 bytes.\0",
    ]
    wrong = [
        b"\x02" + too_many + b"\0\0\0",
        b"\x02" + lowest + b"\0\0\0\0",
        b"\x02\0" + lowest + b"\0" + key + b"\0\0",
        b"\x02\0" + zigzag(2**40) + key + b"\0\0",
        b"\x02\0" + zigzag(2) + key + b"\0\0",
        b"\x02\0\0" + zigzag(2**61) + b"\0",  # times eight bytes it is 0 in 64 bits
        b"\x02\0" + zigzag(2) + key + key + b"\0\0",
    ]
    decoded = decode([*right, *wrong] * count, Avro(Bare(json.dumps(LIST_AVRO))), LIST_STREAM)
    codes = ["too_many_values"] * 2 + ["not_avro"] * 4 + ["duplicate_field"]
    assert decoded.dead["code"].to_pylist() == codes * count
    empty = {"a": None}
    assert decoded.events["x"].to_pylist() == [[empty] * 65_536, [empty] * 3, []] * count
    assert decoded.events["labels"].to_pylist() == [[], [], [{KEY: "k", VALUE: 7}]] * count


@pytest.mark.parametrize("count", [1, 20], ids=["reference", "walk"])
def test_a_local_time_inside_of_an_array_may_be_out_of_range(count: int) -> None:
    fields = {"at": "timestamp not null", "days": "array<timestamp>"}
    document = {"name": "days", "event_time": "at", "keys": [[]], "zone": "Asia/Tokyo", "fields": fields}
    days = {"type": "array", "items": {"type": "int", "logicalType": "date"}}
    members = [{"name": "at", "type": "long"}, {"name": "days", "type": days}]
    avro = {"type": "record", "name": "D", "fields": members}
    records = [b"\x02" + zigzag(2) + zigzag(1) + zigzag(day) + b"\0" for day in (0, 2)] * count
    decoded = decode(records, Avro(Bare(json.dumps(avro))), StreamSchema.parse(document))
    assert decoded.dead["code"].to_pylist() == ["out_of_range"] * count
    day, ahead = 86_400_000, 9 * 3_600_000
    assert decoded.events["days"].to_pylist() == [[day - ahead, 2 * day - ahead]] * count


def test_an_avro_schema_with_another_type_inside_is_an_error_at_the_start() -> None:
    wrong = json.loads(json.dumps(AVRO))
    wrong["fields"][3]["type"]["values"] = "long"
    with pytest.raises(ConfigError, match=r"field labels\[\]: found Avro's long; accepted for a string is"):
        decode([], Avro(Bare(json.dumps(wrong))))
