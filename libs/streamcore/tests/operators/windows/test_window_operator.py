"""The interface of the window operator: its columns, limits, rejections and full window functions."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest

from streamcore.aggregates import Count, Sum
from streamcore.errors import ConfigError
from streamcore.operators.base import LATE, MAIN, CutTime
from streamcore.operators.windows.general.pane_values import PaneFunction, WindowView
from streamcore.operators.windows.operator import WindowOperator
from streamcore.schema import EVENT_MS
from streamcore.watermark import NO_WATERMARK
from streamcore.windowing import (
    Accumulation,
    AfterCount,
    AfterWatermark,
    Assigner,
    CountTumbling,
    GlobalWindow,
    KeepCount,
    OnPunctuation,
    Repeatedly,
    Session,
    Sliding,
    Tumbling,
    WindowSpec,
)
from streamcore.windowing.model import END_OF_TIME_MS

SCHEMA = {"user": pl.String(), "country": pl.Int64(), "v": pl.Int64()}
BEFORE = CutTime(NO_WATERMARK, NO_WATERMARK, 0)


def at_end(assigner: Assigner) -> WindowSpec:
    return WindowSpec(assigner, AfterWatermark(), Accumulation.DISCARDING)


def rows(*found: tuple[str | None, int | None, int, int]) -> pl.DataFrame:
    """User, country, value, event time."""
    return pl.DataFrame(list(found), schema={**SCHEMA, EVENT_MS: pl.Int64()}, orient="row")


@pytest.mark.parametrize(
    "assigner", [Tumbling("10ms"), Sliding("10ms", "5ms"), Session("5ms"), GlobalWindow(), CountTumbling(2)]
)
def test_the_output_has_the_declared_columns_even_without_rows(assigner: Assigner) -> None:
    operator = WindowOperator(at_end(assigner), ("user", "country"), SCHEMA, {"n": Count(), "sum": Sum("v")})
    empty = operator.step([rows()], BEFORE)
    full = operator.step([rows(("a", 1, 1, 1), ("a", 1, 2, 2))], CutTime(NO_WATERMARK, END_OF_TIME_MS, 0))
    assert full[MAIN].height > 0
    for ports in (empty, full):
        assert dict(ports[MAIN].schema) == dict(operator.schema)


def test_a_pane_has_its_window_and_the_last_millisecond_of_it_as_event_time() -> None:
    operator = WindowOperator(at_end(Tumbling(1_000)), ("user",), SCHEMA, {"sum": Sum("v")})
    ports = operator.step([rows(("a", 1, 1, 100), ("a", 1, 2, 900))], CutTime(NO_WATERMARK, 1_000, 0))
    assert ports[MAIN].rows(named=True) == [
        {
            "user": "a",
            "window_start": datetime.fromtimestamp(0, UTC),
            "window_end": datetime.fromtimestamp(1, UTC),
            "pane": 0,
            "timing": "on_time",
            "is_final": True,
            "is_retraction": False,
            "sum": 3,
            EVENT_MS: 999,
        }
    ]


def test_null_is_a_key_and_no_key_columns_give_one_key() -> None:
    given_rows = rows((None, 1, 1, 1), (None, 1, 2, 2), ("a", None, 4, 3), (None, None, 8, 4))
    time = CutTime(NO_WATERMARK, END_OF_TIME_MS, 0)
    two = WindowOperator(at_end(Tumbling("10ms")), ("user", "country"), SCHEMA, {"sum": Sum("v")})
    assert sorted(two.step([given_rows], time)[MAIN]["sum"].to_list()) == [3, 4, 8]
    none = WindowOperator(at_end(Session("10ms")), (), SCHEMA, {"sum": Sum("v")})
    assert none.step([given_rows], time)[MAIN]["sum"].to_list() == [15]


@pytest.mark.parametrize(
    "spec",
    [
        at_end(Tumbling("10ms")),
        at_end(Session("5ms")),
        WindowSpec(Tumbling("10ms"), Repeatedly(AfterCount(9)), Accumulation.DISCARDING),
    ],
    ids=["in columns", "sessions", "one by one"],
)
def test_beyond_the_limit_no_window_opens_and_its_elements_are_counted(spec: WindowSpec) -> None:
    operator = WindowOperator(spec, ("user",), SCHEMA, {"n": Count()}, max_windows=2)
    arriving = rows(("a", 1, 1, 1), ("b", 1, 1, 1), ("c", 1, 1, 1), ("a", 1, 1, 2), ("c", 1, 1, 2))
    operator.step([arriving], BEFORE)
    ports = operator.step([rows()], CutTime(NO_WATERMARK, END_OF_TIME_MS, 0))
    assert sorted(ports[MAIN].select("user", "n").rows()) == [("a", 2), ("b", 1)]
    counts = operator.metrics()
    assert (counts["assignments"], counts["on_time"], counts["rejected"]) == (5, 3, 2)
    assert not any(operator.metrics().values())


def test_late_rows_are_emitted_or_only_counted() -> None:
    late = [rows(("a", 1, 1, 3))]
    for late_lane in (True, False):
        operator = WindowOperator(at_end(Tumbling("10ms")), ("user",), SCHEMA, {"n": Count()}, late_lane=late_lane)
        operator.step([rows()], CutTime(NO_WATERMARK, 50, 0))
        ports = operator.step(late, CutTime(50, 50, 0))
        assert (LATE in ports) is late_lane
        assert operator.metrics()["dropped_expired"] == 1
        if late_lane:
            found = ports[LATE].row(0, named=True)
            assert (found["v"], found["late_reason"], found["lateness_ms"]) == (1, "expired", 47)


def test_a_full_window_function_sees_all_elements_and_gives_any_rows() -> None:
    seen: list[WindowView] = []

    def differences(view: WindowView) -> pl.DataFrame:
        seen.append(view)
        return view.elements.select(pl.col("v").diff().alias("step")).drop_nulls()

    function = PaneFunction(differences, {"step": pl.Int64()})
    operator = WindowOperator(at_end(Tumbling("10ms")), ("user",), SCHEMA, function=function)
    operator.step([rows(("a", 1, 1, 1), ("b", 1, 7, 1))], BEFORE)
    ports = operator.step([rows(("a", 1, 4, 3), ("a", 1, 9, 2))], CutTime(NO_WATERMARK, 10, 0))
    assert ports[MAIN].select("user", "step").rows() == [("a", 3), ("a", 5)]
    assert sorted(view.key for view in seen) == [("a",), ("b",)]
    assert all((view.first, view.end, view.pane) == (0, 10, 0) for view in seen)


def test_an_evictor_restricts_the_elements_that_aggregates_see() -> None:
    spec = WindowSpec(Tumbling("10ms"), AfterWatermark(), Accumulation.ACCUMULATING, evictor=KeepCount(2))
    operator = WindowOperator(spec, ("user",), SCHEMA, {"sum": Sum("v")})
    arriving = rows(("a", 1, 1, 1), ("a", 1, 2, 2), ("a", 1, 4, 3))
    ports = operator.step([arriving], CutTime(NO_WATERMARK, 10, 0))
    assert ports[MAIN]["sum"].to_list() == [6]
    assert operator.metrics()["evicted"] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keys": ("nobody",)}, "key 'nobody' is no column"),
        ({"keys": ("user", "user")}, "'user' would stand twice"),
        ({"aggregates": {"user": Count()}}, "'user' would stand twice"),
        ({"aggregates": {"pane": Count()}}, "'pane' would stand twice"),
        ({"aggregates": {}}, "give one of them"),
        ({"aggregates": {"sum": Sum("nothing")}}, "no column 'nothing'"),
        ({"schema": {**SCHEMA, "window_start": pl.Int64()}}, "'window_start' would stand twice in late rows"),
        ({"max_windows": 0}, "max_windows must be positive"),
        ({"spec": at_end(Session("5ms", "user"))}, "gap_field: column 'user' is String; whole numbers are needed"),
        (
            {"spec": WindowSpec(Tumbling("5ms"), OnPunctuation("v"), Accumulation.DISCARDING)},
            "OnPunctuation: column 'v' is Int64; booleans are needed",
        ),
    ],
)
def test_an_invalid_operator_is_rejected_with_a_reason(change: dict[str, object], message: str) -> None:
    settings: dict[str, object] = {
        "spec": at_end(Tumbling("10ms")),
        "keys": ("user",),
        "schema": SCHEMA,
        "aggregates": {"n": Count()},
    }
    with pytest.raises(ConfigError, match=message):
        WindowOperator(**(settings | change))  # type: ignore[arg-type]
