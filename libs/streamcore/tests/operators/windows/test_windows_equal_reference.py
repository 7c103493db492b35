"""The window operator equals the reference for any windows, triggers, aggregates and inputs, in any cuts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.aggregates import Aggregate, Collect, Count, Max, Sum
from streamcore.durations import Milliseconds
from streamcore.watermark import NO_WATERMARK
from streamcore.windowing import (
    Accumulation,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Assigner,
    CalendarDay,
    DroppedElement,
    FiredPane,
    Never,
    ReferenceWindows,
    Sliding,
    WindowOutput,
    WindowSpec,
)
from streamcore.windowing.model import END_OF_TIME_MS
from tests.harness.apps.generated_windows import (
    Clock,
    Input,
    Seen,
    Watermark,
    event_time_assigners,
    inputs,
    sessions,
    specs,
)
from tests.harness.apps.window_operator import OperatorRunner, Row, without_elements


@dataclass(frozen=True)
class Cut:
    """The clock, the rows, and the watermark after them."""

    rows: tuple[Row, ...]
    clock_ms: int
    next_watermark_ms: int


@st.composite
def cuts(draw: st.DrawFn) -> list[Cut]:
    """Draw any input, cut at its watermarks and clocks, and at any other places."""
    return split_into_cuts(draw(inputs()), draw(st.lists(st.integers(0, 25), max_size=4)))


def split_into_cuts(given_inputs: Iterable[Input], breaks: Sequence[int]) -> list[Cut]:
    """Split the inputs into cuts. ``breaks``: further events after which a cut ends. The last cut ends the stream."""
    found: list[Cut] = []
    rows: list[Row] = []
    clock_ms, watermark_ms, events = 0, NO_WATERMARK, 0
    for one in given_inputs:
        match one:
            case Seen():
                rows.append((one.key, one.value, one.at_ms))
                events += 1
            case Watermark(ms):
                watermark_ms = ms
        ends = isinstance(one, Watermark) or (isinstance(one, Seen) and events in breaks)
        if ends or (isinstance(one, Clock) and rows):
            found.append(Cut(tuple(rows), clock_ms, watermark_ms))
            rows = []
        if isinstance(one, Clock):
            clock_ms = one.ms
    return [*found, Cut(tuple(rows), clock_ms, watermark_ms), Cut((), clock_ms, END_OF_TIME_MS)]


def expected(reference: ReferenceWindows, cut: Cut) -> WindowOutput:
    """Return the output of the reference for a cut."""
    outputs = [reference.clock(cut.clock_ms)]
    outputs += [reference.element(*row) for row in cut.rows]
    ends = cut.next_watermark_ms == END_OF_TIME_MS
    outputs.append(reference.end_of_stream() if ends else reference.watermark(cut.next_watermark_ms))
    firings = tuple(firing for output in outputs for firing in output.firings)
    return WindowOutput(firings, tuple(dropped for output in outputs for dropped in output.dropped))


def group_by_key(firings: Sequence[FiredPane]) -> dict[Hashable, list[FiredPane]]:
    """Group the firings by key, in order."""
    found: dict[Hashable, list[FiredPane]] = defaultdict(list)
    for firing in without_elements(firings):
        found[firing.key].append(firing)
    return found


def describe_dropped(dropped: Sequence[DroppedElement]) -> list[tuple[object, ...]]:
    return [
        (d.element.key, d.element.event_ms, d.element.value["v"], d.window, d.reason, d.lateness_ms) for d in dropped
    ]


def check(
    spec: WindowSpec,
    given_cuts: Sequence[Cut],
    function: Aggregate,
    *,
    restarts: bool = False,
    turns: Sequence[bool] = (),
) -> None:
    reference = ReferenceWindows(spec, function.reference)
    operator = OperatorRunner(spec, function, restarts=restarts, turns=turns)
    for cut in given_cuts:
        wanted = expected(reference, cut)
        seen = operator.cut(cut.rows, cut.clock_ms, cut.next_watermark_ms)
        assert group_by_key(seen.firings) == group_by_key(wanted.firings)
        assert describe_dropped(seen.dropped) == describe_dropped(wanted.dropped)
    assert operator.counts == reference.counts
    assert operator.counts.is_balanced
    assert operator.is_empty


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


@pytest.mark.parametrize("restarts", [False, True])
@settings(deadline=None, max_examples=40)
@given(at_end_only(event_time_assigners | slides | days), cuts(), aggregates)
def test_windows_that_fire_at_their_ends_equal_the_reference(
    restarts: bool, spec: WindowSpec, given_cuts: list[Cut], function: Aggregate
) -> None:
    check(spec, given_cuts, function, restarts=restarts)


@pytest.mark.parametrize("restarts", [False, True])
@settings(deadline=None, max_examples=40)
@given(at_end_only(sessions), cuts(), aggregates)
def test_sessions_that_fire_at_their_ends_equal_the_reference(
    restarts: bool, spec: WindowSpec, given_cuts: list[Cut], function: Aggregate
) -> None:
    check(spec, given_cuts, function, restarts=restarts)


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


def test_later_elements_do_not_change_an_emitted_pane_of_a_shared_slice() -> None:
    spec = WindowSpec(Sliding("20ms", "10ms"), AfterWatermark(late=AfterCount(1)), Accumulation.RETRACTING, "50ms")
    rows: list[Row] = [("a", {"v": 1}, 5), ("a", {"v": 2}, 15)]
    late: list[Row] = [("a", {"v": 4}, 6)]
    given_cuts = [Cut(tuple(rows), 0, 20), Cut(tuple(late), 0, 30), Cut((), 0, END_OF_TIME_MS)]
    check(spec, given_cuts, Sum("v"), restarts=True)
    check(replace(spec, accumulation=Accumulation.DISCARDING), given_cuts, Sum("v"), restarts=True)
