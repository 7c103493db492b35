"""Timers in order of time, one by one and all at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamcore.columnar.timer_index import TimerIndex
from streamcore.columnar.timer_queue import TimerQueue

timers = st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 9)), max_size=20)


@given(timers, timers, st.integers(-6, 6))
def test_due_timers_fire_in_order_and_the_others_remain(
    first: list[tuple[int, int]], more: list[tuple[int, int]], until_ms: int
) -> None:
    queue = TimerQueue(first)
    for timer in more:
        queue.put(timer)
    due = list(iter(lambda: queue.pop_due(until_ms), None))
    ordered = sorted(first + more)
    assert due == [timer for timer in ordered if timer[0] <= until_ms]
    assert len(queue) == len(ordered) - len(due)
    assert list(iter(lambda: queue.pop_due(None), None)) == ordered[len(due) :]


@given(timers, st.integers(-6, 6))
def test_take_returns_each_name_once_in_order_of_its_first_time(entries: list[tuple[int, int]], until_ms: int) -> None:
    index: TimerIndex[int] = TimerIndex()
    for time_ms, name in entries:
        index.put(time_ms, name)
    due = sorted((entry for entry in entries if entry[0] <= until_ms), key=lambda entry: entry[0])
    assert list(index.take(until_ms)) == list(dict.fromkeys(name for _, name in due))
    assert not index.take(until_ms)
