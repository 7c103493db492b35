"""Aggregates give the same values as DuckDB over random rows."""

from __future__ import annotations

from collections.abc import Callable
from math import isclose, isnan

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.aggregates import (
    Aggregate,
    Collect,
    Count,
    CountDistinct,
    First,
    Last,
    Max,
    Mean,
    Min,
    StdDev,
    Sum,
    TopN,
    Variance,
)
from tests.harness.oracles.aggregates import COLUMNS, GROUPS, SCHEMA, frames, group_partials

#: DuckDB rejects what leaves a type's range, and infinities in a variance, so those columns are left to the reference.
TAME = ("small", "price", "real", "half")
EVERY = tuple(COLUMNS)
SQL: dict[str, tuple[tuple[str, ...], Callable[[str], Aggregate], str]] = {
    "count": (EVERY, Count, "count({c})"),
    "sum": (TAME, Sum, "sum({c})"),
    "avg": (TAME, Mean, "avg({c})"),
    "min": (EVERY, Min, "min({c})"),
    "max": (EVERY, Max, "max({c})"),
    "var_samp": (("small", "price"), Variance, "var_samp({c}::double)"),
    "stddev_samp": (("small", "price"), StdDev, "stddev_samp({c}::double)"),
    "first": (EVERY, First, "arg_min({c}, (__event_ms, number)) filter ({c} is not null)"),
    "last": (EVERY, Last, "arg_max({c}, (__event_ms, number)) filter ({c} is not null)"),
    "count(distinct)": (EVERY, CountDistinct, "count(distinct {c})"),
    "list": (EVERY, Collect, "coalesce(list({c} order by number) filter ({c} is not null), [])"),
}


DATABASE = duckdb.connect(config={"threads": 1})
DATABASE.execute("set timezone = 'UTC'")


def answers(rows: pl.DataFrame, sql: str) -> list[object]:
    """Return one value for each group, including groups without rows."""
    numbered = rows.with_row_index("number")
    groups = pl.DataFrame({"g": range(GROUPS)})
    query = f"select {sql} from groups left join numbered on numbered.group = g group by g order by g"
    with DATABASE.cursor() as cursor:
        cursor.register("numbered", numbered)
        cursor.register("groups", groups)
        return [value for (value,) in cursor.execute(query).fetchall()]


def equal(seen: object, wanted: object) -> bool:
    if isinstance(seen, float) and wanted is not None:
        number = float(wanted)  # type: ignore[arg-type]
        return isclose(seen, number, rel_tol=1e-6, abs_tol=1e-6) or (isnan(seen) and isnan(number))
    if isinstance(seen, list) and isinstance(wanted, list):
        return len(seen) == len(wanted) and all(map(equal, seen, wanted))
    return seen == wanted


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", SQL)
@settings(max_examples=60)
@given(data=st.data())
def test_an_aggregate_gives_the_value_that_duckdb_gives(name: str, data: st.DataObject) -> None:
    columns, kind, sql = SQL[name]
    column = data.draw(st.sampled_from(columns))
    rows = data.draw(frames([column]))
    aggregate = kind(column)
    seen = aggregate.result(group_partials(aggregate, rows), SCHEMA).to_list()
    wanted = answers(rows, sql.format(c=f'"{column}"'))
    assert all(map(equal, seen, wanted)), f"{aggregate} gave {seen}, not {wanted}"


@settings(max_examples=60)
@given(frames(["text", "small"]))
def test_top_n_gives_the_rows_that_duckdb_gives(rows: pl.DataFrame) -> None:
    aggregate = TopN("text", by="small", n=3)
    top = "list({'text': text, 'small': small} order by small desc, number)"
    wanted = answers(rows, f"coalesce(({top} filter (text is not null and small is not null))[:3], [])")
    assert aggregate.result(group_partials(aggregate, rows), SCHEMA).to_list() == wanted


@given(frames([]))
def test_a_count_of_rows_equals_that_of_duckdb(rows: pl.DataFrame) -> None:
    assert Count().result(group_partials(Count(), rows), SCHEMA).to_list() == answers(rows, "count(number)")
