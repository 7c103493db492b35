"""Checks of aggregates: which are rejected, and the types of results."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from streamcore.aggregates import (
    Aggregate,
    ApproxDistinct,
    Collect,
    Count,
    CountDistinct,
    First,
    Max,
    Mean,
    Min,
    Quantiles,
    StdDev,
    Sum,
    TopN,
    Variance,
)
from streamcore.errors import ConfigError
from tests.harness.oracles.aggregates import SCHEMA

WITH_ODD: dict[str, pl.DataType] = SCHEMA | {"huge": pl.UInt64(), "list": pl.List(pl.Int64())}

REJECTED: list[tuple[Aggregate, str]] = [
    (Sum("text"), r"Sum\(column='text'\): column 'text' is String; supported are integers .*, decimals and floats"),
    (Sum("flag"), "is Boolean; supported are integers"),
    (Sum("huge"), "is UInt64; supported are integers .*cast them to Int64 or Decimal"),
    (Sum("nothing"), r"Sum\(column='nothing'\): there is no column 'nothing'; the columns are flag, small"),
    (Count("nothing"), "there is no column 'nothing'"),
    (Mean("at"), "is Datetime.*; supported are integers"),
    (Variance("text"), r"Variance\(column='text', population=False\): column 'text' is String"),
    (StdDev("text"), r"StdDev\(column='text', population=False\): column 'text' is String"),
    (Min("list"), r"is List\(Int64\); supported are numbers .*, booleans, times and text"),
    (Max("huge"), "is UInt64; supported are numbers"),
    (First("list"), r"is List\(Int64\)"),
    (TopN("text", by="list", n=1), r"column 'list' is List\(Int64\)"),
    (TopN("nothing", by="small", n=1), "there is no column 'nothing'"),
    (Collect("nothing"), "there is no column 'nothing'"),
    (CountDistinct("list"), r"column 'list' is List\(Int64\)"),
    (ApproxDistinct("list"), r"column 'list' is List\(Int64\)"),
    (Quantiles("text", (0.5,)), "column 'text' is String; supported are integers"),
]


@pytest.mark.parametrize(("aggregate", "message"), REJECTED, ids=lambda one: str(one)[:40])
def test_a_column_that_does_not_fit_is_rejected_with_what_would_fit(aggregate: Aggregate, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        aggregate.check(WITH_ODD)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Collect("text", 0), "limit must be positive"),
        (lambda: CountDistinct("text", 0), "limit must be positive"),
        (lambda: TopN("text", by="small", n=0), "n must be positive"),
        (lambda: TopN("text", by="text", n=1), "column and by must differ"),
        (lambda: ApproxDistinct("text", 4), "from 7 to 21"),
        (lambda: Quantiles("real", ()), "shares are one or more numbers"),
        (lambda: Quantiles("real", (95,)), "from 0 to 1"),
        (lambda: Quantiles("real", (0.5,), 5), "compression must be from 10"),
    ],
)
def test_an_invalid_setting_is_rejected(make: Callable[[], Aggregate], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("aggregate", "dtype"),
    [
        (Count(), pl.Int64()),
        (Sum("small"), pl.Int64()),
        (Sum("price"), pl.Decimal(38, 2)),
        (Sum("half"), pl.Float64()),
        (Mean("price"), pl.Float64()),
        (StdDev("whole"), pl.Float64()),
        (Min("small"), pl.Int16()),
        (Max("price"), pl.Decimal(12, 2)),
        (First("at"), pl.Datetime("ms", "UTC")),
        (Collect("text"), pl.List(pl.String())),
        (TopN("text", by="price", n=2), pl.List(pl.Struct({"text": pl.String(), "price": pl.Decimal(12, 2)}))),
        (CountDistinct("text"), pl.Int64()),
        (Quantiles("price", (0.5,)), pl.List(pl.Float64())),
    ],
    ids=str,
)
def test_the_type_of_a_result_follows_from_the_columns(aggregate: Aggregate, dtype: pl.DataType) -> None:
    assert aggregate.check(WITH_ODD) == dtype
