"""Several streams on one topic, and fields beside the values of records, through an app."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import orjson
import pytest

from streamcore.app import App, DerivedSource, EventTime, Source
from streamcore.checkpoint.offset_log import CutBounds
from streamcore.cuts.cut_clock import CutClock
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.engine.planner import Planner
from streamcore.errors import ConfigError
from streamcore.kernel import Cut, KernelOutput
from streamcore.offsets import StreamOffsets
from streamcore.schema import EVENT_MS, StreamSchema
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import DEAD_LETTERS, Record
from tests.harness.apps.stateless_kernel import StatelessKernel

CLOCK = 1_700_000_000_000


def schema(name: str, equals: str | None = None, **fields: object) -> StreamSchema:
    document: dict[str, object] = {
        "name": name,
        "event_time": "at",
        "keys": [["k"]],
        "fields": {"at": "timestamp not null", "k": "string", **fields},
    }
    if equals is not None:
        document["when"] = {"from": "type", "equals": equals}
    return StreamSchema.parse(document)


class Seen(StatelessKernel):
    """A kernel that outputs its events by stream, and its watermark."""

    def step(self, cut: Cut) -> KernelOutput:
        rows = {key.stream: frame.drop("__partition").to_dicts() for key, frame in cut.events.items()}
        return KernelOutput([Record("seen", None, orjson.dumps([rows, cut.next_watermark_ms]))])


STRATEGY = WatermarkStrategy(max_out_of_orderness_ms=0)
PAID, REFUNDED = Source(schema("paid", "paid"), "t"), Source(schema("refunded", "refunded", why="string"), "t")


def app(*sources: Source) -> InProcessApp:
    return InProcessApp(App("a", sources, "c", {}, (Seen,), shards=1, watermark=STRATEGY), partitions=(0,))


def record(offset: int, value: object, key: bytes | None = None, **headers: bytes) -> RawRecord:
    return RawRecord(0, 0, offset, orjson.dumps(value), key, CLOCK + offset, headers)


def seen(records: list[Record]) -> tuple[dict[str, list[dict[str, object]]], int]:
    (one,) = [r for r in records if r.lane == "seen"]
    rows, watermark_ms = orjson.loads(one.value or b"")
    return rows, watermark_ms


def test_each_stream_of_a_topic_gets_its_events_and_the_watermark_is_that_of_the_topic() -> None:
    local = app(PAID, REFUNDED)
    rows, watermark_ms = seen(
        local.cut(
            [
                record(0, {"type": "paid", "at": 10, "k": "a"}),
                record(1, {"type": "refunded", "at": 30, "k": "a", "why": "late"}),
                record(2, {"type": "paid", "at": 20, "k": "b"}),
                record(3, {"type": "opened", "at": 90}),
            ],
            CLOCK,
        )
    )
    assert [row["at"] for row in rows["paid"]] == [10, 20]
    assert [(row["at"], row["why"]) for row in rows["refunded"]] == [(30, "late")]
    assert watermark_ms == 30, "a stream without events does not hold the other one back"
    assert local.outputs[0].metrics.counters["other_records.t"] == 1


def test_a_record_of_no_stream_is_a_dead_letter_where_the_settings_say_so() -> None:
    local = app(PAID, replace(REFUNDED, reject_other_records=True))
    (dead,) = [
        r
        for r in local.cut([record(0, {"type": "x"}), record(1, {"type": "paid", "at": 1})], CLOCK)
        if r.lane == DEAD_LETTERS
    ]
    headers = dict(dead.headers)
    assert (headers["reason_code"], headers["source_offset"], dead.value) == (b"no_stream", b"0", b'{"type":"x"}')
    assert headers["reason"].decode() == (
        "the record is an event of no stream of its topic: paid (type = 'paid'), refunded (type = 'refunded')"
    )


def test_a_record_of_a_stream_that_does_not_fit_it_is_a_dead_letter_of_it() -> None:
    records = [record(0, {"type": "paid"}), record(1, {"type": "refunded", "at": 3}), RawRecord(0, 0, 2, b"{")]
    found = app(PAID, REFUNDED).cut(records, CLOCK)
    reasons = Counter(dict(r.headers)["reason_code"] for r in found if r.lane == DEAD_LETTERS)
    assert reasons == {b"missing_field": 1, b"not_json": 1}
    assert [*seen(found)[0]] == ["refunded"]


def test_a_lone_stream_leaves_the_events_of_others() -> None:
    rows, _ = seen(app(PAID).cut([record(0, {"type": "paid", "at": 1}), record(1, {"type": "x"})], CLOCK))
    assert len(rows["paid"]) == 1


def test_key_headers_and_time_of_a_record_are_fields_and_keys() -> None:
    fields = {
        "at": {"type": "timestamp not null", "from": "_kafka.timestamp"},
        "k": {"type": "string", "from": "_kafka.key"},
        "trace": {"type": "string", "from": "_kafka.headers.trace"},
        "topic": {"type": "string", "from": "_kafka.topic"},
        "place": {"type": "long", "from": "_kafka.offset"},
        "part": {"type": "long", "from": "_kafka.partition"},
        "n": "long",
    }
    stream = StreamSchema.parse({"name": "s", "event_time": "at", "keys": [["k"]], "fields": fields})
    other = Source(schema("o"), "other")
    second = [replace(record(5, {"n": 7}, b"x", trace=b"z", unread=b"u"), source=1, partition=2)]
    rows, _ = seen(app(other, Source(stream, "t")).cut(second, CLOCK))
    (row,) = rows["s"]
    values = {"at": CLOCK + 5, "k": "x", "trace": "z", "topic": "t", "place": 5, "part": 2, "n": 7}
    assert row == values | {EVENT_MS: CLOCK + 5, "__offset": 5}
    assert app(Source(stream, "t")).app.headers == {"trace"}


def test_a_dead_letter_keeps_the_headers_that_the_app_reads() -> None:
    stream = schema("s", trace={"type": "long", "from": "_kafka.headers.trace"})
    bad = record(0, {"at": 1}, b"k", trace=b"x", unread=b"u")
    (dead,) = [r for r in app(Source(stream, "t")).cut([bad], CLOCK) if r.lane == DEAD_LETTERS]
    assert (dead.key, dead.value) == (b"k", b'{"at":1}')
    assert [name for name, _ in dead.headers if name.startswith("source_header")] == ["source_header.trace"]
    assert dict(dead.headers)["source_header.trace"] == b"x"


def test_a_cut_reads_a_shared_topic_once() -> None:
    planner = Planner(App("a", (PAID, REFUNDED), "c", {}, (Seen,)), log=None, ends=None)  # type: ignore[arg-type]
    clock = CutClock()
    cut = CutBounds(StreamOffsets(clock, {("t", 0): 1}), StreamOffsets(clock, {("t", 0): 9, ("c", 0): 0}), "")
    (task,) = planner.assign(cut, 2)
    assert [(one.source, one.start, one.end) for one in task.ranges] == [(0, 1, 9)]
    assert task.partitions == ((0, 1),)


@pytest.mark.parametrize(
    ("sources", "error"),
    [
        ((Source(schema("x"), "t"), Source(schema("y"), "t")), "each needs a condition"),
        ((PAID, Source(schema("y", "paid"), "t")), "two streams take records with 'paid'"),
        ((PAID, replace(REFUNDED, time=EventTime.INGESTION)), "give them one watermark and event time"),
    ],
)
def test_streams_that_cannot_share_a_topic(sources: tuple[Source, ...], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        app(*sources)


def test_times_are_not_assigned_anew_to_streams_that_share_a_topic() -> None:
    derived = (DerivedSource(1, STRATEGY),)
    with pytest.raises(ConfigError, match="assign_timestamps: the streams have the partitions in common"):
        App("a", (PAID, REFUNDED), "c", {}, (Seen,), derived_sources=derived)
