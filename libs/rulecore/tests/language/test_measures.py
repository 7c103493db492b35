"""Distances, similarities, normal forms and check digits: columns equal the reference, and both keep laws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore.language import Scope, evaluate, parse
from rulecore.language.columnar.compiler import to_polars
from rulecore.language.types import Value
from streamcore.schema import DOUBLE, LONG, STRING, TIMESTAMP, Kind, Type

COLUMNS: dict[str, Type] = {
    **dict.fromkeys(("a", "b"), STRING),
    **dict.fromkeys(("w", "x", "y", "z"), DOUBLE),
    "money": Type(Kind.DECIMAL, 9, 2),
    "n": LONG,
    "t": TIMESTAMP,
    "u": TIMESTAMP,
}
TEXTS = st.text("abcABC .-_@+é\u0130ß\u212a019", max_size=9) | st.sampled_from(
    [
        "jo.e+x@gmail.com",
        "A@b.c",
        "www.example.co.uk",
        "10.0.0.1",
        "[::1]",
        "a..b",
        "x.",
        "4111111111111111",
        "0",
        "martha",
    ]
)
DEGREES = st.floats(-200, 200) | st.sampled_from([0.0, 90.0, -90.0, 180.0, -180.0, math.nan])
ROWS = st.fixed_dictionaries(
    {
        "a": st.none() | TEXTS,
        "b": st.none() | TEXTS,
        **dict.fromkeys(("w", "x", "y", "z"), st.none() | DEGREES),
        "n": st.none() | st.integers(-5, 5),
        "t": st.none() | st.integers(-(10**13), 10**13),
        "u": st.none() | st.integers(0, 10**7),
    }
)
EXPRESSIONS = [
    "distance_km(w, x, y, z)",
    "speed_kmh(w, x, t, y, z, u)",
    "levenshtein(a, b)",
    "jaro_winkler_similarity(a, b)",
    "normalize_name(a)",
    "normalize_email(a)",
    "luhn_check(a)",
    "percent_change(w, x)",
    "percent_change(n, 3)",
    "z_score(w, x, n)",
    "entropy(a)",
    "domain_suffix(a, 2)",
    "hour(t, 'Asia/Kolkata')",
    "dayofweek(t, 'Europe/Berlin')",
    "weekday(t, 'America/New_York')",
    "weekday(t)",
]


def in_columns(text: str, rows: Sequence[dict[str, Value]]) -> list[Value]:
    kinds = {Kind.STRING: pl.String, Kind.DOUBLE: pl.Float64}
    schema = {name: kinds.get(COLUMNS[name].kind, pl.Int64) for name in rows[0]}
    expression = to_polars(parse(text, Scope(COLUMNS), expect=None))
    values: list[Value] = pl.DataFrame(rows, schema=schema).select(expression.alias("v"))["v"].to_list()
    return values


def in_reference(text: str, row: Mapping[str, Value]) -> Value:
    found: Value = evaluate(parse(text, Scope(COLUMNS), expect=None), row)
    return found


def close(left: Value, right: Value) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        both_nan = math.isnan(left) and math.isnan(right)
        return both_nan or math.isclose(left, right, rel_tol=1e-7, abs_tol=1e-4)
    return left == right and type(left) is type(right)


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("text", EXPRESSIONS)
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(ROWS, min_size=1, max_size=8))
def test_columns_equal_the_reference(text: str, rows: list[dict[str, Value]]) -> None:
    for row, have in zip(rows, in_columns(text, rows), strict=True):
        want = in_reference(text, row)
        assert close(have, want), (row, have, want)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.text("abcde ", max_size=9), st.text("abcde ", max_size=9)), min_size=1, max_size=20))
def test_edit_distance_and_similarity_are_those_of_duckdb(pairs: list[tuple[str, str]]) -> None:
    for left, right in pairs:
        theirs = duckdb.execute("select levenshtein(?, ?), jaro_winkler_similarity(?, ?)", [left, right] * 2).fetchone()
        assert theirs is not None
        row = {"a": left, "b": right}
        assert in_reference("levenshtein(a, b)", row) == theirs[0]
        assert close(in_reference("jaro_winkler_similarity(a, b)", row), theirs[1]) or not left or not right


@settings(max_examples=60, deadline=None)
@given(st.text("0123456789", min_size=1, max_size=18), st.integers(0, 17), st.integers(1, 9))
def test_one_digit_that_changes_makes_a_number_wrong(digits: str, place: int, add: int) -> None:
    right = next(digits + str(i) for i in range(10) if in_reference("luhn_check(a)", {"a": digits + str(i)}))
    at = place % len(right)
    wrong = right[:at] + str((int(right[at]) + add) % 10) + right[at + 1 :]
    assert in_columns("luhn_check(a)", [{"a": right}, {"a": wrong}]) == [True, False]


@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_a_normal_form_is_its_own(text: str) -> None:
    for function in ("normalize_name", "normalize_email"):
        once = in_reference(f"{function}(a)", {"a": text})
        assert in_reference(f"{function}(a)", {"a": once}) == once


@settings(max_examples=60, deadline=None)
@given(*[st.floats(-90, 90), st.floats(-180, 180)] * 2)
def test_a_distance_is_symmetric_and_at_most_half_the_equator(w: float, x: float, y: float, z: float) -> None:
    there, back = (
        in_reference("distance_km(w, x, y, z)", dict(zip("wxyz", one, strict=True)))
        for one in ((w, x, y, z), (y, z, w, x))
    )
    assert isinstance(there, float)
    assert close(there, back)
    assert 0 <= there <= 20_015.2
