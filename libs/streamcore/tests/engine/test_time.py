"""Event, ingestion and processing time; punctuated watermarks; the end of a stream."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
import pytest

from streamcore.app import App, EventTime, Source
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.errors import ConfigError
from streamcore.kernel import Cut, Exchange, KernelOutput, StreamKey
from streamcore.schema import EVENT_MS, StreamSchema
from streamcore.watermark import (
    END_OF_TIME_MS,
    NO_WATERMARK,
    WatermarkStrategy,
    ascending_timestamps,
    bounded_out_of_orderness,
    from_punctuation,
)
from streamcore.wire.lanes import Record
from tests.harness.apps.stateless_kernel import StatelessKernel

CLOCK = 1_700_000_000_000


def schema(name: str = "s") -> StreamSchema:
    fields = {"ts": "timestamp not null", "mark": "boolean", "until": "timestamp", "last": "boolean"}
    return StreamSchema.parse({"name": name, "event_time": "ts", "keys": [[]], "fields": fields})


class Times(StatelessKernel):
    """A kernel that outputs its time, and the times of its events."""

    def step(self, cut: Cut) -> KernelOutput:
        times = [ms for frame in cut.events.values() for ms in frame[EVENT_MS].to_list()]
        marks = [[time.watermark_ms, time.next_watermark_ms] for time in cut.watermark_times]
        return KernelOutput([Record("times", None, orjson.dumps([times, marks]))])


def app(*sources: Source, watermark_groups: tuple[tuple[int, ...], ...] = ()) -> InProcessApp:
    return InProcessApp(App("t", sources, "c", {}, (Times,), shards=1, watermark_groups=watermark_groups))


def event(offset: int, ts: int, source: int = 0, partition: int = 0, **fields: object) -> RawRecord:
    return RawRecord(source, partition, offset, orjson.dumps({"ts": ts} | fields), timestamp_ms=500 + offset)


def run_cut(
    local: InProcessApp, records: Sequence[RawRecord], clock_ms: int = CLOCK
) -> tuple[list[int], list[list[int]]]:
    (record,) = local.cut(records, clock_ms)
    times, marks = orjson.loads(record.value or b"")
    return times, marks


def watermark(local: InProcessApp, *records: RawRecord) -> int:
    _, marks = run_cut(local, records)
    return marks[0][1]


def test_event_time_is_the_field_that_the_schema_names() -> None:
    assert run_cut(app(Source(schema(), "t")), [event(0, 70), event(1, 90)])[0] == [70, 90]


def test_ingestion_time_is_the_timestamp_of_the_broker() -> None:
    local = app(Source(schema(), "t", time=EventTime.INGESTION))
    bad = RawRecord(0, 0, 1, b"{", timestamp_ms=501)
    out = local.cut([event(0, 70), bad, event(2, 90)], CLOCK)
    (times,) = [orjson.loads(r.value or b"")[0] for r in out if r.lane == "times"]
    assert times == [500, 502], "each its own, also beside a dead letter"


@pytest.mark.parametrize(
    ("timestamp_ms", "code"),
    [
        (None, "missing_field"),
        (-1, "out_of_range"),
        (-(2**63), "out_of_range"),
        (CLOCK + 300_001, "from_the_future"),
        (2**63 - 1, "from_the_future"),
    ],
)
def test_a_producers_timestamp_cannot_push_the_watermark(timestamp_ms: int | None, code: str) -> None:
    source = Source(schema(), "t", time=EventTime.INGESTION, watermark=ascending_timestamps())
    local = app(source)
    records = [
        RawRecord(0, 0, 0, b'{"ts": 70}', timestamp_ms=CLOCK),
        RawRecord(0, 0, 1, b"{", timestamp_ms=2**62),
        RawRecord(0, 0, 2, b'{"ts": 80}', timestamp_ms=timestamp_ms),
        RawRecord(0, 0, 3, b'{"ts": 90}', timestamp_ms=CLOCK + 300_000),
    ]
    out = local.cut(records, CLOCK)
    ((times, marks),) = [orjson.loads(r.value or b"") for r in out if r.lane == "times"]
    assert times == [CLOCK, CLOCK + 300_000]
    assert marks[0][1] <= CLOCK + 300_000
    dead = [dict(r.headers) for r in out if r.lane == "deadletters"]
    assert [(one["source_offset"], one["reason_code"]) for one in dead] == [(b"1", b"not_json"), (b"2", code.encode())]
    assert dead[1]["reason"].startswith(b"event time: ")


def test_processing_time_is_the_clock_of_the_cut() -> None:
    assert run_cut(app(Source(schema(), "t", time=EventTime.PROCESSING)), [event(0, 70)])[0] == [CLOCK]


def test_by_processing_time_the_watermark_is_the_clock_even_of_a_silent_partition() -> None:
    local = app(Source(schema(), "t", time=EventTime.PROCESSING))
    local.partitions = (0, 1)
    assert run_cut(local, [event(0, 70)], CLOCK) == ([CLOCK], [[NO_WATERMARK, CLOCK]])
    assert run_cut(local, [event(1, 70)], CLOCK + 5) == ([CLOCK + 5], [[CLOCK, CLOCK + 5]])
    assert run_cut(local, [], CLOCK + 3_600_000) == ([], [[CLOCK + 5, CLOCK + 3_600_000]])


def test_a_stream_by_processing_time_ends_with_the_last_event_of_every_partition() -> None:
    local = app(Source(schema(), "t", time=EventTime.PROCESSING, watermark=WatermarkStrategy(end="last")))
    assert watermark(local, event(0, 200), event(0, 210, partition=1, last=True)) == CLOCK
    assert watermark(local, event(1, 300, last=True)) == END_OF_TIME_MS
    assert run_cut(local, [], CLOCK + 1)[1][0][1] == END_OF_TIME_MS


def test_a_stream_by_event_time_holds_the_watermark_back_until_it_is_idle_beside_one_by_processing_time() -> None:
    local = app(
        Source(schema("a"), "a", time=EventTime.PROCESSING),
        Source(schema("b"), "b", watermark=ascending_timestamps(idle_timeout_ms=1_000)),
    )
    assert watermark(local, event(0, 70), event(0, CLOCK - 300, source=1)) == CLOCK - 300
    assert run_cut(local, [], CLOCK + 999)[1] == [[CLOCK - 300, CLOCK - 300]]
    assert run_cut(local, [], CLOCK + 1_000)[1] == [[CLOCK - 300, CLOCK + 1_000]]


def test_the_clock_does_not_move_the_watermark_of_ingestion_time() -> None:
    local = app(Source(schema(), "t", time=EventTime.INGESTION, watermark=ascending_timestamps()))
    assert watermark(local, event(0, 70)) == 500
    assert run_cut(local, [], CLOCK + 3_600_000)[1] == [[500, 500]]


def test_each_source_has_its_own_out_of_orderness() -> None:
    local = app(
        Source(schema("a"), "a", watermark=bounded_out_of_orderness("10ms")),
        Source(schema("b"), "b", watermark=ascending_timestamps()),
    )
    assert watermark(local, event(0, 200), event(0, 195, source=1)) == 190


def test_a_punctuation_of_true_moves_the_watermark_to_its_event() -> None:
    local = app(Source(schema(), "t", watermark=from_punctuation("mark")))
    assert watermark(local, event(0, 200), event(1, 300, mark=False)) == NO_WATERMARK
    assert watermark(local, event(2, 250, mark=True), event(3, 400)) == 250
    assert watermark(local, event(4, 240, mark=True)) == 250


def test_a_punctuation_timestamp_moves_the_watermark_to_itself() -> None:
    local = app(Source(schema(), "t", watermark=from_punctuation("until")))
    assert watermark(local, event(0, 200, until=150), event(1, 300)) == 150


def test_the_stream_ends_with_the_last_event_of_every_partition() -> None:
    local = app(Source(schema(), "t", watermark=WatermarkStrategy(0, end="last")))
    assert watermark(local, event(0, 200), event(0, 210, partition=1, last=True)) == 200
    assert watermark(local, event(1, 300, last=True)) == END_OF_TIME_MS


def test_a_watermark_group_has_the_watermark_of_its_own_sources() -> None:
    sources = [Source(schema(name), name, watermark=ascending_timestamps()) for name in "ab"]
    local = app(*sources, watermark_groups=((0, 1), (0,), (1,)))
    _, marks = run_cut(local, [event(0, 200), event(0, 100, source=1)])
    assert [after for _, after in marks] == [100, 200, 100]
    _, marks = run_cut(local, [event(1, 300)])
    assert marks == [[100, 100], [200, 300], [100, 100]]


def test_every_stage_sees_the_same_time() -> None:
    class Pass(Times):
        def step(self, cut: Cut) -> KernelOutput:
            return KernelOutput(rows={StreamKey("next", 0): frame for frame in cut.events.values()})

    exchanges = (Exchange(StreamKey("s", 0), ()), Exchange(StreamKey("next", 0), (), stage=1))
    one = App(
        "t",
        (Source(schema(), "t", watermark=bounded_out_of_orderness("5ms")),),
        "c",
        {},
        (Pass, Times),
        None,
        exchanges,
        shards=2,
    )
    local = InProcessApp(one)
    local.cut([event(0, 100)], CLOCK)
    out = [orjson.loads(r.value or b"") for r in local.cut([event(1, 200), event(2, 150)], CLOCK)]
    assert [marks for _, marks in out] == [[[95, 195]]] * 2
    assert [times for times, _ in out if times] == [[200, 150]]


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (from_punctuation("nope"), "'nope' is not a boolean or timestamp field"),
        (WatermarkStrategy(end="until"), "'until' is not a boolean field"),
    ],
)
def test_a_watermark_strategy_must_name_a_suitable_field(strategy: WatermarkStrategy, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Source(schema(), "t", watermark=strategy)


def test_by_processing_time_no_event_sets_the_watermark() -> None:
    with pytest.raises(ConfigError, match="the watermark is the clock, so that 'mark' cannot set it"):
        Source(schema(), "t", watermark=from_punctuation("mark"), time=EventTime.PROCESSING)


def test_a_negative_out_of_orderness_is_rejected() -> None:
    with pytest.raises(ConfigError, match="max_out_of_orderness_ms is at least 0"):
        bounded_out_of_orderness("-1ms")
