"""Inputs of windows divided into cuts, and the comparison of the operator with the reference over them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from streamcore.aggregates import Aggregate
from streamcore.watermark import NO_WATERMARK
from streamcore.windowing import DroppedElement, FiredPane, ReferenceWindows, WindowOutput, WindowSpec
from streamcore.windowing.model import END_OF_TIME_MS
from tests.harness.apps.generated_windows import Clock, Input, Seen, Watermark, inputs
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
