"""A value of a store fits its declared type exactly, or is rejected with a reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.enrich.type_check import UTC_MS, AnswerTypeMismatch, coercion_for, is_supported, to_series

NOON = datetime(2026, 3, 1, 12, 0, 0, 123_456, tzinfo=UTC)


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("dtype", "value", "stored"),
    [
        (pl.String(), "é", "é"),
        (pl.String(), Colour.RED, "red"),
        (pl.Int64(), -(2**63), -(2**63)),
        (pl.Int64(), Level.HIGH, 3),
        (pl.Float64(), 2, 2.0),
        (pl.Boolean(), True, True),
        (UTC_MS, NOON, NOON.replace(microsecond=123_000)),
        (UTC_MS, NOON.astimezone(timezone(timedelta(hours=-5))), NOON.replace(microsecond=123_000)),
        (
            UTC_MS,
            datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        ),
        (pl.Decimal(5, 2), Decimal("-999.99"), Decimal("-999.99")),
        (pl.Decimal(5, 2), Decimal("1.500"), Decimal("1.50")),
        (pl.Decimal(5, 2), 7, Decimal("7.00")),
        (pl.Decimal(5, 2), Decimal("0E+9"), Decimal("0.00")),
    ],
)
def test_a_value_that_fits_is_stored_unchanged(dtype: pl.DataType, value: object, stored: object) -> None:
    column = to_series("x", [coercion_for(dtype)(value), coercion_for(dtype)(None)], dtype)
    assert column.dtype == dtype
    assert column.to_list() == [stored, None]


@pytest.mark.parametrize(
    ("dtype", "value", "says"),
    [
        (pl.String(), 5, "int where text"),
        (pl.String(), b"x", "bytes where text"),
        (pl.String(), "\ud800", "not Unicode"),
        (pl.Int64(), True, "bool where a whole number"),
        (pl.Int64(), 1.0, "float where a whole number"),
        (pl.Int64(), 2**63, "more than 64 bits"),
        (pl.Float64(), "1", "str where a number"),
        (pl.Float64(), 10**400, "too large"),
        (pl.Boolean(), 1, "int where true or false"),
        (UTC_MS, "2026-03-01", "str where a datetime"),
        (UTC_MS, datetime(2026, 3, 1), "without a zone"),
        (pl.Decimal(5, 2), 1.5, "float where a decimal"),
        (pl.Decimal(5, 2), Decimal("0.001"), "more than 2 digits after"),
        (pl.Decimal(5, 2), 1000, "more than 3 digits before"),
        (pl.Decimal(5, 2), Decimal("1E+999999999"), "more than 3 digits before"),
        (pl.Decimal(5, 2), Decimal("NaN"), "not finite"),
    ],
)
def test_a_value_that_does_not_fit_is_rejected_with_a_reason(dtype: pl.DataType, value: object, says: str) -> None:
    with pytest.raises(AnswerTypeMismatch, match=says):
        coercion_for(dtype)(value)


@given(st.decimals(allow_nan=True) | st.integers())
def test_a_decimal_is_stored_exactly_or_rejected(value: Decimal | int) -> None:
    dtype = pl.Decimal(12, 3)
    try:
        fitted = coercion_for(dtype)(value)
    except AnswerTypeMismatch:
        return
    assert to_series("x", [fitted], dtype).to_list() == [value]


def test_other_types_are_rejected_for_enrichment() -> None:
    assert not [t for t in (pl.Int32(), pl.List(pl.String()), pl.Date(), pl.Datetime("us", "UTC")) if is_supported(t)]
