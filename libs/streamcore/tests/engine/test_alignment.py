"""Watermark alignment: a partition that is far ahead waits, and nothing else does."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamcore.app import App, EventTime, Source
from streamcore.checkpoint.offset_log import CutBounds
from streamcore.cuts.cut_clock import CutClock
from streamcore.engine.alignment import SourceAlignment
from streamcore.errors import ConfigError
from streamcore.offsets import StreamOffsets, TopicPartition, next_offsets
from streamcore.schema import StreamSchema
from streamcore.watermark import END_OF_TIME_MS, WatermarkStrategy

DRIFT_MS, IDLE_MS, PER_CUT, CUT_MS = 50, 1_000, 12, 100
ALIGNED = WatermarkStrategy(0, IDLE_MS).with_alignment(f"{DRIFT_MS}ms")


def source(name: str, watermark: WatermarkStrategy) -> Source:
    document = {"name": name, "event_time": "ts", "keys": [[]], "fields": {"ts": "timestamp not null"}}
    return Source(StreamSchema.parse(document), name, watermark=watermark)


def app(*sources: Source) -> App:
    return App("a", sources, "control", {}, (no_kernel,))  # type: ignore[arg-type]


def no_kernel() -> object:
    raise AssertionError("a plan needs no kernel")


@dataclass
class Cuts:
    """Plans the cuts over partitions whose records, of these times in milliseconds, all exist from the start."""

    times: dict[TopicPartition, list[int]]
    app: App
    end: StreamOffsets = field(default_factory=lambda: StreamOffsets(CutClock(), {}))
    watermarks: dict[str, dict[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.alignment = SourceAlignment(self.app)

    def cut(self) -> dict[TopicPartition, int]:
        """Run a cut; return the number of records that it takes of each partition."""
        ends = {place: len(times) for place, times in self.times.items()}
        clock = CutClock.at(self.end.clock.clock_ms + CUT_MS)
        readable = self.alignment.limit(self.end, ends, clock.elapsed_ms)
        cut = CutBounds(self.end, next_offsets(self.end, readable, PER_CUT, clock))
        taken = {place: end - cut.start.offsets.get(place, 0) for place, end in cut.end.offsets.items()}
        for (topic, n), end in cut.end.offsets.items():
            if end:
                self.watermarks.setdefault(topic, {}).setdefault(str(n), self.times[topic, n][end - 1])
                self.watermarks[topic][str(n)] = max(self.watermarks[topic][str(n)], self.times[topic, n][end - 1])
        self.alignment.record(cut, self.watermarks)
        self.end = cut.end
        return taken


steps = st.lists(st.integers(0, 40), min_size=1, max_size=40)


@pytest.mark.slow
@example([0], [0, 0, 0, 11, 40, 0], [0, 0, 22, 40, 40, 0], 13)  # a partition that has waited for long is not idle
@given(steps, steps, steps, st.integers(13, 20))
def test_no_partition_is_further_ahead_than_the_limit_and_one_cut(
    one: list[int], other: list[int], third: list[int], restart_every: int
) -> None:
    def times(steps: list[int]) -> list[int]:
        return [sum(steps[: n + 1]) for n in range(len(steps))]

    places = {("x", 0): times(one), ("x", 1): times(other), ("y", 0): times(third)}
    cuts = Cuts(places, app(source("x", ALIGNED), source("y", ALIGNED)))
    for number in range(400):
        resumes = number > 0 and number % restart_every == 0
        if resumes:
            cuts.restart()
        before = {(topic, int(n)): ms for topic, found in cuts.watermarks.items() for n, ms in found.items()}
        backlog = [before[p] for p in before if cuts.end.offsets[p] < len(places[p])]
        taken = cuts.cut()
        assert not (resumes and any(taken.values())), "the first cut of a process learns the progress"
        for place, count in taken.items():
            assert not count or before.get(place, 0) - min(backlog, default=0) <= DRIFT_MS
        if sum(cuts.end.offsets.values()) == sum(map(len, places.values())):
            return
    raise AssertionError("some records are never read")


def test_a_partition_that_is_idle_or_has_ended_holds_no_other_back() -> None:
    times = {("x", 0): [10], ("x", 1): [n * 40 for n in range(60)]}
    cuts = Cuts(times, app(source("x", ALIGNED)))
    taken = [cuts.cut()["x", 1] for _ in range(13)]
    assert taken[0] == 11
    assert taken[1:10] == [0] * 9, "its time is 400, and that of partition 0 is 10"
    assert taken[10] == PER_CUT, "partition 0 is idle after a second"
    cuts = Cuts(times, app(source("x", ALIGNED)))
    cuts.cut()
    cuts.watermarks["x"]["0"] = END_OF_TIME_MS
    cuts.cut()
    assert cuts.cut()["x", 1] == PER_CUT


def test_sources_of_other_groups_and_without_a_limit_do_not_wait() -> None:
    fast = [n * 1_000 for n in range(30)]
    other_group = WatermarkStrategy(0, IDLE_MS).with_alignment(f"{DRIFT_MS}ms", group="other")
    sources = (source("x", ALIGNED), source("y", other_group), source("z", WatermarkStrategy(0, IDLE_MS)))
    cuts = Cuts({("x", 0): [1], ("y", 0): fast, ("z", 0): fast}, app(*sources))
    taken = [cuts.cut() for _ in range(6)]
    assert [cut["y", 0] for cut in taken] == [cut["z", 0] for cut in taken]
    assert cuts.end.offsets["y", 0] == 30


def test_an_alignment_without_a_meaning_is_rejected() -> None:
    with pytest.raises(ConfigError, match="max_drift_ms is at least 0"):
        WatermarkStrategy().with_alignment("-1ms")
    with pytest.raises(ConfigError, match="by processing time no partition is ahead"):
        Source(source("x", ALIGNED).schema, "x", watermark=ALIGNED, time=EventTime.PROCESSING)
