"""The clock of the cuts never goes back, and its delay after the wall clock is set back is known."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.cuts.cut_clock import CutClock, CutTimer, reject_clock_ahead, span_text
from streamcore.errors import ConfigError

DAY_MS = 86_400_000
NOW_MS = 1_790_000_000_000


class Clocks:
    """Two clocks that a test sets. ``running_ms`` starts at zero in each process."""

    def __init__(self, wall_ms: int, running_ms: int = 0) -> None:
        self.wall_ms, self.running_ms = wall_ms, running_ms

    def timer(self) -> CutTimer:
        return CutTimer(lambda: self.wall_ms, lambda: self.running_ms)


def test_setting_the_wall_clock_back_stops_the_clock_but_not_the_elapsed_time() -> None:
    clocks = Clocks(NOW_MS + DAY_MS, 500)
    timer = clocks.timer()
    first = timer.read(CutClock(NOW_MS, 0, 70))
    assert first == CutClock(NOW_MS + DAY_MS, 0, 70)
    clocks.wall_ms, clocks.running_ms = NOW_MS, 2_500
    assert timer.read(first) == CutClock(NOW_MS + DAY_MS, DAY_MS, 2_070)


def test_a_new_process_continues_the_elapsed_time_without_the_time_in_between() -> None:
    clocks = Clocks(NOW_MS, 40)
    timer = clocks.timer()
    clocks.running_ms = 90
    assert timer.read(CutClock(NOW_MS - DAY_MS, 0, 3_000)).elapsed_ms == 3_050


@given(st.lists(st.tuples(st.integers(-(10**9), 10**9), st.integers(0, 10**6), st.booleans()), max_size=30))
def test_neither_time_goes_back_whatever_the_wall_clock_does(steps: list[tuple[int, int, bool]]) -> None:
    clocks = Clocks(NOW_MS)
    timer, before, ran_ms = clocks.timer(), CutClock(NOW_MS, 0, 0), 0
    for jump_ms, passed_ms, restarts in steps:
        if restarts:
            clocks.running_ms = jump_ms + 10**9
            timer = clocks.timer()
        clocks.wall_ms += jump_ms
        clocks.running_ms += passed_ms
        ran_ms += passed_ms
        now = timer.read(before)
        assert now.clock_ms == max(before.clock_ms, clocks.wall_ms)
        assert now.wall_ms == clocks.wall_ms
        assert now.elapsed_ms == ran_ms
        before = now


def test_the_times_of_a_cut_read_back_from_json() -> None:
    clock = CutClock(NOW_MS, 7, 90)
    assert CutClock.from_json(json.loads(json.dumps(clock.to_json()))) == clock
    assert CutClock.from_json({"clock_ms": NOW_MS}) is None


def test_a_clock_that_is_too_far_ahead_is_rejected_with_advice() -> None:
    last = CutClock(NOW_MS + DAY_MS, 0, 5)
    reject_clock_ahead(last, DAY_MS, "checkpoint c", NOW_MS)
    with pytest.raises(ConfigError) as caught:
        reject_clock_ahead(last, 3_600_000, "checkpoint c", NOW_MS)
    text = str(caught.value)
    assert text.startswith("checkpoint c: the clock of the last cut, 2026-09-22T14:13:20+00:00, is 1 d 0 h ahead")
    for advice in ("correct it and start again", "wait until", "raise max_clock_ahead_ms above 86400000"):
        assert advice in text


@pytest.mark.parametrize(
    ("ms", "text"), [(999, "0 s"), (61_000, "1 min 1 s"), (3_600_000, "1 h 0 min"), (DAY_MS * 2 + 7_260_000, "2 d 2 h")]
)
def test_a_duration_is_formatted_in_its_two_largest_units(ms: int, text: str) -> None:
    assert span_text(ms) == text
