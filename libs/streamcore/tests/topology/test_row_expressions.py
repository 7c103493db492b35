"""Expressions over one row are accepted, and those over several rows are rejected where they are written."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pytest
from polars import col, lit, when
from polars import selectors as cs

from streamcore.errors import ConfigError
from streamcore.schema import StreamSchema
from streamcore.topology.simulation import simulate
from streamcore.topology.stream import source
from streamcore.topology.topology import Topology

FIELDS = {"ts": "timestamp not null", "k": "string", "v": "long", "w": "long", "x": "double", "b": "boolean"}
SCHEMA = StreamSchema.parse(
    {"name": "a", "event_time": "ts", "keys": [["k"]], "fields": {**FIELDS, "price": "decimal(9,2)"}}
)
A = source(SCHEMA).map(numbers=pl.concat_list("v", "w"), pair=pl.struct("v", "k"), raw=col("k").cast(pl.Binary))
numbers = col("numbers")
element = pl.element()


def double(value: int) -> int:
    if value > 1_000:
        raise ValueError("too much")
    return 2 * value


def fail_on_three(value: int) -> int:
    if value == 3:
        raise ValueError("three")
    return value


def center(values: pl.Series) -> pl.Series:
    return values - int(values.sum())


ONE_ROW: list[pl.Expr] = [
    col("v"),
    lit(5),
    lit(None),
    lit("text"),
    lit([1, 2]),
    col("v") + 1,
    col("v") * col("w") / 2,
    col("v") // 3 % 2,
    -col("v"),
    col("v") ** 2,
    col("price") * col("v"),
    (col("v") > 1) & col("b") | ~col("b"),
    col("v").is_between(1, 5),
    col("v").is_null() | col("x").is_nan(),
    col("v").is_in([1, 2, 3]),
    col("k").is_in(["a", "b"]),
    col("k").is_in(lit(pl.Series(["a", "b"])).implode()),
    col("v").is_in(numbers),
    col("x").is_close(1.0),
    col("v").fill_null(0),
    col("v").fill_null(strategy="zero"),
    col("x").fill_nan(None),
    col("v").clip(0, 5),
    col("x").round(2),
    col("x").floor().sqrt().log(),
    col("x").sin().abs().sign(),
    col("v").cast(pl.String),
    col("k").cast(pl.Int64, strict=False),
    col("v").hash(seed=1),
    col("v").replace({1: 2}),
    col("v").replace_strict({1: "one"}, default="other"),
    col("v").bitwise_count_ones(),
    col("v").alias("Len"),
    col("v").repeat_by(2),
    when(col("v") > 1).then(lit("many")).otherwise(lit("one")),
    when(col("v") > 1).then("w").when("b").then(0).otherwise(None),
    when(col("b")).then(col("v")),
    pl.coalesce("v", "w", 0),
    pl.sum_horizontal("v", "w"),
    pl.max_horizontal("v", "w") - pl.min_horizontal("v", "w"),
    pl.mean_horizontal("v", "x"),
    pl.all_horizontal("b", col("v") > 1),
    pl.any_horizontal(col("b"), col("w") > 1),
    pl.fold(lit(0), operator.add, ["v", "w"]),
    pl.fold(lit(0), lambda total, value: total + value, ["v", "w"]),
    pl.reduce(operator.mul, ["v", "w"]),
    pl.struct("v", total=col("w") + 1),
    pl.concat_str("k", lit("-"), col("v").cast(pl.String)),
    pl.format("{}:{}", "k", "v"),
    pl.concat_list("v", lit(7)),
    pl.date(2026, 1, 1),
    pl.datetime(2026, 1, 1, 12) + timedelta(hours=1),
    pl.duration(hours=col("v")),
    pl.from_epoch(col("v"), time_unit="ms"),
    pl.int_ranges(0, col("v")),
    pl.arctan2("x", "x"),
    col("k").str.to_uppercase(),
    col("k").str.slice(0, 2) + "!",
    col("k").str.contains("^a") | col("k").str.starts_with("b"),
    col("k").str.replace_all("a", "b"),
    col("k").str.split(",").list.first(),
    col("k").str.extract(r"(\d+)"),
    col("k").str.len_chars(),
    col("k").str.strip_chars().str.zfill(5),
    col("k").str.to_integer(strict=False),
    col("k").str.to_date("%Y-%m-%d", strict=False),
    col("k").str.json_path_match("$.a"),
    col("k").str.json_decode(pl.Struct({"a": pl.Int64})).struct.field("a"),
    col("k").str.contains_any(["a", "b"]),
    col("raw").bin.encode("hex"),
    col("ts").dt.truncate("1h"),
    col("ts").dt.hour() * 60 + col("ts").dt.minute(),
    col("ts").dt.strftime("%Y"),
    col("ts").dt.epoch("ms"),
    col("ts").dt.convert_time_zone("Europe/Paris").dt.date(),
    col("ts").dt.offset_by("1d") - col("ts"),
    col("ts") > datetime.fromisoformat("2026-01-01T00:00:00Z"),
    numbers.list.sum(),
    numbers.list.max() - numbers.list.get(0),
    numbers.list.len(),
    numbers.list.sort().list.head(1),
    numbers.list.unique(maintain_order=True),
    numbers.list.contains(3),
    numbers.list.eval(element.rank()),
    numbers.list.eval(element.cum_sum() - element.mean()),
    numbers.list.agg(element.sum()),
    numbers.list.filter(element > 1),
    numbers.list.shift(1),
    numbers.list.reverse(),
    col("pair").struct.field("v") + 1,
    col("pair").struct.rename_fields(["Len", "Agg"]),
    col("pair").struct.with_fields(pl.field("v") * 2),
    col("pair").struct.json_encode(),
    col("v").map_elements(double, return_dtype=pl.Int64),
    col("v").map_elements(lambda value: double(value), return_dtype=pl.Int64),  # noqa: PLW0108 - it cannot be pickled
    col("v").map_batches(lambda values: values * 2, return_dtype=pl.Int64),
    pl.struct("v", "w").map_elements(lambda row: double(row["v"]), return_dtype=pl.Int64),
    col("v").map_elements(fail_on_three, return_dtype=pl.Int64),
]

SEVERAL_ROWS: list[tuple[pl.Expr, str]] = [
    (col("v").cum_sum(), "cum_sum()"),
    (col("v").cum_sum().over("k"), "over()"),
    (col("v").cum_count(), "cum_count()"),
    (col("v").cum_max(), "cum_max()"),
    (col("v").shift(1), "shift()"),
    (col("v") - col("v").shift(1, fill_value=0), "shift"),
    (col("v").diff(), "diff()"),
    (col("v").pct_change(), "pct_change()"),
    (col("v") - col("v").mean(), "mean()"),
    (col("v") / col("v").sum().over("k"), "over()"),
    ((col("v") - col("v").min()) / (col("v").max() - col("v").min()), "min()"),
    (col("x") - col("x").std(), "std()"),
    (col("v") > col("v").median(), "median()"),
    (col("v") > col("v").quantile(0.9), "quantile()"),
    (col("v") > 1_000_000 + col("v").max(), "max()"),
    (col("v").rank().over("k"), "over()"),
    (col("v").rank(), "rank()"),
    (col("v").rolling_mean(3), "rolling()"),
    (col("v").rolling_sum_by("ts", "1h"), "rolling_by()"),
    (col("v").rolling("ts", period="1h"), "rolling()"),
    (col("x").ewm_mean(span=2), "ewm_mean()"),
    (col("v").forward_fill(), "fill_null"),
    (col("v").fill_null(strategy="backward"), "fill_null"),
    (col("v").fill_null(col("v").mean()), "mean()"),
    (col("v").fill_null(strategy="mean"), "fill_null"),
    (col("x").interpolate(), "interpolate()"),
    (col("k").is_duplicated(), "is_duplicated()"),
    (col("k").is_unique(), "is_unique()"),
    (col("k").is_first_distinct(), "is_first_distinct()"),
    (col("v").sort(), "sort()"),
    (col("v").sort_by("w"), "sort_by()"),
    (col("v").reverse(), "reverse()"),
    (col("v").first(), "first()"),
    (col("v").last(), "last()"),
    (col("v").get(0), "get()"),
    (pl.len(), "len()"),
    (col("v") / pl.len(), "len()"),
    (pl.int_range(pl.len()), "int_range()"),
    (col("v").count(), "count()"),
    (col("k").n_unique(), "n_unique()"),
    (col("k").rle_id(), "rle_id()"),
    (col("b").any(), "any()"),
    (col("b").all() & col("b"), "all()"),
    (col("v").is_in(col("w").implode()), "implode()"),
    (col("v").clip(0, col("v").max()), "max()"),
    (col("v").arg_sort(), "arg_sort()"),
    (col("v").shuffle(seed=1), "shuffle()"),
    (col("x").peak_max(), "peak_max()"),
    (pl.corr("v", "w"), "correlation()"),
    (when(col("v") > col("v").mean()).then(1).otherwise(0), "mean()"),
    (pl.sum_horizontal("v", col("w").cum_sum()), "cum_sum()"),
    (pl.fold(lit(0), lambda total, value: total + value, [col("v").cum_sum(), col("w")]), "cum_sum()"),
    (pl.struct("v", col("w").shift(1)), "shift()"),
    (numbers.list.get(col("v").arg_max()), "arg_max()"),
    (col("v").map_elements(double, return_dtype=pl.Int64).cum_sum(), "depends on other rows"),
    (col("v").map_batches(center, return_dtype=pl.Int64), "map: column new depends on other rows"),
    (col("v").map_batches(lambda values: values.cum_sum(), return_dtype=pl.Int64), "depends on other rows"),
    (col("k").map_batches(lambda values: values.is_duplicated(), return_dtype=pl.Boolean), "depends on other rows"),
]


@pytest.mark.parametrize("expression", ONE_ROW, ids=str)
@pytest.mark.quick_cases(24)
def test_an_expression_over_one_row_is_accepted(expression: pl.Expr) -> None:
    assert "new" in A.map(new=expression).schema


@pytest.mark.parametrize(("expression", "function"), SEVERAL_ROWS, ids=lambda part: str(part)[:60])
def test_an_expression_over_several_rows_is_rejected(expression: pl.Expr, function: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(function)) as caught:
        A.map(new=expression)
    assert str(caught.value).startswith("map: column new")
    assert "aggregate in a window, or keep state in a process function" in str(caught.value)


def test_selectors_do_not_select_internal_columns() -> None:
    numbers = source(SCHEMA).select(cs.integer())
    total = numbers.map(total=pl.sum_horizontal(pl.all()), one=lit(1))
    positive = total.filter(~pl.any_horizontal(cs.integer() == 0))
    rows = pl.DataFrame({name: [None, None, None] for name in SCHEMA.names} | {"v": [1, 0, 3], "w": [4, 5, 6]})
    times = pl.Series("ts", [7, 8, 9]).cast(pl.Datetime("ms", "UTC"))
    result = simulate(Topology("t", positive.sink("out")), {"a": rows.with_columns(times)})
    assert result["out"].rows(named=True) == [
        {"v": 1, "w": 4, "total": 5, "one": 1},
        {"v": 3, "w": 6, "total": 9, "one": 1},
    ]


every_row: Callable[[pl.DataFrame], pl.DataFrame] = lambda rows: rows.with_columns(n=pl.len())  # noqa: E731
WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: A.filter(col("v") > col("v").mean()), "filter: mean() reads other rows"),
    (lambda: A.filter(col("k").is_first_distinct()), "filter: is_first_distinct() reads other rows"),
    (
        lambda: A.filter(col("v").map_batches(lambda v: v.is_duplicated(), return_dtype=pl.Boolean)),
        "filter: what it returns",
    ),
    (lambda: A.select("k", col("v").cum_sum()), "select: expression 2: cum_sum() reads other rows"),
    (lambda: A.select("k", cs.numeric().sum()), "select: expression 2: sum() reads other rows"),
    (lambda: A.flat_map(every_row), "flat_map: column n depends on other rows"),
    (lambda: A.flat_map(lambda rows: rows.unique("k", maintain_order=True)), "flat_map: what it returns for a row"),
    (lambda: A.map(d="v"), "map: column d: takes an Expr, not a str; write such as pl.col('price') or pl.lit(5)"),  # type: ignore[arg-type]
    (lambda: A.map(d=[1, 2]), "map: column d: takes an Expr, not a list"),  # type: ignore[arg-type]
    (lambda: A.filter(True), "filter: takes an Expr, not a bool"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("write", "message"), WRONG, ids=[message[:50] for _, message in WRONG])
def test_the_error_names_the_step_and_its_fault(write: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        write()
    assert message in str(caught.value)


def test_a_function_may_return_several_rows_for_a_row_in_any_order() -> None:
    def twice(rows: pl.DataFrame) -> pl.DataFrame:
        return pl.concat([rows.with_columns(n=lit(n)) for n in (1, 2)])

    assert "n" in A.flat_map(twice).schema
    assert "numbers" in A.flat_map(lambda rows: rows.explode("numbers")).schema
