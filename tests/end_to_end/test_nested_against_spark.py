"""Functions of arrays, structs and maps mean what Spark SQL means by the same text."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from rulecore.language import Scope, evaluate, parse
from streamcore.schema import BOOLEAN, DOUBLE, LONG, STRING, Type

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
    " i BIGINT, s STRING, amount DOUBLE, ok BOOLEAN"
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


def as_json(value: Any) -> Any:
    """Return a logical value as Spark's JSON has it."""
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {name: as_json(item) for name, item in value.items()}
    return float(value) if isinstance(value, Decimal) else value


def test_the_functions_of_nested_values_give_what_spark_gives(spark_jars: Path) -> None:
    rows = make_rows()
    asked = json.dumps({"schema": DDL, "rows": rows, "expressions": EXPRESSIONS, "jars": str(spark_jars)})
    command = [sys.executable, "-m", "tests.harness.oracles.spark_expressions"]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    scope = Scope(COLUMNS)
    logical = [
        {**row, "labels": row["labels"] and {k: v and Decimal(v) for k, v in row["labels"].items()}} for row in rows
    ]
    for number, text in enumerate(EXPRESSIONS):
        tree = parse(text, scope, expect=None)
        for row, values in zip(logical, found, strict=True):
            assert as_json(evaluate(tree, row)) == values[number], (text, row)
