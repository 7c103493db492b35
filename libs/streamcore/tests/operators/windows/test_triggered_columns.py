"""Triggered windows in columns equal the reference, and the general path also in their stored rows."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from streamcore.aggregates import Aggregate, Collect, Count, First, Max, Mean, Sum
from streamcore.durations import Milliseconds
from streamcore.operators.base import LATE, MAIN, CutTime, Ports
from streamcore.operators.windows.general.path import TriggeredWindows
from streamcore.operators.windows.operator import WindowOperator
from streamcore.operators.windows.triggered.path import ColumnarTriggeredWindows
from streamcore.schema import EVENT_MS
from streamcore.watermark import NO_WATERMARK
from streamcore.windowing import (
    Accumulation,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    AllOf,
    AnyOf,
    Assigner,
    AtEndOfStream,
    CalendarDay,
    CountSliding,
    CountTumbling,
    GlobalWindow,
    Never,
    OnPunctuation,
    Purging,
    Repeatedly,
    Session,
    Sliding,
    Trigger,
    Tumbling,
    WindowSpec,
)
from streamcore.windowing.model import END_OF_TIME_MS
from tests.harness.apps.generated_windows import assigners, sessions
from tests.harness.apps.window_cuts import Cut, check, cuts
from tests.harness.apps.window_operator import Row

AGGREGATES: dict[str, Aggregate] = {
    "count": Count(),
    "sum": Sum("v"),
    "max": Max("v"),
    "mean": Mean("v"),
    "first": First("v"),
    "all": Collect("v"),
}
SCHEMA = {"key": pl.Int64(), "v": pl.Int64(), "gap": pl.Int64(), "done": pl.Boolean()}

counted = st.recursive(
    st.builds(AfterCount, st.integers(1, 4))
    | st.builds(AfterProcessingTime, st.integers(0, 15).map(Milliseconds))
    | st.sampled_from([AtEndOfStream(), Never()]),
    lambda part: st.builds(AnyOf, part, part) | st.builds(AllOf, part, part),
    max_leaves=3,
)
conditions = counted | st.just(OnPunctuation("done"))


@st.composite
def columnar_specs(draw: st.DrawFn, windows: st.SearchStrategy[Assigner] = assigners) -> WindowSpec:
    """Draw specs whose windows are triggered in columns."""
    assigner, accumulation = draw(windows), draw(st.sampled_from([Accumulation.ACCUMULATING, Accumulation.DISCARDING]))
    may_purge = accumulation is Accumulation.ACCUMULATING

    def wrap(condition: Trigger) -> Trigger:
        repeated = Repeatedly(condition) if draw(st.booleans()) else condition
        return Purging(repeated) if may_purge and draw(st.integers(0, 3)) == 0 else repeated

    lateness_ms = draw(st.sampled_from([0, 10, 60])) if assigner.in_event_time and assigner.ends else 0
    if draw(st.integers(0, 2)) == 0:
        trigger: Trigger = Repeatedly(wrap(draw(conditions)))
    else:
        early = wrap(draw(conditions))
        late = wrap(draw(conditions)) if lateness_ms or draw(st.booleans()) else None
        trigger = AfterWatermark(early, late)
    if may_purge and draw(st.integers(0, 5)) == 0:
        trigger = Purging(trigger)
    return WindowSpec(assigner, trigger, accumulation, Milliseconds(lateness_ms))


def is_columnar(spec: WindowSpec) -> bool:
    operator = WindowOperator(spec, ("key",), SCHEMA, AGGREGATES)
    return isinstance(operator._path, ColumnarTriggeredWindows)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("restarts", [False, True])
@settings(deadline=None, max_examples=60)
@given(columnar_specs(), cuts(), st.sampled_from([Count(), Sum("v"), Collect("v")]))
def test_triggered_columns_equal_the_reference(
    restarts: bool, spec: WindowSpec, given_cuts: list[Cut], function: Aggregate
) -> None:
    check(spec, given_cuts, function, restarts=restarts)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(columnar_specs(), cuts(), st.lists(st.booleans(), max_size=20))
def test_two_workers_with_triggered_columns_equal_the_reference(
    spec: WindowSpec, given_cuts: list[Cut], turns: list[bool]
) -> None:
    check(spec, given_cuts, Sum("v"), turns=turns)


@st.composite
def large_cuts(draw: st.DrawFn) -> list[Cut]:
    """Draw cuts of many rows of few keys, disordered, with clocks and watermarks that rise by little or much."""
    random = draw(st.randoms(use_true_random=False))
    at_ms, clock_ms, watermark_ms, spread = 0, 0, NO_WATERMARK, random.choice([5, 30])
    found: list[Cut] = []
    for _ in range(random.randint(2, 6)):
        rows: list[Row] = []
        for _ in range(random.choice([0, 5, 60])):
            at_ms += random.choice([0, 0, 1, 3])
            fields = {"v": random.choice([None, 1, 2, 3]), "gap": random.randint(-1, 12), "done": random.random() < 0.2}
            rows.append((random.randint(0, 2), fields, at_ms - random.randint(0, spread)))
        clock_ms += random.choice([0, 1, 8])
        watermark_ms = max(watermark_ms, at_ms - random.choice([5, 20]))
        found.append(Cut(tuple(rows), clock_ms, watermark_ms))
    return [*found, Cut((), clock_ms, END_OF_TIME_MS)]


class Side:
    """An operator that is fed cut by cut, and the rows that it has written."""

    def __init__(self, spec: WindowSpec, *, in_columns: bool, max_windows: int) -> None:
        self.operator = WindowOperator(spec, ("key",), SCHEMA, AGGREGATES, max_windows=max_windows)
        if not in_columns:
            path = self.operator._path
            self.operator._path = TriggeredWindows(path.plan, self.operator._metrics)

    def cut(self, cut: Cut, watermark_ms: int) -> Ports:
        columns = {"key": [key for key, _, _ in cut.rows]}
        columns |= {name: [fields[name] for _, fields, _ in cut.rows] for name in ("v", "gap", "done")}
        columns[EVENT_MS] = [at_ms for _, _, at_ms in cut.rows]
        rows = pl.DataFrame(columns, schema={**SCHEMA, EVENT_MS: pl.Int64()})
        return self.operator.step([rows], CutTime(watermark_ms, cut.next_watermark_ms, cut.clock_ms))

    def stored(self) -> dict[str, pl.DataFrame]:
        return {name: table.rows(0, 1) for name, table in self.operator.tables().items()}

    def take_over(self, stored: dict[str, pl.DataFrame]) -> None:
        """Begin with the rows of another operator."""
        for name, table in self.operator.tables().items():
            table.load(stored[name])
        self.operator.on_state_loaded()


def compare(spec: WindowSpec, given_cuts: Sequence[Cut], max_windows: int, swaps: Sequence[bool] = ()) -> None:
    """Feed both paths. ``swaps``: whether each path begins anew with the stored rows of the other after a cut."""
    both = [Side(spec, in_columns=in_columns, max_windows=max_windows) for in_columns in (True, False)]
    watermark_ms = NO_WATERMARK
    for number, cut in enumerate(given_cuts):
        ports = [side.cut(cut, watermark_ms) for side in both]
        for port in (MAIN, LATE):
            assert_frame_equal(ports[0][port], ports[1][port])
        assert both[0].operator.metrics() == both[1].operator.metrics()
        stored = [side.stored() for side in both]
        for name, rows in stored[0].items():
            names = [name for name in ("key", "__first", "__end") if name in rows.columns]
            assert_frame_equal(rows.sort(names), stored[1][name].sort(names))
        watermark_ms = cut.next_watermark_ms
        if number < len(swaps) and swaps[number]:
            both = [Side(spec, in_columns=in_columns, max_windows=max_windows) for in_columns in (True, False)]
            for side, rows_of_other in zip(both, reversed(stored), strict=True):
                side.take_over(rows_of_other)


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(columnar_specs(), large_cuts(), st.lists(st.booleans(), max_size=5), st.sampled_from([10_000, 10_000, 3]))
def test_both_paths_have_equal_panes_and_stored_rows(
    spec: WindowSpec, given_cuts: list[Cut], swaps: list[bool], max_windows: int
) -> None:
    compare(spec, given_cuts, max_windows, swaps)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(columnar_specs(sessions), large_cuts())
def test_sessions_in_columns_equal_those_one_by_one(spec: WindowSpec, given_cuts: list[Cut]) -> None:
    compare(spec, given_cuts, 10_000)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    sessions,
    conditions,
    st.sampled_from([0, 10, 60]),
    large_cuts(),
    st.lists(st.booleans(), max_size=5),
    st.sampled_from([10_000, 10_000, 3]),
)
def test_sessions_without_early_panes_are_merged_in_any_order(
    assigner: Assigner,
    late: Trigger,
    lateness_ms: int,
    given_cuts: list[Cut],
    swaps: list[bool],
    max_windows: int,
) -> None:
    trigger = AfterWatermark(early=Repeatedly(Never()), late=late)
    spec = WindowSpec(assigner, trigger, Accumulation.ACCUMULATING, Milliseconds(lateness_ms))
    assert is_columnar(spec)
    compare(spec, given_cuts, max_windows, swaps)


@pytest.mark.parametrize(
    ("assigner", "trigger", "columnar"),
    [
        (Tumbling("1m"), AfterWatermark(early=AfterCount(2)), True),
        (Sliding("2m", "1m"), AfterWatermark(early=AfterProcessingTime("10s")), True),
        (CalendarDay("Europe/Berlin"), Repeatedly(AfterCount(3)), True),
        (Session("1m"), AfterWatermark(late=AfterCount(1)), False),  # without lateness the path of plain sessions
        (Session("1m"), AfterWatermark(early=Purging(AfterCount(2))), True),
        (CountTumbling(5), AfterWatermark(), True),
        (CountSliding(5, 2), AfterWatermark(), True),
        (GlobalWindow(), Repeatedly(AnyOf(AfterCount(2), AfterProcessingTime("1s"))), True),
        (GlobalWindow(), AfterCount(3), False),
        (Tumbling("1m"), Repeatedly(AfterWatermark()), False),
        (Tumbling("1m"), Repeatedly(AllOf(OnPunctuation("done"), AfterCount(2))), False),
    ],
)
def test_the_trigger_decides_whether_windows_are_in_columns(
    assigner: Assigner, trigger: Trigger, columnar: bool
) -> None:
    assert is_columnar(WindowSpec(assigner, trigger, Accumulation.ACCUMULATING)) is columnar


def test_the_rows_of_merged_sessions_are_deleted_from_the_log() -> None:
    trigger = AfterWatermark(late=AfterCount(1))
    spec = WindowSpec(Session(Milliseconds(10)), trigger, Accumulation.ACCUMULATING, Milliseconds(60))
    writer, reader = (Side(spec, in_columns=True, max_windows=10) for _ in range(2))
    fields = {"v": 1, "gap": None, "done": False}
    for times in ((0, 15), (8,)):
        writer.cut(Cut(tuple((0, fields, at_ms) for at_ms in times), 0, NO_WATERMARK), NO_WATERMARK)
        reader.take_over({name: table.changes() for name, table in writer.operator.tables().items()})
    reader.cut(Cut((), 0, NO_WATERMARK), NO_WATERMARK)
    assert reader.stored()["windows"].select("__first", "__end").rows() == [(0, 25)]
