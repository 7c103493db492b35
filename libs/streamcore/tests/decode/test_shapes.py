"""What a decoder learns about its producers. It determines speed and not results, so it is tested separately."""

from __future__ import annotations

import json
import re

import polars as pl
import pytest

from streamcore.decode.json.shape import JsonShape, initial_shape, learn_shape
from streamcore.decode.json.shape_cache import MAX_SHAPES, ShapeCache
from streamcore.decode.reject_codes import DecodeLimits
from streamcore.decode.scalar.json import JsonObject, parse_object
from streamcore.schema import StreamSchema

SCHEMA = StreamSchema.parse(
    {
        "name": "t",
        "event_time": "ts",
        "keys": [[]],
        "fields": {
            "a": "string",
            "ts": "timestamp not null",
            "m": "decimal(12,2)",
            "z": "long not null",
            "d": "double",
        },
    }
)


def parse_records(*records: str) -> list[JsonObject]:
    return [parse_object(record.encode(), DecodeLimits()) for record in records]


def matches(shape: JsonShape, record: str) -> bool:
    return bool(pl.Series([record]).str.contains(shape.pattern(SCHEMA))[0])


@pytest.mark.parametrize(
    "record",
    [
        '{"ts":1,"z":1}',
        '{"a":"x","ts":1,"m":-12.50,"z":-1,"d":1.5e-7}',
        '{"a": null, "ts": 1, "z": 1}',
        '{"a":"\\u00e9\\ud83d\\ude00\\n","ts":1,"z":0}',
        '{"ts":1,"m":9999999999.99,"z":999999999999999999}',
    ],
)
def test_the_initial_shape_matches_records_in_the_order_of_the_schema(record: str) -> None:
    assert matches(initial_shape(SCHEMA), record)


@pytest.mark.parametrize(
    "record",
    [
        '{"z":1,"ts":1}',
        '{"ts":1}',
        '{"ts":1,"z":1,}',
        '{,"ts":1,"z":1}',
        '{"ts":1,"ts":1,"z":1}',
        '{"a":"x","a":"x","ts":1,"z":1}',
        '{"ts":1,"z":null}',
        '{"ts":1,"z":-0}',
        '{"ts":1,"z":1.0}',
        '{"ts":1,"z":1000000000000000000}',
        '{"ts":"1","z":1}',
        '{"ts":1,"m":1.005,"z":1}',
        '{"ts":1,"m":99999999999.99,"z":1}',
        '{"ts":1,"z":1,"d":-0}',
        '{"ts":1,"z":1,"d":NaN}',
        '{"ts":1,"z":1,"d":1e100}',
        '{"ts":1,"z":1,"x":1}',
        '{"ts":1,"z":1} ',
        '{"ts":1,"z":1}\n',
        '{"ts":1,\n"z":1}',
        '{"a":"\\ud800","ts":1,"z":1}',
        '{"a":"\n","ts":1,"z":1}',
    ],
)
def test_a_shape_does_not_match_records_that_a_lenient_parser_may_misread(record: str) -> None:
    assert not matches(initial_shape(SCHEMA), record)


def test_the_decoder_learns_an_order_from_records_that_each_have_some_of_the_fields() -> None:
    shape = learn_shape(
        SCHEMA, parse_records('{"z":1,"ts":1}', '{"z":1,"d":1,"a":"x","ts":1}', '{"d":1,"m":1,"a":"x"}')
    )
    assert shape is not None
    assert matches(shape, '{"z":1,"d":2.5,"m":1,"a":"x","ts":1}')
    assert matches(shape, '{"z":1,"ts":1}')


def test_a_sample_that_contradicts_the_first_one_gets_another_shape() -> None:
    shape = learn_shape(SCHEMA, parse_records('{"z":1,"ts":1}', '{"ts":1,"z":1}'))
    assert shape is not None
    assert matches(shape, '{"z":1,"ts":1}')
    assert not matches(shape, '{"ts":1,"z":1}')


