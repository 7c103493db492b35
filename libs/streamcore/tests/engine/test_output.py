"""Where a cut's output goes: rows to the sink of their lane, the rest to Kafka, and what a sink rejects to the dead
letters of the same cut."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import orjson
import polars as pl
import pyarrow as pa
import pytest

from streamcore.app import App
from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.engine.output import OutputCommitter
from streamcore.errors import ConfigError, Retryable
from streamcore.kafka.delivery import CommitOutcome
from streamcore.kafka.exactly_once import ExactlyOnceWriter
from streamcore.kafka.readers import Record as Read
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from streamcore.schema import LONG, TIMESTAMP, Field, StreamSchema
from streamcore.sinks.sink import Guarantee, RejectedRow, WriteOutcome, WriteResult
from streamcore.topology.stream import source
from streamcore.topology.topology import Topology
from streamcore.wire.arrow_ipc import ipc_stream
from streamcore.wire.lane_codec import encode_records
from streamcore.wire.lane_rows import LaneRows
from streamcore.wire.lanes import Record
from tests.harness.cut_ids import cut_id
from tests.harness.run.shared_servers import unique_name

_EVENTS = StreamSchema(
    "orders", (Field("id", LONG, nullable=False), Field("ts", TIMESTAMP, nullable=False)), "ts", ((),)
)
_numbers = itertools.count()
_PATIENCE_S = 30.0


@dataclass
class ListSink:
    """Stores its rows; rejects negative ids, and fails ``failures`` times."""

    name: str = "list"
    lanes: frozenset[str] = frozenset({"rows"})
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    failures: int = 0
    batches: dict[CutId, Mapping[str, pa.Table]] = field(default_factory=dict)
    opened: list[WriterId] = field(default_factory=list)
    closed: int = 0
    order: list[str] = field(default_factory=list)

    def open(self, owner: WriterId) -> CutId | None:
        self.opened.append(owner)
        return max(self.batches, key=lambda cut: cut.batch, default=None)

    def write(self, cut: CutId, rows: Mapping[str, pa.Table]) -> WriteResult:
        if self.failures:
            self.failures -= 1
            raise Retryable("away")
        ids = [one for table in rows.values() for one in table.column("id").to_pylist()]
        rejected = [
            RejectedRow("rows", place, "negative", f"id {one} is negative") for place, one in enumerate(ids) if one < 0
        ]
        if cut in self.batches:
            return WriteResult(WriteOutcome.SKIPPED, 0, rejected)
        self.batches[cut] = rows
        self.order.append(self.name)
        return WriteResult(WriteOutcome.COMMITTED if ids else WriteOutcome.EMPTY, len(ids) - len(rejected), rejected)

    def close(self) -> None:
        self.closed += 1


def _app(name: str) -> App:
    orders = source(_EVENTS)
    return Topology(name, orders.table("rows"), orders.sink("copies", key="id")).app()


Make = Callable[..., OutputCommitter]


@pytest.fixture
def make(kafka: KafkaSettings) -> Iterator[Make]:
    """Yield a function that creates outputs of an app of its own, with an open writer."""
    writers: list[ExactlyOnceWriter] = []

    def create(*sinks: ListSink) -> OutputCommitter:
        app = _app(unique_name("outputs", next(_numbers)))
        markers = f"{app.name}.markers"
        ensure_topics(kafka, [*(TopicSpec(t, 1) for t in app.lanes.values()), TopicSpec(markers, 1, compacted=True)])
        writers.append(ExactlyOnceWriter(kafka, WriterId(app.name, 1), markers))
        writers[-1].open()
        return OutputCommitter(app, writers[-1], sinks)

    yield create
    for writer in writers:
        writer.close()


def _blob(*ids: int) -> bytes:
    """Return the output of a shard: rows of a table, and the same as records."""
    frame = pl.DataFrame({"id": ids, "__event_ms": [0] * len(ids)}, schema={"id": pl.Int64, "__event_ms": pl.Int64})
    rows = LaneRows("rows", (), frame, whole=True)
    return encode_records(
        [Record("deadletters", None, b"bad")], [rows.batch(), LaneRows("copies", ("id",), frame).batch()]
    )


def _read(kafka: KafkaSettings, outputs: OutputCommitter, lane: str, count: int) -> list[Read]:
    """Return that many records, or those found in time: readers see a commit a moment after it is done."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        found = list(read_topic(kafka, outputs.app.lanes[lane], limit_ms=30_000))
        if len(found) >= count or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def _values(kafka: KafkaSettings, outputs: OutputCommitter, lane: str, count: int) -> list[bytes]:
    return [record.value or b"" for record in _read(kafka, outputs, lane, count)]


@pytest.mark.kafka
def test_rows_go_to_their_sink_in_the_order_of_the_shards_and_records_to_their_topics(
    kafka: KafkaSettings, make: Make
) -> None:
    sink = ListSink()
    outputs = make(sink)
    committed = outputs.commit(cut_id(0), [_blob(1, 2), _blob(3)])
    table = sink.batches[cut_id(0)]["rows"]
    assert table.to_pydict() == {"id": [1, 2, 3]}, "the engine's columns stay out"
    assert committed.lanes == {"rows": 3, "copies": 3, "deadletters": 2}
    assert committed.sinks["list"].rows == 3
    assert sorted(_values(kafka, outputs, "copies", 3)) == [b'{"id":1}', b'{"id":2}', b'{"id":3}']
    assert _values(kafka, outputs, "deadletters", 2) == [b"bad", b"bad"]


