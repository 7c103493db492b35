"""Arrays, structs and maps are what Spark makes of them: functions mean the same, and a record has the same values."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from rulecore.language import Scope, evaluate, parse, to_logical
from streamcore.decode.scalar import DecodeLimits, ExtraFields, RejectedRecord
from streamcore.decode.scalar.json import decode_one
from streamcore.schema import BOOLEAN, DOUBLE, LONG, STRING, StreamSchema, Type
from streamcore.timestamps import load_zone

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

COLUMNS = {
    "items": Type.parse("array<struct<sku:string, price:double, tags:array<string>>>"),
    "who": Type.parse("struct<name:string, home:struct<city:string>>"),
    "labels": Type.parse("map<string,decimal(6,2)>"),
    "n": Type.parse("array<long>"),
    "i": LONG,
    "s": STRING,
    "amount": DOUBLE,
    "ok": BOOLEAN,
}
DDL = (
    "items ARRAY<STRUCT<sku: STRING, price: DOUBLE, tags: ARRAY<STRING>>>,"
    " who STRUCT<name: STRING, home: STRUCT<city: STRING>>, labels MAP<STRING, DECIMAL(6,2)>, n ARRAY<BIGINT>,"
    " i BIGINT, s STRING, amount DOUBLE, ok BOOLEAN, record STRING"
)
EXPRESSIONS = [
    "who.name",
    "who.home.city is null",
    "items.price",
    "items.tags",
    "items[0].price",
    "n[1]",
    "get(n, 0)",
    "get(n, -1)",
    "element_at(n, 2)",
    "element_at(n, -1)",
    "labels['a']",
    "element_at(labels, s)",
    "cardinality(n)",
    "cardinality(labels)",
    "map_keys(labels)",
    "map_values(labels)",
    "map_contains_key(labels, s)",
    "array_contains(n, 3)",
    "array_contains(n, i)",
    "array_contains(items.sku, s)",
    "arrays_overlap(n, array(1, i))",
    "arrays_overlap(items.sku, array(s, 'b'))",
    "array_min(n)",
    "array_max(n)",
    "array_max(items.price)",
    "exists(n, x -> x > i)",
    "exists(items, x -> x.price > amount and x.sku = s)",
    "forall(n, x -> x > 0)",
    "forall(items, x -> exists(x.tags, t -> t = x.sku or ok))",
    "filter(n, x -> x > 1)",
    "filter(items, x -> x.price > amount)",
    "transform(n, x -> x + i)",
    "transform(items, x -> upper(x.sku))",
    "transform(items, x -> filter(x.tags, t -> t <> x.sku))",
    "cardinality(filter(items, x -> x.price > 1)) > 1",
    "map('a', i, 'b', 2)['b']",
    "items is null or exists(items, x -> x is null)",
    "coalesce(n, array(7))",
]


def make_rows() -> list[dict[str, Any]]:
    draw = random.Random(1)

    def some(*values: Any) -> Any:
        return draw.choice([None, *values])

    def item() -> Any:
        tags = some([], ["a", None], ["b", "c"])
        return some(*[{"sku": some("a", "b"), "price": some(0.5, 2.0, 99.0), "tags": tags}] * 4)

    return [
        {
            "items": some([], *([item() for _ in range(3)] for _ in range(4))),
            "who": some({"name": some("x"), "home": some({"city": some("Rome")})}),
            "labels": some({}, {"a": some("1.50"), "": "0.10"}, {"b": "2.00"}),
            "n": some([], [3], [1, None, 5], [None], [-2, 7]),
            "i": some(1, 3, -9),
            "s": some("a", "b", ""),
            "amount": some(1.0, 50.0),
            "ok": some(True, False),
        }
        for _ in range(200)
    ]


RECORD = StreamSchema.parse(
    {
        "name": "records",
        "event_time": "at",
        "keys": [[]],
        "fields": {
            "at": "timestamp not null",
            "a": "long",
            "b": "string",
            "c": "double",
            "d": "boolean",
            "e": "decimal(6,2)",
            "s": "struct<x: long, `y y`: string>",
            "l": "array<double>",
            "m": "map<string,struct<n:long>>",
            "deep": {"type": "long", "from": "o.p.q"},
        },
    }
)
RECORD_DDL = (
    "a BIGINT, b STRING, c DOUBLE, d BOOLEAN, e DECIMAL(6,2), s STRUCT<x: BIGINT, `y y`: STRING>, l ARRAY<DOUBLE>,"
    " m MAP<STRING, STRUCT<n: BIGINT>>, o STRUCT<p: STRUCT<q: BIGINT>>"
)
READ = f"from_json(record, '{RECORD_DDL}')"
#: Records that the decoder rejects: its code, and the values that ``from_json`` makes of them (docs/formats.md).
DIFFERENCES: dict[str, tuple[str, dict[str, Any]]] = {
    '{"a": "1"}': ("wrong_type", {}),
    '{"a": 9223372036854775808}': ("out_of_range", {}),
    '{"l": [1, "x"]}': ("wrong_type", {}),
    '{"b": 1}': ("wrong_type", {"b": "1"}),
    '{"b": {"x": [1, 2]}}': ("wrong_type", {"b": '{"x":[1,2]}'}),
    '{"c": 1e400}': ("out_of_range", {"c": "Infinity"}),
    '{"c": NaN}': ("not_json", {"c": "NaN"}),
    '{"c": "NaN"}': ("wrong_type", {"c": "NaN"}),
    '{"e": 1.005}': ("out_of_range", {"e": 1.01}),
    '{"a": 1, "a": 2}': ("duplicate_field", {"a": 2}),
    '{"m": {"k": {"n": 1}, "k": {"n": 2}}}': ("duplicate_field", {"m": {"k": {"n": 2}}}),
    "{'a': 1}": ("not_json", {"a": 1}),
    r'{"b": "\ud800"}': ("not_utf8", {"b": "?"}),
}


def make_records(count: int) -> list[str]:
    draw = random.Random(2)

    def pick(good: list[str], bad: list[str]) -> str:
        return draw.choice(bad) if draw.random() < 0.02 else draw.choice(["null", *good])

    wholes = ["0", "-1", "9007199254740993", "9223372036854775807", "-9223372036854775808"]
    texts = ['""', '"x"', r'"\u00e9\n\"\ud83d\ude00"', '"é😀"', '"null"']
    doubles = ["0.1", "-0.0", "1e22", "5e-324", "1.7976931348623157e308", "123456789012345678901234567890", "7"]

    def whole() -> str:
        return pick(wholes, ["1.0", '"1"', "9223372036854775808", "true"])

    def double() -> str:
        return pick(doubles, ['"0.5"', "[]", "1e400"])

    def array(make: Callable[[], str]) -> str:
        return pick(["[" + ",".join(make() for _ in range(draw.randrange(4))) + "]"], ["{}", "[1,", "7"])

    def obj(members: Sequence[tuple[str, str]]) -> str:
        kept = [f'"{name}" : {value}' for name, value in members if draw.random() < 0.8]
        draw.shuffle(kept)
        return "{" + ", ".join(kept) + "}"

    def entry() -> str:
        return pick([obj([("n", whole()), ("other", double())])], ["[]", "5"])

    def record() -> str:
        inner = pick([obj([("x", whole()), ("y y", draw.choice(texts)), ("z", "[{}]")])], ["[]", '"s"'])
        deep = pick([obj([("p", pick([obj([("q", whole())])], ["1"]))])], ["[1]"])
        members = [
            ("a", whole()),
            ("b", pick(texts, ["1", "{}"])),
            ("c", double()),
            ("d", pick(["true", "false"], ['"true"', "1"])),
            ("e", pick(["1.5", "-9999.99", "0", "12.340", '"7.25"'], ["10000", "1.005", '"x"'])),
            ("s", inner),
            ("l", array(double)),
            ("m", obj([("k1", entry()), ("", entry()), ("é", entry())])),
            ("o", deep),
            ("extra", '{"a": [1, {"b": "}"}]}'),
        ]
        return obj(members)

    return [record() for _ in range(count)]


def expected_record(text: str) -> dict[str, Any] | str:
    """Return the logical values of a record, or the code with which the decoder rejects it."""
    found = decode_one(
        RECORD,
        (text[:-1] + (', "at": 1}' if len(text) > 2 else '"at": 1}')).encode(),
        clock_ms=2**41,
        zone=load_zone("UTC"),
        limits=DecodeLimits(),
        extra_fields=ExtraFields.IGNORE,
    )
    if isinstance(found, RejectedRecord):
        return found.code.value
    values = zip(RECORD.fields, found, strict=True)
    return {field.name: to_logical(value, field.type) for field, value in values if field.name != "at"}


def as_spark(record: Any) -> Any:
    """Return a record of Spark by the fields of the stream."""
    inside = record.pop("o")
    return record | {"deep": inside and inside["p"] and inside["p"]["q"]}


def check_records(records: Sequence[str], found: Sequence[Sequence[Any]]) -> None:
    """Compare what ``from_json`` and ``get_json_object`` found with the decoder."""
    counts: Counter[str] = Counter()
    for text, (read, deep) in zip(records, found, strict=True):
        wanted = expected_record(text)
        counts[wanted if isinstance(wanted, str) else ""] += 1
        if text in DIFFERENCES:
            assert (wanted, {name: value for name, value in read.items() if value is not None}) == DIFFERENCES[text]
        if isinstance(wanted, str):
            continue
        assert as_spark(read) == as_json(wanted), text
        assert deep == (None if wanted["deep"] is None else str(wanted["deep"])), text
    assert counts[""] > len(records) // 2, counts


def as_json(value: Any) -> Any:
    """Return a logical value as Spark's JSON has it."""
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {name: as_json(item) for name, item in value.items()}
    return float(value) if isinstance(value, Decimal) else value


def test_the_functions_of_nested_values_give_what_spark_gives(spark_jars: Path) -> None:
    rows = make_rows()
    records = [*DIFFERENCES, *make_records(len(rows) - len(DIFFERENCES))]
    asked = json.dumps(
        {
            "schema": DDL,
            "rows": [{**row, "record": record} for row, record in zip(rows, records, strict=True)],
            "expressions": [*EXPRESSIONS, READ, "get_json_object(record, '$.o.p.q')"],
            "jars": str(spark_jars),
        }
    )
    command = [sys.executable, "-m", "tests.harness.oracles.spark_expressions"]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    scope = Scope(COLUMNS)
    logical = [
        {**row, "labels": row["labels"] and {k: v and Decimal(v) for k, v in row["labels"].items()}} for row in rows
    ]
    check_records(records, [values[len(EXPRESSIONS) :] for values in found])
    for number, text in enumerate(EXPRESSIONS):
        tree = parse(text, scope, expect=None)
        for row, values in zip(logical, found, strict=True):
            assert as_json(evaluate(tree, row)) == values[number], (text, row)