def test_the_decoder_learns_the_form_of_times_and_decimals() -> None:
    shape = learn_shape(SCHEMA, parse_records('{"ts":"2026-01-31 12:00:00+01:00","m":"1.5","z":1}'))
    assert shape is not None
    assert matches(shape, '{"ts":"2027-01-31 12:00:00.25-08:00","m":"-10.25","z":1}')
    assert not matches(shape, '{"ts":"2027-01-31T12:00:00Z","m":"1.5","z":1}')
    assert not matches(shape, '{"ts":1,"m":"1.5","z":1}')
    assert not matches(shape, '{"ts":"2027-01-31 12:00:00+08:00","m":1.5,"z":1}')


def test_the_name_of_an_ignored_field_is_escaped_in_the_pattern() -> None:
    name = "x.*(?i)[a-z]|$ %s"
    shape = learn_shape(SCHEMA, parse_records(json.dumps({"ts": 1, name: 5, "z": 1})))
    assert shape is not None
    assert re.escape(name) in shape.pattern(SCHEMA)
    assert matches(shape, json.dumps({"ts": 1, name: "any", "z": 1}))
    assert not matches(shape, '{"ts":1,"xyz(?i)b":5,"z":1}')


def test_the_decoder_learns_arrays_and_objects_in_ignored_fields_up_to_three_levels() -> None:
    shape = learn_shape(SCHEMA, parse_records('{"ts":1,"z":1,"x":[1]}', '{"ts":1,"z":1,"x":{"a":[1,{"b":[[2]]}]}}'))
    assert shape is not None
    assert shape.depths == {"x": 3}
    for value in ["5", "[]", "{}", '[1, "a", null]', '{"a":1, "b":[true,{}]}', '[{"a":["\\u00e9"]}]']:
        assert matches(shape, f'{{"ts":1,"z":1,"x":{value}}}'), value
    for value in ["[1,]", "{,}", '{"a"}', "[1", '{"a":[[[1]]]}', "[01]", r'["\ud800"]', "[1]]"]:
        assert not matches(shape, f'{{"ts":1,"z":1,"x":{value}}}'), value


def test_the_decoder_learns_no_shape_from_an_empty_sample() -> None:
    assert learn_shape(SCHEMA, []) is None


def test_no_more_shapes_than_the_limit_are_kept_and_the_most_used_come_first() -> None:
    known = ShapeCache(SCHEMA)
    for i in range(2 * MAX_SHAPES):
        assert known.learn(parse_records(f'{{"ts":1,"x{i}":1,"z":1}}')) is not None
    shapes = known.by_use()
    assert len(shapes) == MAX_SHAPES
    shapes[-1].matches(pl.Series([f'{{"ts":1,"x{2 * MAX_SHAPES - 1}":1,"z":1}}']))
    assert known.by_use()[0] is shapes[-1]


def test_a_failed_attempt_to_learn_is_followed_by_a_pause() -> None:
    known = ShapeCache(SCHEMA)
    tried = 0
    for _ in range(40):
        if known.should_learn(unknown=100, batch_records=100):
            tried += 1
            assert known.learn([]) is None
    assert tried == 6  # batches 1, 3, 6, 11, 20 and 37


def test_a_few_unknown_records_do_not_trigger_learning() -> None:
    known = ShapeCache(SCHEMA)
    assert not known.should_learn(unknown=10, batch_records=10)
    assert not known.should_learn(unknown=100, batch_records=10_000)


def test_a_schema_of_a_thousand_fields_decodes() -> None:
    wide = StreamSchema.parse(
        {
            "name": "wide",
            "event_time": "ts",
            "keys": [[]],
            "fields": {"ts": "timestamp not null"} | {f"f{i}": "double" for i in range(999)},
        }
    )
    assert len(ShapeCache(wide).by_use()) <= 1
