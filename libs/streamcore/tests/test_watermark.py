"""Watermarks: one for each source partition, of which the smallest counts; idle ones do not; they never go back.

::

    partition 0   ──100────200────────────────300──
    partition 1   ──────90──────────(idle)─────────
    watermark          80           190       290      (disorder 10)
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamcore.watermark import END_OF_TIME_MS, NO_WATERMARK, Progress, WatermarkState, WatermarkStrategy

STRATEGY = WatermarkStrategy(max_out_of_orderness_ms="10ms", idle_timeout_ms=1_000)


def idle(_: int) -> int:
    return STRATEGY.idle_timeout_ms


def progress_of(partition: int, event_ms: int) -> Progress:
    return Progress(partition, event_ms, 1, event_ms - STRATEGY.max_out_of_orderness_ms)


def end_of(partition: int) -> Progress:
    return Progress(partition, 500, 1, END_OF_TIME_MS)


def test_an_expected_partition_holds_the_watermark_until_its_first_event() -> None:
    state = WatermarkState().expect([0, 1], 0).advance([progress_of(0, 200)], 0, idle)
    assert state.watermark_ms == NO_WATERMARK
    state = state.expect([0, 1], 10).advance([progress_of(0, 300), progress_of(1, 120)], 10, idle)
    assert state.watermark_ms == 120 - STRATEGY.max_out_of_orderness_ms


def test_an_expected_partition_without_events_becomes_idle() -> None:
    state = WatermarkState().expect([0, 1], 0)
    state = state.expect([0, 1], 999).advance([progress_of(0, 200)], 999, idle)
    assert state.watermark_ms == NO_WATERMARK
    state = state.expect([0, 1], 1_000).advance([progress_of(0, 200)], 1_000, idle)
    assert state.watermark_ms == 200 - STRATEGY.max_out_of_orderness_ms


def test_the_slowest_partition_determines_the_watermark() -> None:
    state = WatermarkState().advance([progress_of(0, 200), progress_of(1, 90)], 0, idle)
    assert state.watermark_ms == 80


def test_an_idle_partition_does_not_hold_the_watermark_back_until_its_next_event() -> None:
    state = WatermarkState().advance([progress_of(0, 200), progress_of(1, 90)], 0, idle)
    state = state.advance([progress_of(0, 200)], 999, idle)
    assert state.watermark_ms == 80
    state = state.advance([progress_of(0, 200)], 1_000, idle)
    assert state.watermark_ms == 190
    state = state.advance([progress_of(0, 300), progress_of(1, 95)], 1_001, idle)
    assert state.watermark_ms == 190


def test_before_the_first_event_there_is_no_watermark() -> None:
    assert WatermarkState().advance([], 5, idle).watermark_ms == NO_WATERMARK


def test_the_watermark_stands_still_when_all_partitions_are_idle() -> None:
    state = WatermarkState().advance([progress_of(0, 200)], 0, idle).advance([], 5_000, idle)
    assert state.watermark_ms == 190


def test_after_a_silence_of_all_partitions_the_watermark_waits_for_each_again() -> None:
    state = WatermarkState().advance([progress_of(0, 200), progress_of(1, 190)], 0, idle)
    state = state.advance([progress_of(0, 900)], 5_000, idle)
    assert state.watermark_ms == 180, "the app was down; partition 1 may have as many events"
    late = state.advance([progress_of(1, 700)], 5_100, idle)
    assert late.watermark_ms == 690
    state = state.advance([progress_of(0, 901)], 5_900, idle).advance([progress_of(0, 902)], 6_000, idle)
    assert state.watermark_ms == 892, "it has none, and is idle"


def test_the_latest_event_time_covers_the_requested_partitions() -> None:
    state = WatermarkState().advance([progress_of(0, 200), progress_of(1, 90), progress_of(2, 300)], 0, idle)
    assert state.latest_event_ms(range(2)) == 200
    assert state.latest_event_ms(range(3, 5)) == NO_WATERMARK


def test_each_partition_may_have_an_idle_time_of_its_own() -> None:
    state = WatermarkState().advance([progress_of(0, 200), progress_of(1, 90)], 0, idle)
    assert state.advance([progress_of(0, 200)], 500, lambda n: 400 if n else 1_000).watermark_ms == 190


def test_an_event_without_punctuation_holds_the_watermark_and_does_not_move_it() -> None:
    state = WatermarkState().advance([Progress(0, 200, 1, NO_WATERMARK), progress_of(1, 90)], 0, idle)
    assert state.watermark_ms == NO_WATERMARK
    state = state.advance([Progress(0, 300, 1, 70)], 1, idle)
    assert state.watermark_ms == 70
    assert state.advance([Progress(0, 400, 1, NO_WATERMARK)], 2, idle).watermark_ms == 70


def test_the_stream_has_ended_when_every_partition_has_ended() -> None:
    state = WatermarkState().expect([0, 1], 0).advance([end_of(0)], 0, idle)
    assert state.watermark_ms == NO_WATERMARK
    state = state.advance([progress_of(1, 90)], 1, idle)
    assert state.watermark_ms == 80, "an ended partition does not hold the watermark back"
    assert state.advance([], 5_000, idle).watermark_ms == 80, "an idle partition may continue"
    assert state.advance([end_of(1)], 2, idle).watermark_ms == END_OF_TIME_MS


cuts = st.lists(
    st.tuples(st.integers(0, 3_000), st.dictionaries(st.integers(0, 3), st.integers(0, 10**6), max_size=4)),
    max_size=30,
)


@given(cuts)
def test_the_watermark_never_goes_back_and_stays_behind_an_event(sequence: list[tuple[int, dict[int, int]]]) -> None:
    state, clock = WatermarkState(), 0
    for step, seen in sequence:
        clock += step
        after = state.advance([progress_of(p, ms) for p, ms in seen.items()], clock, idle)
        assert after.watermark_ms >= state.watermark_ms
        assert after.watermark_ms <= max(
            after.latest_event_ms(range(4)) - STRATEGY.max_out_of_orderness_ms, NO_WATERMARK
        )
        state = after


@given(cuts)
def test_the_order_in_which_partitions_report_does_not_matter(sequence: list[tuple[int, dict[int, int]]]) -> None:
    one, two, clock = WatermarkState(), WatermarkState(), 0
    for step, seen in sequence:
        clock += step
        progress = [progress_of(p, ms) for p, ms in seen.items()]
        one, two = one.advance(progress, clock, idle), two.advance(progress[::-1], clock, idle)
    assert one == two
