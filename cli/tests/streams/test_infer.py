"""Stream documents from samples: what is inferred, and that it takes the sample it is from."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from conftest import NewTopic
from headgate.errors import InputError
from headgate.main import run
from headgate.records.scalar_decoder import decode_scalars
from headgate.streams.inference import infer
from headgate.streams.observed_fields import observe
from headgate.streams.sample import SampleRecord, read_files, read_topic
from streamcore.decode.scalar import RejectedRecord, StreamRecord
from streamcore.kafka import data_clients as clients
from streamcore.kafka.settings import KafkaSettings
from streamcore.schema import StreamSchema, TimeUnit

DATA = Path(__file__).parent / "data"
NOW_MS = 1_800_000_000_000


def document(*records: object) -> tuple[StreamSchema, str]:
    """Return the schema that is inferred from records, and its text."""
    found = infer(
        observe([SampleRecord(str(n), StreamRecord(json.dumps(r).encode())) for n, r in enumerate(records)]),
        "s",
        "a test",
    )
    assert not found.problem, found.text
    return StreamSchema.parse(yaml.safe_load(found.text)), found.text


def types(*values: object) -> str:
    """Return the entry of a field with these values."""
    schema, _ = document(*({"at": "2026-01-01T00:00:00Z", "x": value} for value in values))
    found = schema.get("x")
    return "" if found is None else str(found.type)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2], "long"),
        ([1, None], "long"),
        ([True, False], "boolean"),
        (["a", ""], "string"),
        ([1.5, 20], "decimal(7,2)"),
        ([0.123456], "double"),
        ([1e300], "double"),
        ([2**70], "double"),
        (["2026-01-01T10:00:00Z", "2026-01-01"], "string"),
        (["2026-01-01T10:00:00Z", "2026-01-01T10:00:00+02:00"], "timestamp"),
        ([1_700_000_000_000], "long"),
        ([1, "a"], ""),
        ([1, True], ""),
        ([[1], [], [None]], "array<long>"),
        ([[[1.5]], None], "array<array<decimal(6,2)>>"),
        ([["2026-01-01T00:00:00Z"]], "array<timestamp>"),
        ([[{"a": 1, "b c": [True]}, {"a": None}, None]], "array<struct<a:long, `b c`:array<boolean>>>"),
        ([[{"a": 1}, {"A": "x"}]], ""),
        ([[1, "a"]], ""),
        ([[]], ""),
        ([None], ""),
    ],
    ids=str,
)
def test_a_type_is_the_one_that_fits_all_values(values: list[object], expected: str) -> None:
    assert types(*values) == expected


def test_whole_numbers_are_times_if_their_name_says_so() -> None:
    schema, _ = document({"eventTime": NOW_MS, "other": NOW_MS})
    assert (schema.event_time, str(schema.fields[1].type)) == ("eventTime", "long")


def test_what_no_type_fits_is_a_comment() -> None:
    _, text = document(
        {"at": "2026-01-01T00:00:00Z", "x": [1, "a"], "w": [], "y": 1, "z": None},
        {"at": "2026-01-01T00:00:00Z", "y": ""},
    )
    assert text.splitlines()[-5:] == [
        "# Not declared, and ignored in events:",
        "#   x: an array in 50% of the records: no type fits all its elements",
        "#   w: an array in 50% of the records: always empty",
        "#   y: numbers (1), text (1): no type fits all",
        "#   z: always null",
    ]


def test_an_object_whose_names_are_data_is_left_out() -> None:
    records = [{"at": "2026-01-01T00:00:00Z", "by_id": {f"u{n}": {"n": n}}} for n in range(200)]
    schema, text = document(*records)
    assert schema.names == ("at",)
    assert "by_id: an object whose names are data" in text


def test_an_object_whose_names_are_data_and_whose_values_are_alike_is_a_map() -> None:
    records = [{"at": "2026-01-01T00:00:00Z", "by_id": {f"u{n}": n}} for n in range(200)]
    schema, _ = document(*records)
    by_id = schema.get("by_id")
    assert by_id is not None
    assert str(by_id.type) == "map<string,long>"


def test_a_time_that_is_digits_in_text_has_a_unit() -> None:
    schema, _ = document({"timeUnixNano": "1795600000000000000"}, {"timeUnixNano": "1795600007000000000"})
    [field] = schema.fields
    assert (str(field.type), field.unit, field.nullable) == ("timestamp", TimeUnit.NANOSECONDS, False)


def test_fields_of_one_name_in_several_objects_have_the_names_of_the_objects_too() -> None:
    record = {
        "at": "2026-01-01T00:00:00Z",
        "from": {"city": "a", "id": 1},
        "to": {"city": "b"},
        "to-city": "c",
        "Id": 5,
    }
    schema, _ = document(record)
    assert {f.name: f.location for f in schema.fields} == {
        "at": ("at",),
        "from_city": ("from", "city"),
        "from_id": ("from", "id"),
        "to_city": ("to-city",),
        "to_city_2": ("to", "city"),
        "Id": ("Id",),
    }


def test_event_time_id_and_key_of_a_public_format_are_found() -> None:
    records = read_files([DATA / "cloudtrail.json"], 1_000)
    assert len(records) == 24
    schema = StreamSchema.parse(yaml.safe_load(infer(observe(records), "trail", "x").text))
    assert (schema.event_time, schema.event_id, schema.keys) == ("eventTime", "eventID", (("userName",),))
    mfa = schema.get("mfaAuthenticated")
    assert mfa is not None
    assert mfa.path == ("userIdentity", "sessionContext", "attributes", "mfaAuthenticated")


def test_numbers_are_times_in_the_unit_that_gives_our_years() -> None:
    records = [{"created": 1_800_000_000, "at_us": NOW_MS * 1_000, "sent_at": NOW_MS * 1_000_000, "count": NOW_MS}]
    schema, text = document(*records)
    assert {f.name: f.unit for f in schema.fields if str(f.type) == "timestamp"} == {
        "created": "s",
        "at_us": "us",
        "sent_at": "ns",
    }
    assert "  created: {type: timestamp not null, unit: s}" in text
    values = decode_scalars(schema, [StreamRecord(orjson.dumps(records[0]))], NOW_MS)
    assert values == [(NOW_MS, NOW_MS, NOW_MS, NOW_MS)]


def test_a_document_without_an_event_time_says_what_is_near() -> None:
    records = [{"n": 1, "at": "2026-01-01T00:00:00Z"}, {"n": 1, "at": "yesterday"}]
    found = infer(observe([SampleRecord("", StreamRecord(orjson.dumps(one))) for one in records]), "s", "x")
    assert "as ISO 8601 text or a number since 1970; at (1 of 2 values) has some" in found.problem
    assert f"event_time:  # {found.problem}\n" in found.text


def test_a_document_of_a_topic_without_an_event_time_has_that_of_kafka() -> None:
    records = [SampleRecord("", StreamRecord(orjson.dumps({"n": 1, "received": "x"}), timestamp_ms=NOW_MS - 5))]
    found = infer(observe(records), "s", "x", from_topic=True)
    assert not found.problem
    schema = StreamSchema.parse(yaml.safe_load(found.text))
    assert schema.event_time == "received_at"
    assert decode_scalars(schema, [one.record for one in records], NOW_MS) == [(NOW_MS - 5, 1, "x")]


def test_a_key_is_in_most_records_and_has_several_values_if_one_does() -> None:
    at = "2026-01-01T00:00:00Z"
    records = [{"at": at, "user_id": n % 2 if n > 3 else None, "card": "c", "host": f"h{n % 3}"} for n in range(9)]
    assert document(*records)[0].keys == (("host",),)
    assert document(*({**one, "host": "h"} for one in records))[0].keys == (("card",),)
    assert document(*({"at": at, "user_id": one["user_id"]} for one in records))[0].keys == (("user_id",),)


NAMES = st.sampled_from(["a", "b", "on", "type", "user-id", "x.y", "ts", "", "`", "null", "é\n", ": #\u2028", '\\"{'])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "x", "2026-01-01T00:00:00Z", "5"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)


@example([{"a": [{"": False}]}, {"b": [{"`": 1, "x": 2}]}, {"c": [{"é\n": 1}]}, {"d": [{": #\u2028": 1, "a: b": 2}]}])
@example([{"a": [{'x\\"{': 1, "x, y: z": [{"\u2028": None, "q\u2028": 1}]}]}])
@given(st.lists(st.dictionaries(NAMES, VALUES), min_size=1, max_size=6))
def test_a_document_takes_every_record_of_its_sample(records: list[dict[str, Any]]) -> None:
    all_records = [json.dumps({"at": "2026-01-01T00:00:00Z", **record}).encode() for record in records]
    found = infer(observe([SampleRecord("", StreamRecord(r)) for r in all_records]), "s", "a test")
    schema = StreamSchema.parse(yaml.safe_load(found.text))
    rejected = [
        r for r in decode_scalars(schema, map(StreamRecord, all_records), NOW_MS) if isinstance(r, RejectedRecord)
    ]
    assert rejected == []


def test_members_that_a_struct_cannot_have_are_named() -> None:
    items = [{"sku": "a", "__typename": "Item", "price": {"a #b": 1, "cents": 5}, "tags": [{"x`": 1, "y": 2}]}]
    schema, text = document({"at": "2026-01-01T00:00:00Z", "items": items})
    field = schema.get("items")
    kind = "struct<sku:string, price:struct<cents:long>, tags:array<struct<y:long>>>"
    assert str(field and field.type) == f"array<{kind}>"
    for place in ("items[].__typename", "items[].price.a #b", "items[].tags[].x`"):
        assert f"#   {place}: no name of a member\n" in text


# --- samples ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_field_that_is_different_in_each_of_many_records_may_be_the_event_id() -> None:
    _, text = document(
        *({"at": "2026-01-01T00:00:00Z", "invoice": f"I{n}", "amount": n + 0.5, "user": n % 7} for n in range(10_001))
    )
    assert "10,000 values or more, such as I0" in text
    _, text = document(*({"at": "2026-01-01T00:00:00Z", "invoice": f"I{n}", "amount": n + 0.5} for n in range(10_000)))
    assert "# 100%, all different: perhaps the event_id, such as I0" in text
    assert "# 100%, all different, such as 0.5" in text


def test_a_file_has_lines_or_one_value_and_may_be_packed(tmp_path: Path) -> None:
    files = {
        "lines.jsonl": b'{"a":1}\n\n{"a":2}\r\nno json\n',
        "array.json": b'[{"a":1},\n {"a":2}]',
        "object.json": b'{\n "a": 1\n}',
        "records.json": b'{"Records": [{"a":1}, {"a":2}]}',
        "packed.json.gz": gzip.compress(b'{"a":1}'),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    values = {name: [r.value for r in read_files([tmp_path / name], 10)] for name in files}
    assert values == {
        "lines.jsonl": [b'{"a":1}', b'{"a":2}', b"no json"],
        "array.json": [b'{"a":1}', b'{"a":2}'],
        "object.json": [b'{"a":1}'],
        "records.json": [b'{"a":1}', b'{"a":2}'],
        "packed.json.gz": [b'{"a":1}'],
    }
    assert [r.place for r in read_files([tmp_path / "lines.jsonl"], 10)] == [
        f"{tmp_path}/lines.jsonl:{n}" for n in (1, 3, 4)
    ]
    assert len(read_files([tmp_path], 100)) == 9
    assert len(read_files([tmp_path], 3)) == 3


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda _: None, "there is no such file or folder"),
        (lambda path: path.mkdir(), "no file ends in .json"),
        (lambda path: path.write_bytes(gzip.compress(b"x")[:-4]), "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_it(tmp_path: Path, write: Any, says: str) -> None:
    write(tmp_path / "x")
    with pytest.raises(InputError, match=f"{tmp_path}/x: .*{says}"):
        read_files([tmp_path / "x"], 10)


# --- commands -----------------------------------------------------------------------------------------------------


def test_check_says_how_many_records_a_document_takes_and_why_not_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["streams", "infer", str(DATA / "cloudtrail.json")]) == 0
    path = tmp_path / "trail.yaml"
    path.write_text(capsys.readouterr().out)
    assert run(["streams", "check", str(DATA / "cloudtrail.json"), "--stream", str(path)]) == 0
    assert capsys.readouterr().out == "cloudtrail takes 24 of 24 records\n"
    (tmp_path / "other.jsonl").write_text('{"eventTime": null}\n{"a": 1}\n{"a": 2}\n')
    files = [str(DATA / "cloudtrail.json"), str(tmp_path / "other.jsonl")]
    assert run(["streams", "check", *files, "--stream", str(path), "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["records"], found["taken"]) == (27, 24)
    assert [(one["reason"], one["records"]) for one in found["rejected"]] == [
        ("missing_field: field eventTime is missing; a timestamp is needed", 2),
        ("missing_field: field eventTime is null; a timestamp is needed", 1),
    ]
    assert found["rejected"][0]["examples"][0].startswith(f"{tmp_path}/other.jsonl:2: field eventTime")


def test_infer_ends_with_1_if_the_document_is_not_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1}')
    assert run(["streams", "infer", str(tmp_path / "x.jsonl"), "--name", "payments"]) == 1
    output = capsys.readouterr()
    assert "name: payments\nevent_time:  # no field has a time in every record" in output.out
    assert "the document is not complete: no field has a time" in output.err


def test_the_records_of_a_topic_are_its_latest(
    kafka: KafkaSettings, new_topic: NewTopic, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = new_topic(partitions=3)
    producer, now_ms = clients.producer(kafka), time.time_ns() // 1_000_000
    for n in range(90):
        value = orjson.dumps({"ts": now_ms + n, "user_id": f"u{n % 4}", "n": n})
        producer.produce(topic, value, partition=n % 3, timestamp=now_ms + n)
    assert producer.flush(60) == 0
    records = read_topic(kafka, topic, 10)
    assert [json.loads(record.value)["n"] for record in records] == [*range(80, 90)]
    assert run(["streams", "infer", "--topic", topic, "--bootstrap", kafka.bootstrap, "--name", "t"]) == 0
    assert "event_time: ts\nkeys: [[user_id]]" in capsys.readouterr().out


def test_fields_that_repeat_are_named_where_no_name_is_that_of_a_key() -> None:
    rows = [
        {"at": f"2026-01-01T00:00:{n:02}Z", "Invoice": f"I{n // 4}", "Note": f"n{n}", "Land": "UK"} for n in range(20)
    ]
    schema, text = document(*rows)
    assert schema.keys == ((),)
    assert "keys: [[]]  # no key found: all events go to one shard; these repeat: Invoice\n" in text
