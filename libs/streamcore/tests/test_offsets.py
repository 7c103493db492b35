"""Offsets: a backlog is split into cuts that hold every record once, whatever the limits."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.cuts.cut_clock import CutClock
from streamcore.errors import CorruptState
from streamcore.offsets import OffsetRange, StreamOffsets, TopicPartition, assign_ranges, next_offsets, ranges_between

CONTROL = "control"
SOURCES = {"a": 0, "b": 1, CONTROL: -1}

places = st.tuples(st.sampled_from(["a", "b", CONTROL]), st.integers(0, 3))
offsets = st.dictionaries(places, st.integers(0, 1_000), max_size=8)


@given(offsets, st.integers(0, 2**50))
def test_stream_offsets_read_back_from_json(known: dict[TopicPartition, int], clock_ms: int) -> None:
    position = StreamOffsets(CutClock.at(clock_ms), known)
    assert StreamOffsets.from_json(json.loads(json.dumps(position.to_json()))) == position


@pytest.mark.parametrize(
    "document",
    [
        {},
        {**CutClock(1).to_json()},
        {**CutClock(1).to_json(), "clock_ms": "1", "topics": {}},
        {"clock_ms": 1, "topics": {}},
        {"topics": {}},
    ],
)
def test_invalid_stream_offsets_are_rejected(document: dict[str, object]) -> None:
    with pytest.raises(CorruptState, match="no position of ours"):
        StreamOffsets.from_json(document)


@given(offsets, offsets, st.integers(1, 500), st.integers(1, 500), st.lists(st.integers(0, 100), max_size=3))
def test_cuts_hold_every_record_once_and_respect_the_limits(
    start: dict[TopicPartition, int], more: dict[TopicPartition, int], limit: int, control: int, clocks: list[int]
) -> None:
    ends = {place: start.get(place, 0) + more.get(place, 0) for place in start.keys() | more.keys()}
    position, read = StreamOffsets(CutClock.at(5), start), dict.fromkeys(ends, 0)
    for clock_ms in [*clocks, *([7] * 2_000)]:
        after = next_offsets(position, ends, limit, CutClock.at(clock_ms), {CONTROL: control})
        cut = ranges_between(position, after, SOURCES)
        for span in cut:
            place = span.topic, span.partition
            assert span.start == start.get(place, 0) + read[place], "no gap and no overlap"
            read[place] += span.end - span.start
        for own, most in ((True, control), (False, limit)):
            taken = [span.end - span.start for span in cut if (span.topic == CONTROL) is own]
            assert sum(taken) <= most + len(taken)
        assert after.clock == CutClock.at(clock_ms)
        waiting = {place for place, end in ends.items() if position.offsets.get(place, 0) < end}
        assert {(span.topic, span.partition) for span in cut} == waiting, "none is starved"
        position = after
        if not waiting:
            break
    assert position.offsets == ends


def test_a_topic_with_its_own_limit_neither_reduces_the_others_nor_waits_for_them() -> None:
    start, ends = StreamOffsets(CutClock(), {("a", 0): 0, (CONTROL, 0): 0}), {("a", 0): 90, (CONTROL, 0): 50}
    assert next_offsets(start, ends, 9, start.clock, {CONTROL: 60}).offsets == {("a", 0): 9, (CONTROL, 0): 50}
    assert next_offsets(start, ends, 9, start.clock, {CONTROL: 7}).offsets == {("a", 0): 9, (CONTROL, 0): 7}


def test_a_new_partition_is_read_from_its_start() -> None:
    before, after = StreamOffsets(CutClock(), {("a", 0): 4}), StreamOffsets(CutClock.at(1), {("a", 0): 4, ("a", 1): 3})
    assert ranges_between(before, after, SOURCES) == [OffsetRange(0, "a", 1, 0, 3)]


@given(st.lists(st.integers(1, 1_000), max_size=12), st.integers(1, 5))
def test_tasks_share_all_spans_and_none_has_more_than_one_span_above_the_least(sizes: list[int], tasks: int) -> None:
    every = [OffsetRange(0, "a", partition, 10, 10 + size) for partition, size in enumerate(sizes)]
    shares = assign_ranges(every, tasks)
    assert sorted(s.partition for share in shares for s in share) == [*range(len(sizes))]
    assert len(shares) == min(tasks, len(sizes))
    totals = [sum(s.end - s.start for s in share) for share in shares]
    if len(totals) > 1:
        assert max(totals) - min(totals) <= max(sizes)