@pytest.mark.kafka
def test_what_merges_the_parts_of_shards_gives_records_to_topics_and_rows_to_sinks(
    kafka: KafkaSettings, make: Make
) -> None:
    def merge(parts: pa.Table) -> list[Record]:
        rows = pa.table({"id": parts["id"].unique()})
        return [Record("copies", b"all", b"%d" % parts.num_rows), Record("rows", None, ipc_stream(rows))]

    sink = ListSink()
    outputs = make(sink)
    outputs.app = replace(outputs.app, merges={"parts": merge})
    parts = [LaneRows("parts", (), pl.DataFrame({"id": ids}), whole=True).batch() for ids in ([1, 2], [2])]
    committed = outputs.commit(cut_id(0), [encode_records([], [part]) for part in parts])
    assert sink.batches[cut_id(0)]["rows"].to_pydict() == {"id": [1, 2]}
    assert committed.lanes == {"rows": 2, "copies": 1}
    assert _values(kafka, outputs, "copies", 1) == [b"3"]


@pytest.mark.kafka
def test_the_outcome_of_a_cut_whose_only_output_goes_to_sinks_is_that_of_the_sinks(make: Make) -> None:
    outputs = make(ListSink())
    rows = pl.DataFrame({"id": [1], "__event_ms": [0]}, schema={"id": pl.Int64, "__event_ms": pl.Int64})
    blob = encode_records([], [LaneRows("rows", (), rows, whole=True).batch()])
    outcomes = [outputs.commit(cut_id(batch), blobs).outcome for batch, blobs in ((0, [blob]), (0, [blob]), (1, []))]
    assert outcomes == [CommitOutcome.COMMITTED, CommitOutcome.SKIPPED, CommitOutcome.EMPTY]


@pytest.mark.kafka
def test_a_row_that_a_sink_rejects_is_a_dead_letter_with_the_row_and_the_reason(
    kafka: KafkaSettings, make: Make
) -> None:
    outputs = make(ListSink())
    committed = outputs.commit(cut_id(0), [_blob(1), _blob(-2)])
    assert (committed.sinks["list"].rows, committed.sinks["list"].rejected) == (1, 1)
    (dead,) = [r for r in _read(kafka, outputs, "deadletters", 3) if r.value != b"bad"]
    assert orjson.loads(dead.value or b"") == {"id": -2}
    assert [dead.header(name) for name in ("sink", "lane", "reason_code", "reason")] == [
        b"list",
        b"rows",
        b"negative",
        b"id -2 is negative",
    ]
    assert committed.lanes["deadletters"] == 3
    assert committed.reasons == {"negative": 1, "unknown": 2}


@pytest.mark.kafka
def test_a_cut_that_only_the_sink_had_written_is_written_once_to_both(kafka: KafkaSettings, make: Make) -> None:
    first, second = ListSink(), ListSink("late", frozenset(), failures=1)
    with pytest.raises(ConfigError, match="a sink wants lane 'nowhere'"):
        make(first, ListSink("other", frozenset({"nowhere"})))
    outputs = make(first, second)
    with pytest.raises(Retryable):
        outputs.commit(cut_id(7), [_blob(1, -1)])
    assert _values(kafka, outputs, "copies", 0) == [], "Kafka comes after all sinks"
    committed = outputs.commit(cut_id(7), [_blob(1, -1)])
    assert committed.sinks["list"].result is WriteOutcome.SKIPPED
    assert len(_values(kafka, outputs, "copies", 2)) == 2
    assert len(_values(kafka, outputs, "deadletters", 2)) == 2, "rejected by a skipped cut as by the first attempt"


@pytest.mark.kafka
def test_a_lane_with_rows_needs_a_sink_and_sinks_need_names(make: Make) -> None:
    with pytest.raises(ConfigError, match="no sink takes the rows of lane 'rows'"):
        make()
    with pytest.raises(ConfigError, match="two sinks are named 'a'"):
        make(ListSink("a"), ListSink("a"))


@pytest.mark.kafka
def test_when_one_sink_fails_to_open_the_others_are_closed(make: Make) -> None:
    class Closed(ListSink):
        def open(self, owner: WriterId) -> CutId | None:
            raise ConfigError("no table")

    first = ListSink()
    outputs = make(first, Closed("closed", frozenset()))
    with pytest.raises(ConfigError, match="no table"):
        outputs.open(WriterId("x", 1))
    assert (len(first.opened), first.closed) == (1, 1)


@pytest.mark.kafka
def test_the_output_knows_the_last_cut_of_each_sink_from_the_start(make: Make) -> None:
    first, second = ListSink(), ListSink("other", frozenset())
    outputs = make(first, second)
    assert outputs.open(WriterId("x", 1)) == []
    second.batches[cut_id(7)] = {}
    assert outputs.open(WriterId("x", 1)) == [cut_id(7)]


def test_one_lane_cannot_have_records_and_rows() -> None:
    orders = source(_EVENTS)
    with pytest.raises(ConfigError, match="is used for records and for rows"):
        Topology("both", orders.table("x"), orders.sink("x"))
