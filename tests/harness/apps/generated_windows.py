"""Strategies for window specs and inputs, and the output of a run.

Inputs are values (``Seen``, ``Watermark``, ``Clock``), so that one input can be run on several specs, shuffled or
thinned out. Watermarks and clocks only rise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from hypothesis import strategies as st

from streamcore.aggregates import Aggregate, Count, Sum
from streamcore.durations import Milliseconds
from streamcore.errors import ConfigError
from streamcore.windowing import (
    Accumulation,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    AllOf,
    AnyOf,
    Assigner,
    AtEndOfStream,
    CountSliding,
    CountTumbling,
    DroppedElement,
    FiredPane,
    GlobalWindow,
    InSequence,
    KeepCount,
    KeepRecent,
    Never,
    OnPunctuation,
    OrFinally,
    Purging,
    ReferenceWindows,
    Repeatedly,
    Session,
    Sliding,
    Trigger,
    Tumbling,
    WindowCounts,
    WindowOutput,
    WindowSpec,
)
from streamcore.windowing.model import Scalar

SUM = Sum("v")
COUNT = Count()


@dataclass(frozen=True)
class Seen:
    """An event of the input."""

    key: str
    at_ms: int
    v: int = 1
    gap_ms: int = 0
    done: bool = False

    @property
    def value(self) -> dict[str, Scalar]:
        return {"v": self.v, "gap": self.gap_ms, "done": self.done}


@dataclass(frozen=True)
class Watermark:
    ms: int


@dataclass(frozen=True)
class Clock:
    ms: int


Input = Seen | Watermark | Clock


@dataclass(frozen=True)
class Run:
    """The output of a run, up to the end of the stream."""

    firings: tuple[FiredPane, ...]
    dropped: tuple[DroppedElement, ...]
    counts: WindowCounts

    @property
    def panes(self) -> list[FiredPane]:
        return [firing for firing in self.firings if not firing.is_retraction]


def run(spec: WindowSpec, inputs: Sequence[Input], function: Aggregate = COUNT) -> Run:
    """Run an input, then end the stream."""
    windows = ReferenceWindows(spec, function)
    outputs = [_feed(windows, one) for one in inputs]
    outputs.append(windows.end_of_stream())
    firings = tuple(firing for output in outputs for firing in output.firings)
    return Run(firings, tuple(one for output in outputs for one in output.dropped), windows.counts)


def _feed(windows: ReferenceWindows, one: Input) -> WindowOutput:
    match one:
        case Seen():
            return windows.element(one.key, one.value, one.at_ms)
        case Watermark():
            return windows.watermark(one.ms)
        case Clock():
            return windows.clock(one.ms)


events = st.builds(
    Seen,
    key=st.sampled_from("ab"),
    at_ms=st.integers(-20, 40),
    v=st.integers(-5, 5),
    gap_ms=st.integers(-1, 20),
    done=st.booleans(),
)


@st.composite
def inputs(draw: st.DrawFn) -> list[Input]:
    """Generate events with rising watermarks and clocks between them."""
    rises = st.builds(Watermark, st.integers(0, 12)) | st.builds(Clock, st.integers(0, 30))
    size = draw(st.sampled_from([3, 15, 25, 25]))
    watermark_ms, clock_ms = -25, 0
    found: list[Input] = []
    for step in draw(st.lists(st.one_of(events, events, events, rises), min_size=size, max_size=size)):
        match step:
            case Watermark(rise_ms):
                watermark_ms += rise_ms
                found.append(Watermark(watermark_ms))
            case Clock(rise_ms):
                clock_ms += rise_ms
                found.append(Clock(clock_ms))
            case Seen():
                found.append(step)
    return found


@st.composite
def disordered_pairs(draw: st.DrawFn, allowed_ms: int = 40) -> tuple[list[Input], list[Input]]:
    """Generate the same events in two orders, both within the allowed disorder, so that no event is late."""
    size = draw(st.sampled_from([1, 2, 10, 15]))
    found = draw(st.lists(events, min_size=size, max_size=size))
    return _arriving(draw, found, allowed_ms), _arriving(draw, found, allowed_ms)


def _arriving(draw: st.DrawFn, found: Sequence[Seen], allowed_ms: int) -> list[Input]:
    """Delay each event by less than the allowed disorder; after each comes the watermark of this disorder."""
    delays = draw(st.lists(st.integers(0, allowed_ms - 1), min_size=len(found), max_size=len(found)))
    order = sorted(range(len(found)), key=lambda i: found[i].at_ms + delays[i])
    latest = accumulate((found[i].at_ms for i in order), max)
    return [one for i, ms in zip(order, latest, strict=True) for one in (found[i], Watermark(ms - allowed_ms))]


event_time_assigners: st.SearchStrategy[Assigner] = st.one_of(
    st.builds(Tumbling, st.integers(8, 40).map(Milliseconds), st.integers(-7, 7).map(Milliseconds)),
    st.builds(
        Sliding,
        st.integers(12, 40).map(Milliseconds),
        st.integers(6, 12).map(Milliseconds),
        st.integers(-5, 5).map(Milliseconds),
    ),
    st.builds(
        Sliding,
        st.integers(4, 10).map(Milliseconds),
        st.integers(11, 25).map(Milliseconds),
        st.integers(-5, 5).map(Milliseconds),
    ),
)
sessions: st.SearchStrategy[Session] = st.builds(
    Session, st.integers(3, 15).map(Milliseconds), st.none() | st.just("gap")
)
count_assigners: st.SearchStrategy[Assigner] = st.one_of(
    st.builds(CountTumbling, st.integers(1, 4)), st.builds(CountSliding, st.integers(3, 6), st.integers(1, 3))
)
assigners = st.one_of(event_time_assigners, sessions, count_assigners, st.just(GlobalWindow()))

_simple: st.SearchStrategy[Trigger] = st.one_of(
    st.builds(AfterCount, st.integers(1, 4)),
    st.builds(AfterProcessingTime, st.integers(0, 40).map(Milliseconds)),
    st.just(OnPunctuation("done")),
    st.just(AtEndOfStream()),
    st.just(Never()),
)


def _none_if_rejected(make: Callable[..., Trigger]) -> Callable[..., Trigger | None]:
    """Return ``None`` for a rejected combination; other tests cover the rejections."""

    def built(*parts: Trigger) -> Trigger | None:
        try:
            return make(*parts)
        except ConfigError:
            return None

    return built


def _combinations(part: st.SearchStrategy[Trigger]) -> st.SearchStrategy[Trigger]:
    several = [st.builds(_none_if_rejected(make), part, part) for make in (AllOf, AnyOf, InSequence, OrFinally)]
    return st.one_of(st.builds(Repeatedly, part), *several).filter(lambda built: built is not None)


_parts = st.recursive(_simple, _combinations, max_leaves=4)
_maybe = st.none() | _parts
_at_end = st.builds(AfterWatermark, _maybe, _maybe)
triggers = st.one_of(_at_end, st.recursive(_simple | st.just(AfterWatermark()), _combinations, max_leaves=5))


@st.composite
def specs(
    draw: st.DrawFn,
    windows: st.SearchStrategy[Assigner] = assigners,
    accumulations: Sequence[Accumulation] = tuple(Accumulation),
) -> WindowSpec:
    """Generate any valid spec; settings that a combination does not allow are left out."""
    assigner, trigger = draw(windows), draw(triggers)
    accumulation = draw(st.sampled_from(list(accumulations)))
    wanted = draw(st.sampled_from([0, 0, 10, 60]))
    lateness_ms = wanted if assigner.in_event_time and assigner.ends else 0
    if isinstance(trigger, AfterWatermark) and trigger.late is None:
        lateness_ms = 0
    if assigner.merges:
        trigger = trigger if isinstance(trigger, AfterWatermark) else Repeatedly(trigger)
    evicts = accumulation is not Accumulation.DISCARDING and draw(st.booleans())
    evictor = draw(
        st.builds(KeepCount, st.integers(1, 3)) | st.builds(KeepRecent, st.integers(1, 20).map(Milliseconds))
    )
    purges = accumulation is Accumulation.ACCUMULATING and draw(st.sampled_from([False, False, True]))
    return WindowSpec(
        assigner,
        Purging(trigger) if purges else trigger,
        accumulation,
        Milliseconds(lateness_ms),
        evictor if evicts else None,
    )
