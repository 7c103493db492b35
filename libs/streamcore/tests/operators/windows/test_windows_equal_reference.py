"""The window operator equals the reference for any windows, triggers, aggregates and inputs, in any cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.aggregates import Aggregate, Collect, Count, Max, Sum
from streamcore.durations import Milliseconds
from streamcore.windowing import (
    Accumulation,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Assigner,
    CalendarDay,
    Never,
    Sliding,
    WindowOutput,
    WindowSpec,
)
from streamcore.windowing.model import END_OF_TIME_MS
from tests.harness.apps.generated_windows import Input, event_time_assigners, inputs, sessions, specs
from tests.harness.apps.window_cuts import Cut, check, cuts, describe_dropped, group_by_key, split_into_cuts
from tests.harness.apps.window_operator import OperatorRunner, Row

aggregates: st.SearchStrategy[Aggregate] = st.sampled_from([Count(), Sum("v"), Max("v"), Collect("v")])
slides = st.builds(Sliding, st.integers(5, 40).map(Milliseconds), st.integers(1, 5).map(Milliseconds), st.just(0))
days = st.just(CalendarDay("Europe/Berlin"))
at_end = st.builds(
    AfterWatermark,
    st.none() | st.just(Never()),
    st.none()
    | st.just(Never())
    | st.builds(AfterCount, st.integers(1, 2))
    | st.builds(AfterProcessingTime, st.integers(0, 20).map(Milliseconds)),
)


@st.composite
def at_end_only(draw: st.DrawFn, assigners: st.SearchStrategy[Assigner]) -> WindowSpec:
    """Draw specs that take the columnar paths, and specs close to them."""
    trigger = draw(at_end)
    lateness_ms = 0 if trigger.late is None else draw(st.sampled_from([0, 10, 60]))
    return WindowSpec(draw(assigners), trigger, draw(st.sampled_from(list(Accumulation))), Milliseconds(lateness_ms))


@settings(deadline=None, max_examples=100)
@given(specs(), cuts(), aggregates)
def test_the_operator_equals_the_reference(spec: WindowSpec, given_cuts: list[Cut], function: Aggregate) -> None:
    check(spec, given_cuts, function, restarts=False)


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(
    specs() | at_end_only(event_time_assigners) | at_end_only(sessions),
    cuts(),
    aggregates,
    st.lists(st.booleans(), max_size=20),
)
def test_two_workers_that_take_turns_equal_the_reference(
    spec: WindowSpec, given_cuts: list[Cut], function: Aggregate, turns: list[bool]
) -> None:
    """State that a worker kept during the turn of the other one may have expired meanwhile."""
    check(spec, given_cuts, function, turns=turns)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(specs(), cuts(), aggregates)
def test_a_restart_after_every_cut_equals_the_reference(
    spec: WindowSpec, given_cuts: list[Cut], function: Aggregate
) -> None:
    check(spec, given_cuts, function, restarts=True)


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [False, True])
@settings(deadline=None, max_examples=40)
@given(at_end_only(event_time_assigners | slides | days), cuts(), aggregates)
def test_windows_that_fire_at_their_ends_equal_the_reference(
    restarts: bool, spec: WindowSpec, given_cuts: list[Cut], function: Aggregate
) -> None:
    check(spec, given_cuts, function, restarts=restarts)


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [False, True])
@settings(deadline=None, max_examples=40)
@given(at_end_only(sessions), cuts(), aggregates)
def test_sessions_that_fire_at_their_ends_equal_the_reference(
    restarts: bool, spec: WindowSpec, given_cuts: list[Cut], function: Aggregate
) -> None:
    check(spec, given_cuts, function, restarts=restarts)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(specs(), inputs(), st.sets(st.integers(0, 25)), st.sets(st.integers(0, 25)), aggregates)
def test_any_cuts_give_the_same_panes_in_the_same_order_within_a_key(
    spec: WindowSpec, given_inputs: list[Input], left: set[int], right: set[int], function: Aggregate
) -> None:
    """Cut after any events: watermarks and clocks stay between the same events."""
    outputs = [run_operator(spec, split_into_cuts(given_inputs, sorted(breaks)), function) for breaks in (left, right)]
    assert group_by_key(outputs[0].firings) == group_by_key(outputs[1].firings)
    assert describe_dropped(outputs[0].dropped) == describe_dropped(outputs[1].dropped)


def run_operator(spec: WindowSpec, given_cuts: Sequence[Cut], function: Aggregate) -> WindowOutput:
    operator = OperatorRunner(spec, function)
    outputs = [operator.cut(cut.rows, cut.clock_ms, cut.next_watermark_ms) for cut in given_cuts]
    firings = tuple(firing for output in outputs for firing in output.firings)
    return WindowOutput(firings, tuple(dropped for output in outputs for dropped in output.dropped))


@pytest.mark.slow
def test_later_elements_do_not_change_an_emitted_pane_of_a_shared_slice() -> None:
    spec = WindowSpec(Sliding("20ms", "10ms"), AfterWatermark(late=AfterCount(1)), Accumulation.RETRACTING, "50ms")
    rows: list[Row] = [("a", {"v": 1}, 5), ("a", {"v": 2}, 15)]
    late: list[Row] = [("a", {"v": 4}, 6)]
    given_cuts = [Cut(tuple(rows), 0, 20), Cut(tuple(late), 0, 30), Cut((), 0, END_OF_TIME_MS)]
    check(spec, given_cuts, Sum("v"), restarts=True)
    check(replace(spec, accumulation=Accumulation.DISCARDING), given_cuts, Sum("v"), restarts=True)
