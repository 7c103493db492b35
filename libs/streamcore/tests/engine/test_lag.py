"""The lag is the number of uncommitted records, and the age of the oldest one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from streamcore.cuts.cut_clock import CutClock
from streamcore.engine.lag import LADDER_S, Lag, LagTracker
from streamcore.offsets import StreamOffsets, TopicPartition

A: TopicPartition = ("a", 0)
CONTROL: TopicPartition = ("control", 0)


@dataclass
class Topics:
    """A cluster: the arrival times of the records of partition A, in milliseconds, ascending."""

    now_ms: int = 0
    came_ms: list[int] = field(default_factory=list)
    lookups: int = 0
    control: int = 0

    def earliest(self) -> Mapping[TopicPartition, int]:
        return {A: 0, CONTROL: 0}

    def latest(self) -> Mapping[TopicPartition, int]:
        return {A: sum(t <= self.now_ms for t in self.came_ms), CONTROL: self.control}

    def for_timestamp(self, time_ms: int) -> Mapping[TopicPartition, int]:
        self.lookups += 1
        return {A: sum(t < time_ms for t in self.came_ms), CONTROL: self.control}


def lag_tracker(topics: Topics) -> LagTracker:
    return LagTracker(topics, ["a"], lambda: topics.now_ms)


def test_the_lag_is_unknown_before_the_first_commit() -> None:
    topics = Topics(10, [1, 2])
    lag = lag_tracker(topics)
    lag.latest()
    assert lag.current() == Lag()


def test_the_lag_counts_uncommitted_rows_and_their_age_grows_until_a_commit() -> None:
    topics = Topics(1_000)
    lag = lag_tracker(topics)
    lag.latest()
    lag.record_commit(StreamOffsets(CutClock(), {A: 0, CONTROL: 0}))
    topics.came_ms = [1_500, 1_600]
    topics.now_ms = 2_000
    lag.latest()
    topics.now_ms = 9_000
    assert lag.current() == Lag(2, 7_000)
    lag.record_commit(StreamOffsets(CutClock(), {A: 2}))
    assert lag.current() == Lag()


def test_control_records_are_counted_separately_from_events() -> None:
    topics = Topics(0, [0], control=12)
    lag = lag_tracker(topics)
    lag.latest()
    lag.record_commit(StreamOffsets(CutClock(), {A: 1, CONTROL: 5}))
    assert lag.current() == Lag(0, 0, 7)


def test_a_backlog_at_the_start_has_its_true_age() -> None:
    topics = Topics(10_000_000, [10_000_000 - 1_000_000] * 5)
    lag = lag_tracker(topics)
    lag.latest()
    lag.record_commit(StreamOffsets(CutClock(), {A: 2}))
    found = lag.current()
    assert found.rows == 3
    assert 900_000 <= found.ms <= 1_000_000, "older than the previous lookup, no older than its true age"
    assert topics.lookups <= len(LADDER_S)


def test_two_lookups_in_quick_succession_are_both_kept_when_the_next_is_late() -> None:
    topics = Topics(0, [0, 1])
    lag = lag_tracker(topics)
    lag.latest()
    lag.record_commit(StreamOffsets(CutClock(), {A: 0}))
    for topics.now_ms in (1, 2, 3, 4, 202):
        lag.latest()
    lag.record_commit(StreamOffsets(CutClock(), {A: 1}))
    assert lag.current() == Lag(1, 198), "seen at 4 at the latest, and there since 1"


def test_the_meter_reads_the_offsets_after_a_cut_that_an_earlier_process_planned() -> None:
    topics = Topics(10_000_000, [10_000_000 - 1_000_000] * 5)
    lag = lag_tracker(topics)
    lag.record_commit(StreamOffsets(CutClock(), {A: 2}))
    assert lag.current().rows == 3
    assert lag.current().ms >= 900_000


@given(
    st.lists(st.integers(0, 60_000), max_size=40), st.lists(st.integers(1, 4_000), min_size=2, max_size=30), st.data()
)
def test_the_age_is_exact_to_within_the_time_between_two_lookups(
    arrivals_ms: list[int], steps: list[int], data: st.DataObject
) -> None:
    """The oracle uses the arrival time of each record."""
    topics = Topics(0, sorted(arrivals_ms))
    lag = lag_tracker(topics)
    lag.latest()
    lag.record_commit(StreamOffsets(CutClock(), {A: 0}))
    read, before_ms = 0, 0
    looked = [0]
    for step in steps:
        topics.now_ms += step
        there = lag.latest()[A]
        looked.append(topics.now_ms)
        read = data.draw(st.integers(read, there))
        lag.record_commit(StreamOffsets(CutClock(), {A: read}))
        found = lag.current()
        assert found.rows == there - read
        if there > read:
            true_ms = topics.now_ms - topics.came_ms[read]
            assert found.ms <= true_ms
            seen_ms = min(t for t in looked if t >= topics.came_ms[read])
            assert found.ms >= topics.now_ms - seen_ms - 200
        before_ms = topics.now_ms
    assert before_ms == topics.now_ms
