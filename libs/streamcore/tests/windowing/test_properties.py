"""Laws of the reference for any windows, triggers and inputs: nothing lost, nothing repeated, unique names.

Faster implementations must satisfy the same laws and equal the reference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.aggregates import Aggregate, Count, Mean, Min, Sum
from streamcore.durations import Milliseconds
from streamcore.windowing import (
    Accumulation,
    AfterCount,
    AfterWatermark,
    Assigner,
    CalendarDay,
    DropReason,
    Element,
    FiredPane,
    ReferenceWindows,
    Session,
    Timing,
    Window,
    WindowSpec,
)
from streamcore.windowing.model import AnyWindow
from tests.harness.apps.generated_windows import (
    COUNT,
    SUM,
    Input,
    Run,
    Seen,
    assigners,
    count_assigners,
    disordered_pairs,
    event_time_assigners,
    inputs,
    run,
    sessions,
    specs,
)

Name = tuple[Hashable, AnyWindow]
NOT_MERGING = event_time_assigners | count_assigners


def group_by_window(panes: Iterable[FiredPane]) -> dict[Name, list[FiredPane]]:
    found: dict[Name, list[FiredPane]] = defaultdict(list)
    for pane in panes:
        found[pane.key, pane.window].append(pane)
    return found


def count_copies(panes: Iterable[FiredPane]) -> Counter[tuple[Hashable, int]]:
    """Count how often each element is in the panes."""
    return Counter((e.key, e.number) for pane in panes for e in pane.elements)


def expected_copies(result: Run, events: Iterable[Seen], spec: WindowSpec) -> Counter[tuple[Hashable, int]]:
    """Count the windows in which each element should be: those it was assigned to, less those that dropped it."""
    arrived: Counter[str] = Counter()
    found: Counter[tuple[Hashable, int]] = Counter()
    for event in events:
        element = Element(event.key, event.value, event.at_ms, arrived[event.key])
        arrived[event.key] += 1
        found[element.key, element.number] = len(spec.assigner.windows(element))
    return found - Counter((one.element.key, one.element.number) for one in result.dropped)


def elements_of(given_inputs: Iterable[Input]) -> list[Seen]:
    return [one for one in given_inputs if isinstance(one, Seen)]


@given(specs(), inputs())
def test_every_element_is_on_time_late_or_dropped(spec: WindowSpec, given_inputs: list[Input]) -> None:
    result = run(spec, given_inputs)
    assert result.counts.is_balanced
    assert result.counts.elements == len(elements_of(given_inputs))
    assert result.counts.dropped_expired + result.counts.dropped_closed == len(result.dropped)
    assert all(one.lateness_ms >= 0 for one in result.dropped)


@given(specs(), inputs())
def test_only_elements_past_the_allowed_lateness_expire(spec: WindowSpec, given_inputs: list[Input]) -> None:
    for one in run(spec, given_inputs).dropped:
        if one.reason is DropReason.EXPIRED and isinstance(one.window, Window):
            watermark_ms = one.element.event_ms + one.lateness_ms
            assert one.window.end_ms + spec.allowed_lateness_ms <= watermark_ms


@given(specs(), inputs())
def test_a_window_that_is_closed_to_an_element_has_emitted_its_final_pane(
    spec: WindowSpec, given_inputs: list[Input]
) -> None:
    result = run(spec, given_inputs)
    final = {(pane.key, pane.window) for pane in result.panes if pane.is_final}
    assert all((d.element.key, d.window) in final for d in result.dropped if d.reason is DropReason.CLOSED)


@given(specs(), inputs())
def test_key_window_and_pane_index_identify_one_output(spec: WindowSpec, given_inputs: list[Input]) -> None:
    firings = run(spec, given_inputs).firings
    names = [(firing.key, firing.window, firing.pane_index) for firing in firings]
    assert len(set(names)) == len(names)
    for outputs in group_by_window(firings).values():
        assert [one.pane_index for one in outputs] == list(range(len(outputs)))


@given(specs(accumulations=[Accumulation.DISCARDING]), inputs())
def test_an_accepted_element_is_in_one_discarding_pane_of_each_window(
    spec: WindowSpec, given_inputs: list[Input]
) -> None:
    result = run(spec, given_inputs)
    assert count_copies(result.panes) == expected_copies(result, elements_of(given_inputs), spec)


@given(specs(accumulations=[Accumulation.RETRACTING]) | specs(sessions, [Accumulation.RETRACTING]), inputs())
def test_apart_from_retractions_an_accepted_element_is_in_one_pane_of_each_window(
    spec: WindowSpec, given_inputs: list[Input]
) -> None:
    spec = replace(spec, evictor=None)
    result = run(spec, given_inputs)
    net = count_copies(result.panes)
    net.subtract(count_copies(one for one in result.firings if one.is_retraction))
    assert +net == expected_copies(result, elements_of(given_inputs), spec)


@given(specs(accumulations=[Accumulation.ACCUMULATING]), inputs())
def test_every_accepted_element_is_in_some_accumulating_pane_and_in_none_twice(
    spec: WindowSpec, given_inputs: list[Input]
) -> None:
    spec = replace(spec, evictor=None)
    result = run(spec, given_inputs)
    assert set(count_copies(result.panes)) == set(expected_copies(result, elements_of(given_inputs), spec))
    assert all(count == 1 for pane in result.panes for count in count_copies([pane]).values())


@given(specs(), inputs())
def test_evictors_remove_elements_from_views_only(spec: WindowSpec, given_inputs: list[Input]) -> None:
    narrowed, whole = run(spec, given_inputs), run(replace(spec, evictor=None), given_inputs)
    assert replace(narrowed.counts, evicted=0) == whole.counts
    missing = sum(count_copies(whole.panes).values()) - sum(count_copies(narrowed.panes).values())
    assert missing == narrowed.counts.evicted


@given(specs(), inputs())
def test_a_retraction_retracts_the_previous_pane(spec: WindowSpec, given_inputs: list[Input]) -> None:
    for outputs in group_by_window(run(spec, given_inputs).firings).values():
        for before, after in pairwise(outputs):
            if after.is_retraction:
                assert not before.is_retraction
                assert (after.value, after.elements) == (before.value, before.elements)


@given(specs(), inputs())
def test_panes_are_early_then_on_time_once_then_late_and_nothing_follows_the_final_one(
    spec: WindowSpec, given_inputs: list[Input]
) -> None:
    order = [Timing.EARLY, Timing.ON_TIME, Timing.LATE]
    firings = run(spec, given_inputs).firings
    for outputs in group_by_window(firings).values():
        assert not any(one.is_final for one in outputs[:-1])
        assert [one.is_first for one in outputs] == [True] + [False] * (len(outputs) - 1)
    for panes in group_by_window(one for one in firings if not one.is_retraction).values():
        timings = [order.index(pane.timing) for pane in panes]
        assert timings == sorted(timings)
        assert timings.count(1) <= 1


@given(event_time_assigners, inputs(), st.integers(0, 40))
def test_a_window_with_data_in_time_has_one_pane_on_time(
    assigner: Assigner, given_inputs: list[Input], lateness_ms: int
) -> None:
    trigger = AfterWatermark(early=AfterCount(2), late=AfterCount(2))
    result = run(WindowSpec(assigner, trigger, Accumulation.ACCUMULATING, Milliseconds(lateness_ms)), given_inputs)
    for panes in group_by_window(result.panes).values():
        in_time = panes[0].timing is not Timing.LATE
        assert [pane.timing for pane in panes].count(Timing.ON_TIME) == int(in_time)


@given(specs(), inputs(), st.data())
def test_repeating_a_watermark_or_clock_changes_nothing(
    spec: WindowSpec, given_inputs: list[Input], data: st.DataObject
) -> None:
    repeated: list[Input] = []
    for one in given_inputs:
        times = 1 if isinstance(one, Seen) else data.draw(st.integers(1, 2))
        repeated += [one] * times
    assert run(spec, repeated) == run(spec, given_inputs)


@given(specs(), inputs())
def test_keys_are_independent(spec: WindowSpec, given_inputs: list[Input]) -> None:
    together = run(spec, given_inputs)
    for key in ("a", "b"):
        alone = run(spec, [one for one in given_inputs if not isinstance(one, Seen) or one.key == key])
        assert alone.firings == tuple(firing for firing in together.firings if firing.key == key)
        assert alone.dropped == tuple(one for one in together.dropped if one.element.key == key)


DISCARDS = [Accumulation.DISCARDING]


@given(specs(windows=NOT_MERGING, accumulations=DISCARDS), inputs())
def test_the_discarding_panes_of_a_window_sum_to_its_last_accumulating_pane(
    spec: WindowSpec, given_inputs: list[Input]
) -> None:
    parts = group_by_window(run(spec, given_inputs, SUM).panes)
    wholes = group_by_window(run(replace(spec, accumulation=Accumulation.ACCUMULATING), given_inputs, SUM).panes)
    assert parts.keys() == wholes.keys()
    for name, panes in parts.items():
        assert sum(to_number(pane) for pane in panes) == to_number(wholes[name][-1])


@given(specs(windows=sessions, accumulations=DISCARDS), inputs())
def test_discarding_panes_of_all_sessions_sum_to_the_retracting_panes_less_retractions(
    spec: WindowSpec, given_inputs: list[Input]
) -> None:
    parts = run(spec, given_inputs, SUM).panes
    net = run(replace(spec, accumulation=Accumulation.RETRACTING), given_inputs, SUM).firings
    assert sum(map(to_number, parts)) == sum(-to_number(one) if one.is_retraction else to_number(one) for one in net)


@given(specs(accumulations=DISCARDS), inputs())
def test_retracting_panes_equal_accumulating_ones_with_other_indexes(
    spec: WindowSpec, given_inputs: list[Input]
) -> None:
    plain = run(replace(spec, accumulation=Accumulation.ACCUMULATING), given_inputs).panes
    taking_back = run(replace(spec, accumulation=Accumulation.RETRACTING), given_inputs).panes
    same = [replace(pane, pane_index=0, is_first=True) for pane in plain]
    assert [replace(pane, pane_index=0, is_first=True) for pane in taking_back] == same


@pytest.mark.parametrize("aggregate", [Count(), Sum("v"), Min("v"), Mean("v")], ids=str)
@given(event_time_assigners | sessions | st.just(CalendarDay("Europe/Berlin")), disordered_pairs())
def test_within_the_allowed_out_of_orderness_the_order_of_arrival_does_not_matter(
    aggregate: Aggregate, assigner: Assigner, orders: tuple[list[Input], list[Input]]
) -> None:
    spec = WindowSpec(assigner, AfterWatermark(), Accumulation.DISCARDING)
    left, right = (run(spec, order, aggregate) for order in orders)
    assert left.counts.dropped_expired == right.counts.dropped_expired == 0
    assert {(p.key, p.window): p.value for p in left.panes} == {(p.key, p.window): p.value for p in right.panes}
    assert len(left.panes) == len(right.panes)


@given(sessions, disordered_pairs())
def test_sessions_equal_an_offline_merge_of_the_sorted_events(
    assigner: Session, orders: tuple[list[Input], list[Input]]
) -> None:
    result = run(WindowSpec(assigner, AfterWatermark(), Accumulation.DISCARDING), orders[0])
    found = Counter({(str(p.key), p.window): len(p.elements) for p in result.panes})
    assert found == merge_offline(elements_of(orders[0]), assigner)


def merge_offline(events: Iterable[Seen], assigner: Session) -> Counter[tuple[str, AnyWindow]]:
    """Return sessions with their sizes: in order of time, an event extends the last session unless that has ended."""
    found: list[tuple[str, int, int, int]] = []
    for event in sorted(events, key=lambda one: (one.key, one.at_ms)):
        gap_ms = event.gap_ms if assigner.gap_field and event.gap_ms > 0 else assigner.gap_ms
        end_ms = event.at_ms + gap_ms
        if found and found[-1][0] == event.key and event.at_ms < found[-1][2]:
            key, start_ms, until_ms, size = found.pop()
            found.append((key, start_ms, max(until_ms, end_ms), size + 1))
        else:
            found.append((event.key, event.at_ms, end_ms, 1))
    return Counter({(key, Window(start_ms, end_ms)): size for key, start_ms, end_ms, size in found})


@given(assigners, st.integers(-100, 100), st.integers(1, 100))
def test_a_watermark_or_clock_that_goes_back_is_rejected(assigner: Assigner, at_ms: int, back_ms: int) -> None:
    windows = ReferenceWindows(WindowSpec(assigner, AfterWatermark(), Accumulation.DISCARDING), COUNT, clock_ms=at_ms)
    windows.watermark(at_ms)
    with pytest.raises(ValueError, match="watermark may not go back"):
        windows.watermark(at_ms - back_ms)
    with pytest.raises(ValueError, match="clock may not go back"):
        windows.clock(at_ms - back_ms)
    windows.watermark(at_ms)
    windows.clock(at_ms)


def to_number(pane: FiredPane) -> int:
    """Return the sum in a pane; null counts as 0."""
    assert pane.value is None or isinstance(pane.value, int)
    return pane.value or 0
