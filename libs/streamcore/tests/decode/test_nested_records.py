"""Fields that are read from objects inside of records, in each format that has them."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.decode.formats import JSON, AccessLog, Avro, Bare, Csv, InputFormat
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.types import Decoded, RawBatch
from streamcore.errors import ConfigError
from streamcore.schema import StreamSchema
from tests.harness.decode.projections import decode_and_project

CLOCK_MS = 1_800_000_000_000
#: A record of AWS CloudTrail has its fields in such places.
FIELDS: dict[str, object] = {
    "at": {"type": "timestamp not null", "from": "eventTime"},
    "eventName": "string not null",
    "user": {"type": "string", "from": "userIdentity.userName"},
    "mfa": {"type": "boolean", "from": "userIdentity.sessionContext.attributes.mfaAuthenticated"},
    "source": {"type": "string", "from": "`event.source`"},
    "amount": {"type": "decimal(9,2)", "from": "requestParameters.amount"},
}


def schema(**fields: object) -> StreamSchema:
    return StreamSchema.parse({"name": "trail", "event_time": "at", "keys": [["user"]], "fields": FIELDS | fields})


def decode(
    records: list[bytes], stream: StreamSchema | None = None, form: InputFormat = JSON, *, strict: bool = False
) -> Decoded:
    extra = ExtraFields.REJECT if strict else ExtraFields.IGNORE
    count = len(records)
    batch = RawBatch(
        values=pa.array(records, pa.large_binary()),
        partition=pa.array([0] * count, pa.int32()),
        offset=pa.array([*range(count)], pa.int64()),
        clock_ms=CLOCK_MS,
    )
    stream = stream or schema()
    decoder = form.decoder(stream, limits=DecodeLimits(), extra_fields=extra)
    return decode_and_project(decoder, batch, stream)


def event(**members: Any) -> dict[str, Any]:
    return {"eventTime": CLOCK_MS, "eventName": "ConsoleLogin", **members}


ALICE = {"type": "IAMUser", "userName": "alice", "sessionContext": {"attributes": {"mfaAuthenticated": False, "x": []}}}


def rows(decoded: Decoded) -> list[tuple[Any, ...]]:
    found = decoded.events.select(["user", "mfa", "source", "amount"]).to_pylist()
    return [tuple(row.values()) for row in found]


def test_values_are_read_where_their_paths_lead() -> None:
    whole = event(userIdentity=ALICE, requestParameters={"amount": "12.5", "other": {}}, **{"event.source": "iam"})
    decoded = decode([orjson.dumps(whole)])
    assert rows(decoded) == [("alice", False, "iam", 1250)]
    assert decoded.events["eventName"].to_pylist() == ["ConsoleLogin"]


@pytest.mark.parametrize(
    "identity",
    [None, {}, {"sessionContext": None}, {"sessionContext": {}}, {"sessionContext": {"attributes": None}}],
    ids=str,
)
def test_what_is_absent_or_null_on_the_way_is_null(identity: object) -> None:
    decoded = decode([orjson.dumps(event(userIdentity=identity))])
    assert rows(decoded) == [(None, None, None, None)]


@pytest.mark.parametrize(
    ("members", "code", "reason"),
    [
        (
            {"userIdentity": "alice"},
            "wrong_type",
            'field user (from userIdentity.userName): userIdentity: found the text "alice"; accepted is an object',
        ),
        (
            {"userIdentity": {"sessionContext": [1]}},
            "wrong_type",
            "field mfa (from userIdentity.sessionContext.attributes.mfaAuthenticated): userIdentity.sessionContext: "
            "found an array; accepted is an object",
        ),
        (
            {"userIdentity": {"userName": 5}},
            "wrong_type",
            "field user (from userIdentity.userName): found the number 5; accepted is text",
        ),
        ({"eventTime": None}, "missing_field", "field at (from eventTime) is null; a timestamp is needed"),
    ],
)
def test_a_wrong_value_is_a_dead_letter_that_names_field_and_place(
    members: dict[str, Any], code: str, reason: str
) -> None:
    decoded = decode([orjson.dumps(event(**members)), orjson.dumps(event())])
    assert decoded.dead.column("code").to_pylist() == [code]
    assert decoded.dead.column("reason").to_pylist() == [reason]
    assert decoded.events.num_rows == 1


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        ('{"eventTime":1,"eventName":"a","userIdentity":{},"userIdentity":{"userName":"b"}}', '"userIdentity"'),
        ('{"eventTime":1,"eventName":"a","userIdentity":{"userName":"a","userName":"b"}}', "userIdentity.userName"),
    ],
)
def test_a_name_of_a_path_that_occurs_twice_is_rejected(record: str, shown: str) -> None:
    decoded = decode([record.encode()])
    assert decoded.dead.column("reason").to_pylist() == [f"field {shown} occurs more than once; accepted is once"]


def test_other_names_may_repeat_inside_and_are_rejected_at_the_top_on_demand() -> None:
    repeated = b'{"eventTime":1,"eventName":"a","userIdentity":{"x":1,"x":2}}'
    other = b'{"eventTime":1,"eventName":"a","user":"the name of the field, not of its place"}'
    assert [decode([repeated, other], strict=strict).events.num_rows for strict in (False, True)] == [2, 1]


VALUES = st.none() | st.sampled_from(["a", 1, 1.5, True, [], {}, [{"userName": "no"}]])


@given(
    st.recursive(VALUES, lambda inner: st.dictionaries(st.sampled_from(["userName", "sessionContext", "x"]), inner)),
    VALUES,
)
def test_a_record_is_read_as_its_description_says(identity: Any, source: Any) -> None:
    """The definition, without trees: one path after the other through dictionaries."""

    def follow(*path: str) -> Any:
        value: Any = {"userIdentity": identity, "event.source": source}
        for name in path:
            if value is None:
                return None
            if not isinstance(value, dict):
                raise TypeError
            value = value.get(name)
        if value is not None and not isinstance(value, str):
            raise TypeError
        return value

    decoded = decode([orjson.dumps(event(userIdentity=identity, **{"event.source": source}))], schema(mfa="string"))
    try:
        expected = [(follow("userIdentity", "userName"), follow("event.source"))]
    except TypeError:
        expected = []
    assert [(row[0], row[2]) for row in rows(decoded)] == expected


AVRO = {
    "type": "record",
    "name": "trail",
    "fields": [
        {"name": "eventTime", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "eventName", "type": "string"},
        {
            "name": "userIdentity",
            "type": [
                "null",
                {"type": "record", "name": "identity", "fields": [{"name": "userName", "type": ["null", "string"]}]},
            ],
        },
    ],
}


def test_a_path_goes_into_records_of_avro() -> None:
    nested = {"at": FIELDS["at"], "eventName": "string", "user": FIELDS["user"]}
    stream = StreamSchema.parse({"name": "trail", "event_time": "at", "keys": [[]], "fields": nested})
    data = []
    for identity in (None, {"userName": None}, {"userName": "alice"}):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, AVRO, {"eventTime": 5, "eventName": "a", "userIdentity": identity})
        data.append(out.getvalue())
    decoded = decode(data, stream, Avro(Bare(json.dumps(AVRO))))
    assert decoded.events["user"].to_pylist() == [None, None, "alice"]


def test_a_column_of_a_line_may_have_another_name_and_no_path() -> None:
    fields = {"at": FIELDS["at"], "n": {"type": "long", "from": "Unit Price".join("``")}}
    stream = StreamSchema.parse({"name": "lines", "event_time": "at", "keys": [[]], "fields": fields})
    decoded = decode([b"x,7,5"], stream, Csv(("other", "Unit Price", "eventTime")))
    assert decoded.events.select(["at", "n"]).to_pylist() == [{"at": 5, "n": 7}]
    assert decode([b"5,7"], stream, Csv()).events["n"].to_pylist() == [7]
    for form in (Csv(), AccessLog()):
        with pytest.raises(ConfigError, match=r"user \(from userIdentity.userName\)|no column"):
            decode([b""], schema(), form)


UNITS = [
    ("s", "1700000000", 1_700_000_000_000),
    ("s", "1700000000.1239", 1_700_000_000_123),
    ("s", "17e8", 1_700_000_000_000),
    ("s", "1e99", "out_of_range"),
    ("s", "-1", "out_of_range"),
    ("us", "1700000000123999", 1_700_000_000_123),
    ("us", "1.5", "wrong_type"),
    ("ns", "1700000000123999999", 1_700_000_000_123),
    ("ms", "1700000000.5", "wrong_type"),
]


@pytest.mark.parametrize(("unit", "number", "expected"), UNITS)
@pytest.mark.parametrize("form", [JSON, Csv()], ids=["json", "csv"])
def test_a_number_is_a_time_in_the_unit_of_its_field(
    unit: str, number: str, expected: int | str, form: InputFormat
) -> None:
    fields = {"at": {"type": "timestamp not null", "unit": unit}}
    stream = StreamSchema.parse({"name": "t", "event_time": "at", "keys": [[]], "fields": fields})
    texts = (
        [f'{{"at":{number}}}', '{"at":"2023-11-14T22:13:20Z"}'] if form == JSON else [number, "2023-11-14T22:13:20Z"]
    )
    decoded = decode([text.encode() for text in texts], stream, form)
    found = [*decoded.dead.column("code").to_pylist(), *decoded.events["at"].to_pylist()]
    assert found == [expected, 1_700_000_000_000]


def test_a_plain_long_of_avro_has_the_unit_of_its_field_and_a_logical_type_its_own() -> None:
    fields = {name: {"type": "timestamp not null", "unit": "s"} for name in ("at", "micros")}
    stream = StreamSchema.parse({"name": "t", "event_time": "at", "keys": [[]], "fields": fields})
    kinds: dict[str, object] = {"at": "long", "micros": {"type": "long", "logicalType": "timestamp-micros"}}
    avro = {"type": "record", "name": "t", "fields": [{"name": n, "type": k} for n, k in kinds.items()]}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, avro, {"at": 1_700_000_000, "micros": 1_700_000_000_000_000})
    decoded = decode([out.getvalue()], stream, Avro(Bare(json.dumps(avro))))
    assert decoded.events.select(["at", "micros"]).to_pylist() == [
        {"at": 1_700_000_000_000, "micros": 1_700_000_000_000}
    ]


def test_field_names_have_letters_of_both_cases_and_differ_in_more_than_these() -> None:
    with pytest.raises(ConfigError, match="eventName and eventname are one name, for rules ignore upper and lower"):
        schema(eventname="string")
    assert schema(**{"detail-type": "string"}).names[-1] == "detail-type"
    for name in ("", "*", "^a$", "a`", "a{b}", "a#b", "a\n", "__a", "a" * 128):
        with pytest.raises(ConfigError, match="a name begins with a letter, a digit"):
            schema(**{name: "string"})
    with pytest.raises(ConfigError, match="path userIdentity is that of another field, or contains one"):
        schema(identity={"type": "string", "from": "userIdentity"})


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ({"from": "a"}, "the type must be text"),
        ({"type": "string", "form": "a"}, r"unknown entries \['form'\]; known are type, from, unit"),
        ({"type": "long", "unit": "s"}, "unit 's': a timestamp may have one of s, ms, us, ns"),
        ({"type": "timestamp", "unit": "h"}, "unit 'h': a timestamp may have one of s, ms, us, ns"),
        ({"type": "string", "from": 5}, "from must be a path, such as customer.id"),
        ({"type": "string", "from": "a..b"}, "at character 3"),
        (5, "the type must be text"),
    ],
    ids=str,
)
def test_a_wrong_field_is_an_error_that_says_what_to_write(field: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        schema(x=field)
