"""Lambdas that read values from outside of them, and the names of their parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pytest

from rulecore.errors import ExpressionError
from rulecore.language import Scope, evaluate, normalize, parse, render, to_logical, to_physical
from rulecore.language.columnar import beside
from rulecore.language.columnar.compiler import to_polars
from rulecore.language.limits import MAX_TRANSFORMED
from rulecore.language.reference import evaluator
from rulecore.language.scope import split_step_column
from rulecore.language.traversal import find_outside
from streamcore.columnar.polars_types import polars_type
from streamcore.schema import LONG, STRING, Type, array_of

COLUMNS: Mapping[str, Type] = {
    "user": STRING,
    "tags": array_of(STRING),
    "ns": array_of(LONG),
    "items": Type.parse("array<struct<sku: string, n: long, ids: array<long>>>"),
    "s": Type.parse("struct<k: long>"),
    "s.k": STRING,
    "i.n": STRING,
}
ROWS: Sequence[Mapping[str, Any]] = [
    {"user": "u", "tags": ["a", "u"], "ns": [1, 3], "items": [{"sku": "a", "n": 1, "ids": [1, 2]}, None]},
    {"user": None, "tags": [], "ns": None, "items": None},
    {"user": "x", "tags": [None, "x"], "ns": [None, 5], "items": []},
    {"user": "a", "ns": [], "items": [{"sku": None, "n": 3, "ids": None}, {"sku": "a", "n": None, "ids": []}]},
]
READ_OUTSIDE = [
    "contains(tags, user)",
    "exists(tags, t -> t = user)",
    "forall(tags, t -> t <> user)",
    "filter(tags, t -> t = user)",
    "transform(items, i -> contains(tags, i.sku))",
    "transform(items, i -> tags)",
    "transform(tags, t -> concat(user, t))",
    "exists(items, i -> exists(ns, n -> n = i.n))",
    "filter(items, i -> exists(i.ids, d -> d > i.n and d < cardinality(ns) + 5))",
    "transform(ns, a -> transform(ns, b -> a * b))",
]


def _parse(text: str) -> Any:
    return parse(text, Scope(COLUMNS), expect=None)


def _run(text: str, rows: Sequence[Mapping[str, Any]] = ROWS) -> list[Any]:
    """Evaluate over the rows in columns."""
    expr = _parse(text)
    frame = pl.DataFrame(
        {
            name: pl.Series([to_physical(row.get(name), kind) for row in rows], dtype=polars_type(kind))
            for name, kind in COLUMNS.items()
        }
    )
    column = frame.with_columns(to_polars(expr).alias("result"))["result"]
    return [to_logical(value, expr.type) for value in column.to_list()]


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("size", [1, 7, 4_000_000])
@pytest.mark.parametrize("text", READ_OUTSIDE)
def test_the_size_of_a_slice_changes_no_result(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "MAX_SIZE", size)
    assert _run(text) == [evaluate(_parse(text), row) for row in ROWS]


@pytest.mark.parametrize("text", READ_OUTSIDE)
@pytest.mark.quick_cases(2)
def test_a_row_has_its_result_in_each_batch(text: str) -> None:
    assert [_run(text, [row])[0] for row in ROWS] == _run(text)
    assert _run(text, []) == []


def test_no_slice_is_larger_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 elements beside a text of 10,000 bytes: 20 MB at once without slices."""
    heights: list[int] = []
    made = pl.DataFrame

    def record(*args: Any, **options: Any) -> pl.DataFrame:
        frame = made(*args, **options)
        heights.append(frame.height)
        return frame

    monkeypatch.setattr(beside, "MAX_SIZE", 100_000)
    monkeypatch.setattr(pl, "DataFrame", record)
    rows = [{"user": "y" * 10_000, "tags": ["x"] * 2_000}, ROWS[0]]
    assert _run("exists(tags, t -> t = user)", rows) == [False, True]
    assert max(height for height in heights if height != len(rows)) == 9


@pytest.mark.slow
def test_an_array_beside_a_long_one_is_no_error() -> None:
    """The product of their lengths is 25 million."""
    rows: Sequence[Mapping[str, Any]] = [{"ns": [*range(0, 10_000, 2)]}, {"ns": [1, 2]}, {"ns": None}]
    assert _run("exists(ns, x -> array_contains(ns, x + 1))", rows) == [False, True, None]


