"""Where Polars differs from the language, the compiler corrects it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from rulecore.language import parse
from rulecore.language.columnar.compiler import to_polars
from rulecore.language.types import MAX_LONG, MIN_LONG, Value
from tests.harness.oracles.expressions import COLUMNS, SCOPE, frame


def _column(text: str, rows: Sequence[Mapping[str, Any]]) -> list[object]:
    full = [{**dict.fromkeys(COLUMNS), **row} for row in rows]
    return frame(full).with_columns(to_polars(parse(text, SCOPE, expect=None)).alias("r"))["r"].to_list()


def test_division_by_a_constant_is_correctly_rounded() -> None:
    """Polars multiplies by the reciprocal: 49 / 49 would be 0.9999999999999999."""
    assert _column("a / 49", [{"a": 49}, {"a": 1}]) == [1.0, 1 / 49]
    assert _column("fine + x", [{"fine": None, "x": 1.0}] * 2) == [None, None]


def test_a_decimal_becomes_the_nearest_double() -> None:
    rows: list[dict[str, Value]] = [{"amount": Decimal(n).scaleb(-2)} for n in range(1000)]
    assert _column("amount + 0e0", rows) == [n / 100 for n in range(1000)]


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_a_power_does_not_depend_on_how_many_rows_there_are(rows: int) -> None:
    """Polars uses another formula for one exponent than for many: one event would differ by the cut that it is in."""
    row: dict[str, Value] = {"a": -43_650_607_972_870, "x": 2.434699301468155e38, "b": 8}
    assert _column("power(a, 7)", [row] * rows) == [float(-43_650_607_972_870) ** 7.0] * rows
    assert _column("power(x, b)", [row] * rows) == [2.434699301468155e38**8.0] * rows


def test_a_constant_beside_a_branch_that_is_always_constant_has_all_rows() -> None:
    """Polars 2.1 gives one row for ``literal <= when(all false).otherwise(literal)`` and then fails."""
    rows: list[dict[str, Value]] = [{"ok": False, "a": 1}] * 4
    assert _column("5 <= case when ok then a else 7 end", rows) == [True] * 4
    assert _column("5 <= coalesce(nullif(a, 1), 3)", rows) == [False] * 4


def test_constants_alone_have_all_rows() -> None:
    assert _column("lower('A') in ('a', 'b')", [{}, {}]) == [True, True]


def test_no_rows_give_no_values() -> None:
    empty = frame([]).with_columns(
        to_polars(parse("a / 2 > 1 and s like 'a_' and round(x, 2) > 1 and 1 = 1", SCOPE)).alias("r")
    )
    assert empty["r"].to_list() == []
    assert empty.schema["r"] == pl.Boolean


@pytest.mark.parametrize("unit", ["second", "day", "week", "month", "quarter", "year"])
def test_a_time_out_of_the_calendar_is_null_and_no_panic(unit: str) -> None:
    rows: list[dict[str, Value]] = [{"ts": MIN_LONG}, {"ts": MAX_LONG}, {"ts": 0}]
    found = _column(f"date_trunc('{unit}', ts)", rows)
    assert found[:2] == [None, None]
    assert isinstance(found[2], int)


def test_nan_is_the_greatest_and_equals_itself() -> None:
    rows: list[dict[str, Value]] = [{"x": float("nan"), "y": 1.0}, {"x": float("nan"), "y": float("nan")}]
    assert _column("x > y", rows) == [True, False]
    assert _column("x = y", rows) == [False, True]
    assert _column("least(x, y) = y", rows) == [True, True]
    assert _column("greatest(x, y) = x", rows) == [True, True]


def test_overflow_and_division_by_zero_are_null() -> None:
    rows: list[dict[str, Value]] = [{"a": MAX_LONG, "b": 1}, {"a": MIN_LONG, "b": 0}]
    assert _column("a + 1", rows) == [None, MIN_LONG + 1]
    assert _column("-a", rows) == [MIN_LONG + 1, None]
    assert _column("a * 2", rows) == [None, None]
    assert _column("b / b", rows) == [1.0, None]
    assert _column("a % b", rows) == [0, None]
    assert _column("a % -1", rows) == [0, 0]


def test_the_result_of_a_decimal_is_physical() -> None:
    rows: list[dict[str, Value]] = [{"a": 3, "amount": Decimal("1.50")}]
    frame_ = frame([{**dict.fromkeys(COLUMNS), **row} for row in rows])
    result = frame_.select(to_polars(parse("a * amount", SCOPE, expect=None)).alias("r"))["r"]
    assert result.dtype == pl.Int64
    assert result.to_list() == [450]
