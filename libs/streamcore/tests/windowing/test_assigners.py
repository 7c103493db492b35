"""Assigners: every element is in at least one window, each window holds its element, days follow each other."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.windowing import (
    Assigner,
    CalendarDay,
    CountSliding,
    CountWindow,
    Element,
    GlobalWindow,
    Session,
    Sliding,
    Tumbling,
    Window,
)
from tests.harness.apps.generated_windows import assigners, count_assigners, event_time_assigners

HOUR_MS = 3_600_000
ZONES = ["Europe/Berlin", "America/Sao_Paulo", "America/St_Johns", "Asia/Beirut", "Pacific/Apia", "Australia/Lord_Howe"]
# 1950 to 2037: beyond that, zones follow rules and not tables, which makes no difference here.
TIMES_MS = st.integers(-631_152_000_000, 2_145_916_800_000)


def element_at(event_ms: int, number: int = 0) -> Element:
    return Element("a", {}, event_ms, number)


def assign_day(zone: str, event_ms: int) -> Window:
    (day,) = CalendarDay(zone).windows(element_at(event_ms))
    return day


@given(assigners, TIMES_MS, st.integers(0, 50))
def test_every_element_has_windows_and_each_holds_it(assigner: Assigner, event_ms: int, number: int) -> None:
    windows = assigner.windows(element_at(event_ms, number))
    samples = isinstance(assigner, Sliding) and assigner.slide_ms > assigner.size_ms
    assert windows or samples
    for window in windows:
        if isinstance(window, CountWindow):
            assert window.first <= number < window.end
        else:
            assert window.start_ms <= event_ms < window.end_ms


@given(event_time_assigners, st.integers(-200, 200))
def test_event_time_windows_equal_those_found_by_trying_every_start(assigner: Assigner, event_ms: int) -> None:
    step_ms, size_ms, offset_ms = 0, 0, 0
    if isinstance(assigner, Tumbling):
        step_ms, size_ms, offset_ms = assigner.size_ms, assigner.size_ms, assigner.offset_ms
    elif isinstance(assigner, Sliding):
        step_ms, size_ms, offset_ms = assigner.slide_ms, assigner.size_ms, assigner.offset_ms
    starts = [start for start in range(-300, 301) if (start - offset_ms) % step_ms == 0]
    holding = tuple(Window(s, s + size_ms) for s in starts if s <= event_ms < s + size_ms)
    assert assigner.windows(element_at(event_ms)) == holding


@given(count_assigners, st.integers(0, 50))
def test_count_windows_do_not_depend_on_time(assigner: Assigner, number: int) -> None:
    assert assigner.windows(element_at(-5, number)) == assigner.windows(element_at(10**12, number))


def test_the_first_count_window_starts_with_the_first_element() -> None:
    assert CountSliding(4, 2).windows(element_at(0, 1)) == (CountWindow(0, 4),)


@given(st.sampled_from(ZONES), TIMES_MS)
def test_calendar_days_leave_no_gap_and_do_not_overlap(zone: str, event_ms: int) -> None:
    day = assign_day(zone, event_ms)
    assert assign_day(zone, day.start_ms) == day
    assert assign_day(zone, day.end_ms - 1) == day
    assert assign_day(zone, day.end_ms).start_ms == day.end_ms


@given(st.sampled_from(ZONES), TIMES_MS)
def test_a_calendar_day_starts_with_the_first_instant_of_a_date(zone: str, event_ms: int) -> None:
    start_ms = assign_day(zone, event_ms).start_ms
    before, first = (
        datetime.fromtimestamp(ms // 1000, UTC).astimezone(ZoneInfo(zone)).date() for ms in (start_ms - 1, start_ms)
    )
    assert before < first


def test_a_date_that_recurs_for_an_hour_belongs_to_the_day_that_has_started() -> None:
    """In St. John's the clocks went back from 00:01 on Sunday, 29 October 2006, to 23:01 on Saturday. The second time
    that it was Saturday counts to the Sunday, which had begun a minute before."""
    sunday_ms = 1_162_089_000_000  # 29 October 2006, 00:00 in summer time, UTC-2:30
    day = assign_day("America/St_Johns", sunday_ms)
    assert day == Window(sunday_ms, sunday_ms + 25 * HOUR_MS)
    assert assign_day("America/St_Johns", sunday_ms + HOUR_MS // 2) == day


@pytest.mark.parametrize("gap", [None, 0, -3, True, 2.5, "7"])
def test_an_invalid_gap_falls_back_to_the_common_gap(gap: float | str | None) -> None:
    element = Element("a", {"gap": gap}, 100, 0)
    assert Session("10ms", "gap").windows(element) == (Window(100, 110),)


def test_the_global_window_holds_every_time() -> None:
    (window,) = GlobalWindow().windows(element_at(0))
    assert isinstance(window, Window)
    assert window.start_ms < -(10**15) < 10**15 < window.end_ms
