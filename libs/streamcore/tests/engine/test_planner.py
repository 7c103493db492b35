"""A batch is planned once, and everything follows from its plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from streamcore.app import CONTROL, App, Source
from streamcore.checkpoint.offset_log import CutBounds, OffsetLog
from streamcore.cuts.cut_clock import CutClock, CutTimer
from streamcore.engine.planner import Planner, TaskAssignment, control_ranges
from streamcore.errors import CorruptState, Drained, Permanent
from streamcore.limits import Limits
from streamcore.offsets import PARTITIONS_PER_TOPIC, OffsetRange, StreamOffsets, TopicPartition
from streamcore.schema import StreamSchema
from streamcore.storage.atomic_files import write_text


def schema(name: str) -> StreamSchema:
    document = {"name": name, "event_time": "ts", "keys": [[]], "fields": {"ts": "timestamp not null"}}
    return StreamSchema.parse(document)


def no_kernel() -> object:
    raise AssertionError("a plan needs no kernel")


APP = App(
    "a",
    (Source(schema("x"), "tx"), Source(schema("y"), "ty")),
    "control",
    {},
    (no_kernel,),  # type: ignore[arg-type]
    limits=Limits(events_per_cut=10, control_records_per_cut=5),
)


@dataclass
class Topics:
    """A cluster whose latest offsets a test sets."""

    reach: dict[TopicPartition, int]
    begin: dict[TopicPartition, int] = field(default_factory=dict)

    def earliest(self) -> dict[TopicPartition, int]:
        return dict.fromkeys(self.reach, 0) | self.begin

    def latest(self) -> dict[TopicPartition, int]:
        return dict(self.reach)

    def for_timestamp(self, time_ms: int) -> dict[TopicPartition, int]:
        raise AssertionError(f"no offset for time {time_ms} is needed to plan a cut")


def go_on() -> None:
    """Return None: there is no request to stop."""


@pytest.fixture
def log(tmp_path: Path) -> OffsetLog:
    return OffsetLog(tmp_path / "offsets", keep=5)


def planner(log: OffsetLog, topics: Topics, *times: int, from_the_end: bool = False) -> Planner:
    clock = iter(times)
    return Planner(
        APP,
        log,
        topics,
        starting="latest" if from_the_end else "earliest",
        timer=CutTimer(lambda: next(clock), lambda: 0),
    )


def test_a_planned_batch_reads_the_same_offsets_whatever_arrives_later(log: OffsetLog) -> None:
    topics = Topics({("tx", 0): 4, ("ty", 0): 0, ("control", 0): 1})
    first = planner(log, topics, 100).plan_cut(0, go_on, go_on)
    assert first == CutBounds(
        StreamOffsets(CutClock(), topics.earliest()), StreamOffsets(CutClock(100), topics.latest())
    )
    topics.reach[("tx", 0)] = 9
    assert planner(log, topics).plan_cut(0, go_on, go_on) == first, "no clock was read"
    assert planner(log, topics, 200).plan_cut(1, go_on, go_on) == CutBounds(
        first.end, StreamOffsets(CutClock(200), topics.latest()), first.id(0).digest
    )


def test_without_input_a_cut_waits_for_a_second(log: OffsetLog) -> None:
    topics = Topics({("tx", 0): 0, ("control", 0): 0})
    log.write(0, CutBounds(StreamOffsets(CutClock(), topics.reach), StreamOffsets(CutClock.at(5_000), topics.reach)))
    assert planner(log, topics, 5_001, 5_999, 6_000).plan_cut(1, go_on, go_on).end.clock.clock_ms == 6_000


def test_a_stop_during_the_wait_plans_nothing(log: OffsetLog) -> None:
    topics = Topics({("tx", 0): 0, ("control", 0): 0})
    log.write(0, CutBounds(StreamOffsets(CutClock(), topics.reach), StreamOffsets(CutClock.at(5_000), topics.reach)))
    stops = iter([None, None, Drained("stop")])

    def check() -> None:
        if (stop := next(stops)) is not None:
            raise stop

    with pytest.raises(Drained):
        planner(log, topics, 5_001, 5_002).plan_cut(1, check, go_on)
    assert log.read(1) is None


def test_an_app_that_starts_at_the_latest_offsets_reads_all_control_records(log: OffsetLog) -> None:
    topics = Topics({("tx", 0): 7, ("control", 0): 3}, {("tx", 0): 2})
    cut = planner(log, topics, 1_000, from_the_end=True).plan_cut(0, go_on, go_on)
    assert cut.start == StreamOffsets(CutClock(), {("tx", 0): 7, ("control", 0): 0})
    assert cut.end.offsets == topics.reach


def test_many_control_records_are_spread_over_cuts_that_also_read_events(log: OffsetLog) -> None:
    topics = Topics({("tx", 0): 0, ("control", 0): 0})
    planner(log, topics, 1_000).plan_cut(0, go_on, go_on)
    topics.reach = {("tx", 0): 6, ("control", 0): 12}
    cuts = [planner(log, topics, 1_000 + batch).plan_cut(batch, go_on, go_on) for batch in (1, 2, 3)]
    assert [cut.end.offsets["control", 0] for cut in cuts] == [5, 10, 12]
    assert cuts[0].end.offsets["tx", 0] == 6


def test_the_first_events_meet_every_rule_published_before_the_start(log: OffsetLog) -> None:
    topics = Topics({("tx", 0): 20, ("control", 0): 12})
    cut = planner(log, topics, 1_000).plan_cut(0, go_on, go_on)
    assert cut.end.offsets == {("tx", 0): 10, ("control", 0): 12}


def test_deleted_records_stop_the_app(log: OffsetLog) -> None:
    log.write(0, CutBounds(StreamOffsets(CutClock(), {}), StreamOffsets(CutClock.at(1), {("tx", 0): 8, ("ty", 1): 2})))
    with pytest.raises(Permanent, match=r"topic tx, partition 0: was read up to offset 8, and now it ends at 5"):
        planner(log, Topics({("tx", 0): 5, ("ty", 1): 2}), 2).plan_cut(1, go_on, go_on)
    with pytest.raises(Permanent, match=r"topic ty, partition 1: .* now it does not exist"):
        planner(log, Topics({("tx", 0): 8}), 2).plan_cut(1, go_on, go_on)


def test_a_lost_offset_is_not_replaced_by_a_guess(log: OffsetLog) -> None:
    with pytest.raises(CorruptState, match="position of batch 3 is missing"):
        planner(log, Topics({("tx", 0): 5}), 2).plan_cut(4, go_on, go_on)


def test_the_task_assignments_hold_all_spans_and_one_of_them_lists_the_partitions(log: OffsetLog) -> None:
    start = StreamOffsets(CutClock.at(1), {("tx", 0): 0, ("tx", 1): 5, ("ty", 0): 3, ("control", 0): 0})
    end = StreamOffsets(CutClock.at(9), {("tx", 0): 6, ("tx", 1): 5, ("ty", 0): 4, ("control", 0): 2})
    plan = planner(log, Topics({}))
    shares = plan.assign(CutBounds(start, end), 2)
    assert [share.clock for share in shares] == [end.clock, end.clock]
    assert [share.partitions for share in shares] == [((0, 0), (1, 5), (PARTITIONS_PER_TOPIC, 3)), ()]
    spans = {span for share in shares for span in share.ranges}
    assert spans == {
        OffsetRange(0, "tx", 0, 0, 6),
        OffsetRange(1, "ty", 0, 3, 4),
        OffsetRange(CONTROL, "control", 0, 0, 2),
    }
    assert control_ranges(plan.app, CutBounds(start, end)) == [OffsetRange(CONTROL, "control", 0, 0, 2)]


def test_an_empty_cut_has_one_task_that_carries_the_time(log: OffsetLog) -> None:
    at = StreamOffsets(CutClock.at(1), {("tx", 0): 4, ("control", 0): 0})
    assert planner(log, Topics({})).assign(CutBounds(at, StreamOffsets(CutClock.at(7), at.offsets)), 3) == [
        TaskAssignment((), CutClock.at(7), ((0, at.offsets["tx", 0]),))
    ]


BAD = ["", "{}", "[]", '{"start": 1, "end": 2}', '{"start": {"clock_ms": 1, "topics": {"t": 1}}, "end": {}}']


def test_old_offset_files_are_deleted_and_damaged_ones_are_rejected(log: OffsetLog) -> None:
    for batch in range(9):
        log.write(
            batch,
            CutBounds(StreamOffsets(CutClock.at(batch), {}), StreamOffsets(CutClock.at(batch + 1), {("tx", 0): batch})),
        )
    assert log.batches() == (4, 5, 6, 7, 8)
    for text in BAD:
        write_text(log.folder / "8", text)
        with pytest.raises(CorruptState, match="offsets/8: damaged"):
            log.read(8)
