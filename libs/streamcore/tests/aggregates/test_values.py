"""Values of aggregates over a few rows, by hand: first the references, then columns at the limits of their types."""

from __future__ import annotations

from decimal import Decimal
from math import inf, isnan, nan

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.aggregates import Aggregate, Collect, Count, First, Last, Max, Mean, Min, StdDev, Sum, TopN, Variance
from streamcore.schema import EVENT_MS
from streamcore.windowing import Element
from streamcore.windowing.model import Result, Scalar


def elements(*values: Scalar) -> list[Element]:
    """Later ones have earlier event times."""
    return [Element("a", {"v": value}, 100 - number, number) for number, value in enumerate(values)]


@pytest.mark.parametrize(
    ("aggregate", "of_some", "of_none"),
    [
        (Count("v"), 3, 0),
        (Sum("v"), 9.5, None),
        (Min("v"), 0.5, None),
        (Max("v"), 5, None),
        (Mean("v"), 9.5 / 3, None),
        (Variance("v", population=True), 3.7222222222222223, None),
        (StdDev("v"), 2.362907813126304, None),
        (Collect("v"), (4, 5, 0.5), ()),
        (Collect("v", 2), (4, 5), ()),
        (First("v"), 0.5, None),
        (Last("v"), 4, None),
    ],
    ids=str,
)
def test_a_reference_ignores_missing_values(aggregate: Aggregate, of_some: Result, of_none: Result) -> None:
    assert aggregate(elements(4, None, 5, 0.5)) == of_some
    assert aggregate(elements(None)) == of_none
    assert aggregate([]) == of_none


def test_a_count_without_a_column_counts_elements() -> None:
    assert Count()(elements(4, None)) == 2


def test_a_sum_has_the_type_of_its_terms() -> None:
    assert repr(Sum("v")(elements(1, 2))) == "3"
    assert repr(Sum("v")(elements(Decimal("1.10"), Decimal("2.30")))) == "Decimal('3.40')"
    assert repr(Sum("v")(elements(1.0, 2))) == "3.0"


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.floats(-1e300, 1e300)))
def test_the_reference_sum_does_not_depend_on_the_order_of_its_terms(values: list[int | float]) -> None:
    total = Sum("v")
    assert total(elements(*values)) == total(elements(*reversed(values)))
    assert not total(elements(*values, *(-value for value in values)))


def result(aggregate: Aggregate, column: pl.Series) -> object:
    """Return the aggregate over all rows as one group."""
    rows = pl.DataFrame({"v": column, "w": column, EVENT_MS: np.zeros(len(column), dtype=np.int64)})
    group = np.zeros(len(column), dtype=np.int64)
    partials = aggregate.aggregate_groups(rows, np.arange(len(column)), group, 1)
    return aggregate.result(partials, rows.schema)[0]


def test_a_sum_that_overflows_is_null_until_it_fits_again() -> None:
    most = 2**63 - 1
    assert result(Sum("v"), pl.Series([most, 1])) is None
    assert result(Sum("v"), pl.Series([most, 1, -1])) == most
    assert result(Sum("v"), pl.Series([-most, -1])) == -(2**63)
    assert result(Sum("v"), pl.Series([-most, -2])) is None


def test_a_decimal_sum_has_38_digits_and_is_null_above() -> None:
    dtype = pl.Decimal(38, 2)
    most, least = Decimal("9" * 36 + ".99"), Decimal("-" + "9" * 36 + ".99")
    cent = Decimal("0.01")
    assert result(Sum("v"), pl.Series([most, cent], dtype=dtype)) is None
    assert result(Sum("v"), pl.Series([most, cent, -cent], dtype=dtype)) == most
    assert result(Sum("v"), pl.Series([least], dtype=dtype)) == least
    assert result(Sum("v"), pl.Series([least, -cent], dtype=dtype)) is None
    short = Decimal("9" * 16 + ".99")
    assert result(Sum("v"), pl.Series([short] * 1000, dtype=pl.Decimal(18, 2))) == short * 1000


def test_the_spread_of_the_largest_numbers_is_exact() -> None:
    values = pl.Series([-(2**63), 2**63 - 1])
    assert result(Variance("v", population=True), values) == ((2**64 - 1) / 2) ** 2
    assert result(Variance("v"), pl.Series([10**17, 10**17 + 1, 10**17 + 2])) == 1.0
    assert result(StdDev("v"), pl.Series([5])) is None
    assert result(StdDev("v", population=True), pl.Series([5])) == 0.0


def test_a_spread_of_floats_far_from_zero_keeps_its_digits() -> None:
    assert result(Variance("v"), pl.Series([1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16])) == 30.0


def test_nan_is_the_greatest_number() -> None:
    values = pl.Series([1.0, nan, inf])
    assert result(Min("v"), values) == 1.0
    assert isnan(result(Max("v"), values))  # type: ignore[arg-type]
    assert isnan(result(Min("v"), pl.Series([nan, None])))  # type: ignore[arg-type]
    assert isnan(result(Sum("v"), pl.Series([inf, -inf])))  # type: ignore[arg-type]
    assert isnan(result(Variance("v"), values))  # type: ignore[arg-type]


def test_the_earliest_of_rows_with_equal_values_are_the_top_rows() -> None:
    rows = pl.DataFrame({"v": ["a", "b", "c", "d", None], "w": [1, 2, 1, None, 9], EVENT_MS: [0] * 5})
    partials = TopN("v", by="w", n=2).aggregate_groups(rows, np.arange(5), np.zeros(5, dtype=np.int64), 1)
    top = TopN("v", by="w", n=2).result(partials, rows.schema).to_list()
    assert top == [[{"v": "b", "w": 2}, {"v": "a", "w": 1}]]