def test_what_reads_no_parameter_is_computed_once_for_an_array() -> None:
    body = _parse("exists(tags, t -> t = lower(concat(user, 'a')) and cardinality(ns) > 1)").body
    assert [render(part) for part in find_outside(body, "t")] == ["lower(concat(user, 'a'))", "cardinality(ns) > 1"]


def test_a_transform_that_repeats_too_much_is_null_in_columns_and_reference() -> None:
    text = "transform(tags, t -> concat(t, user))"
    fits = {"user": "é" * 499, "tags": ["x"] * (MAX_TRANSFORMED // 1_000)}  # each 1 value of 1 + 998 bytes
    more = {"user": "é" * 499, "tags": ["x"] * (MAX_TRANSFORMED // 1_000) + [""]}
    for row, is_null in [(fits, False), (more, True)]:
        (found,) = _run(text, [row])
        assert found == evaluate(_parse(text), row)
        assert (found is None) is is_null
    assert _run(text, [more, fits, more])[0::2] == [None, None]
    assert evaluator._size({"n": "ab", "m": [1, None]}, Type.parse("struct<n: string, m: array<long>>")) == 7


@pytest.mark.parametrize(
    "text",
    [
        "exists(ns, a -> exists(ns, b -> exists(ns, c -> a + b = c)))",
        "exists(ns, a -> exists(ns, b -> contains(ns, a + b)))",
        "exists(items, i -> exists(ns, b -> exists(i.ids, d -> contains(ns, b + d))))",
    ],
)
def test_the_work_is_the_product_of_two_arrays_at_most(text: str) -> None:
    with pytest.raises(ExpressionError, match="lambdas over more than 2 arrays inside each other"):
        _parse(text)


def test_arrays_of_an_element_and_equal_work_for_each_are_no_factor() -> None:
    for text in [
        "exists(items, i -> exists(i.ids, d -> exists(ns, n -> n = d)))",
        "exists(ns, a -> exists(ns, b -> b > a) and exists(ns, b -> exists(ns, c -> c > b)))",
    ]:
        assert _run(text) == [evaluate(_parse(text), row) for row in ROWS]


@pytest.mark.parametrize("name", ["`0`", "`a b`", "__0", "__2", "__"])
def test_the_name_of_a_parameter_is_plain(name: str) -> None:
    """``__0`` is of the normal form, where it could take the place of another parameter."""
    with pytest.raises(ExpressionError, match="parameter"):
        _parse(f"exists(items, {name} -> exists({name}.ids, y -> y = {name}.n))")


def test_the_normal_form_takes_no_parameter_for_another() -> None:
    for text in ["exists(items, x -> exists(x.ids, y -> y = x.n))", "exists(ns, x -> exists(ns, y -> x = y + 1))"]:
        normal = normalize(_parse(text))
        assert _parse(render(normal)) == normal
        assert [evaluate(normal, row) for row in ROWS] == [evaluate(_parse(text), row) for row in ROWS]


def test_a_parameter_and_a_member_come_before_a_column_with_a_dot_in_its_name() -> None:
    row = {"s": {"k": 7}, "s.k": "dotted", "i.n": "dotted", "items": [{"sku": None, "n": 1, "ids": None}]}
    cases = {"s.k": 7, "(s).k": 7, "`s.k`": "dotted", "i.n": "dotted", "transform(items, i -> i.n)": [1]}
    for text, value in cases.items():
        assert _run(text, [row]) == [value] == [evaluate(_parse(text), row)]
        assert _run(render(_parse(text)), [row]) == [value]


def test_an_array_of_arrays_has_arrays_as_elements() -> None:
    """Polars would join them."""
    assert _run("array(ns, ns)") == [[row["ns"], row["ns"]] for row in ROWS]


def test_an_aggregate_of_an_array_inside_of_another_is_parsed_once() -> None:
    """Each level was parsed twice: 2^15 times, the inner one."""
    text = "ns"
    for _ in range(15):
        text = f"array(max({text}))"
    assert _run(text, [{"ns": [3, 4]}]) == [[4]]


def test_the_column_of_a_step_may_end_with_a_bracket() -> None:
    assert split_step_column("a#size (kB)") == ("", "a", "size (kB)")
    assert split_step_column("last(a#size (kB))") == ("last", "a", "size (kB)")
    assert split_step_column("size (kB)") is None
    scope = Scope({"a#size (kB)": LONG, "last(a#size (kB))": LONG}, steps=("a",))
    for text in ["a.`size (kB)` > 1", "last(a.`size (kB)`) > 1"]:
        assert render(parse(text, scope)) == text
