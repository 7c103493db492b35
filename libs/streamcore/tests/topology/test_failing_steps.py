"""A stateless step that does not return what it declares loses the rows for which it does so, not the app."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import polars as pl
import pytest

from streamcore.aggregates import Count
from streamcore.errors import ConfigError
from streamcore.keyed import ProcessContext, ProcessFunction
from streamcore.operators.base import MAIN
from streamcore.schema import StreamSchema
from streamcore.topology.simulation import simulate
from streamcore.topology.stream import Stream, source
from streamcore.topology.topology import Topology
from streamcore.windowing import Tumbling

SCHEMA = StreamSchema.parse(
    {
        "name": "a",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string not null", "n": "long not null"},
    }
)


def stream() -> Stream:
    return source(SCHEMA)


def rows(*events: tuple[int, str, int]) -> pl.DataFrame:
    frame = pl.DataFrame([*events], schema={"ts": pl.Int64, "user": pl.String, "n": pl.Int64}, orient="row")
    return frame.with_columns(pl.col("ts").cast(pl.Datetime("ms", "UTC")))


def spoil_sevens(frame: pl.DataFrame, spoil: Callable[[pl.DataFrame], Any]) -> Any:
    """Return the frame, or a spoilt one if it has rows with 7."""
    return spoil(frame) if (frame["n"] == 7).any() else frame


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda _: None, "it returns NoneType; return a data frame"),
        (lambda frame: frame.lazy(), "it returns LazyFrame; return a data frame"),
        (lambda frame: frame.drop("user"), "it returns no column 'user'"),
        (lambda frame: frame.select("user", "ts", "n"), "it returns no column '__event_ms'"),
        (lambda frame: frame.with_columns(n=pl.lit("seven")), "conversion from `str` to `i64` failed"),
    ],
)
def test_a_step_that_returns_other_columns_for_a_row_loses_the_row(
    spoil: Callable[[pl.DataFrame], Any], reason: str
) -> None:
    topology = Topology("t", stream().flat_map(partial(spoil_sevens, spoil=spoil)).sink("out"))
    result = simulate(topology, {"a": rows((1, "x", 6), (2, "x", 7), (3, "x", 8))})
    assert result["out"]["n"].to_list() == [6, 8]
    (record,) = result.dead
    assert reason in dict(record.headers)["reason"].decode()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda frame: frame.with_columns(pl.col("n").cast(pl.Int16)),
        lambda frame: frame.select(pl.all().exclude("n"), "n"),
        lambda frame: frame.with_columns(more=1),
    ],
)
def test_a_step_that_returns_the_columns_in_another_form_keeps_the_row(
    spoil: Callable[[pl.DataFrame], pl.DataFrame],
) -> None:
    counted = (
        stream()
        .flat_map(partial(spoil_sevens, spoil=spoil))
        .key_by("user")
        .window(Tumbling("10ms"))
        .aggregate(count=Count())
    )
    result = simulate(Topology("t", counted.sink("out")), {"a": rows((1, "x", 6), (2, "x", 7))}, cut_rows=1)
    assert result["out"]["count"].to_list() == [2]


class PassesOn(ProcessFunction):
    """Reads each event, as Python values."""

    outputs = {MAIN: {"n": pl.Int64}}

    def process(self, event: Any, context: ProcessContext) -> list[dict[str, object]]:
        return [{"n": event.n}]


@pytest.mark.parametrize("days", [-720_000, 3_000_000])
@pytest.mark.parametrize("dtype", [pl.Datetime("ms", "UTC"), pl.Datetime("us"), pl.Date()])
def test_a_time_that_python_cannot_represent_loses_the_row(dtype: pl.DataType, days: int) -> None:
    day = pl.when(pl.col("n") == 7).then(pl.lit(days, pl.Int64)).otherwise(0)
    time = day.cast(pl.Int32).cast(pl.Date) if dtype == pl.Date else pl.from_epoch(day * 86_400, "s").cast(dtype)
    result = simulate(Topology("t", stream().map(time=time).sink("out")), {"a": rows((1, "x", 6), (2, "x", 7))})
    assert result["out"]["n"].to_list() == [6]
    assert "within the years 1 to 9999" in dict(result.dead[0].headers)["reason"].decode()


def test_a_time_that_python_cannot_represent_does_not_reach_a_keyed_function() -> None:
    time = (pl.col("n") * 10**14).cast(pl.Datetime("ms", "UTC"))
    passed = stream().map(time=time).key_by("user").process(PassesOn())
    result = simulate(Topology("t", passed.sink("out")), {"a": rows((1, "x", 1), (2, "x", 7))})
    assert result["out"]["n"].to_list() == [1]
    assert len(result.dead) == 1


def test_a_step_may_return_only_nulls() -> None:
    nulls = stream().flat_map(partial(spoil_sevens, spoil=lambda frame: frame.with_columns(n=None)))
    result = simulate(Topology("t", nulls.sink("out")), {"a": rows((1, "x", 6), (2, "x", 7))}, cut_rows=1)
    assert result["out"]["n"].to_list() == [6, None]


def test_a_lane_of_bytes_is_rejected_where_it_is_written() -> None:
    for dtype in (pl.Binary(), pl.List(pl.Struct({"b": pl.Binary()}))):
        panes = stream().key_by("user").window(Tumbling("10ms")).apply(lambda _: [], {"b": dtype})
        with pytest.raises(ConfigError, match=r"sink out: columns \['b'\] are bytes"):
            panes.sink("out")
