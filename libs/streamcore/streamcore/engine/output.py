"""Commits the output of a cut: rows to the sinks, one after the other, then all records and the marker to Kafka.

After a crash in between, Spark runs the cut again with equal output; each sink finds the batch in its own ledger and
writes nothing twice. Kafka comes last, so that the rows that a sink rejects become dead letters of this cut. This
module does not import Spark.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import orjson
import pyarrow as pa

from streamcore.app import App
from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.engine.merged_lanes import merge_rows, read_rows
from streamcore.errors import ConfigError
from streamcore.kafka.delivery import CommitOutcome, CommitReceipt, OutRecord, OutRecords
from streamcore.kafka.exactly_once import ExactlyOnceWriter
from streamcore.sinks.sink import RejectedRow, Sink, WriteOutcome, WriteResult
from streamcore.wire.lane_codec import LaneRecords, group_by_lane
from streamcore.wire.lanes import DEAD_LETTERS, DeadLetterCode

_NO_CODE = DeadLetterCode.NO_CODE.encode()


@dataclass(frozen=True, slots=True)
class SinkReport:
    """The result of one sink for a cut. ``rejected``: number of rejected rows. ``ms``: duration of the write."""

    result: WriteOutcome
    guarantee: str
    rows: int
    rejected: int
    ms: int


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The result of a committed cut. ``lanes``: number of records or rows of each lane. ``reasons``: number of dead
    letters by their code."""

    receipt: CommitReceipt
    lanes: Mapping[str, int]
    reasons: Mapping[str, int]
    sinks: Mapping[str, SinkReport]

    @property
    def outcome(self) -> CommitOutcome:
        """The result of the whole cut: that of Kafka, unless it got no record; then that of the sinks."""
        results = {sink.result for sink in self.sinks.values()}
        if self.receipt.outcome is CommitOutcome.EMPTY and WriteOutcome.COMMITTED in results:
            return CommitOutcome.COMMITTED
        if self.receipt.outcome is CommitOutcome.EMPTY and WriteOutcome.SKIPPED in results:
            return CommitOutcome.SKIPPED
        return self.receipt.outcome


@dataclass(slots=True)
class _CutOutput:
    """The output of all shards, in order of the shards: Kafka records, and tables by lane, with their counts."""

    records: list[OutRecord | OutRecords] = field(default_factory=list)
    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    lanes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)


class OutputCommitter:
    """Commits the output of one running app. The caller opens and closes the Kafka writer; ``open`` and ``close`` are
    for the sinks."""

    def __init__(self, app: App, writer: ExactlyOnceWriter, sinks: Sequence[Sink] = ()) -> None:
        self.app = app
        self.writer = writer
        self.sinks = tuple(sinks)
        _check(app, self.sinks)

    def open(self, owner: WriterId) -> list[CutId]:
        """Open every sink. Return the last cut that each of them has written in this epoch, if any.

        If a sink raises, all are closed again and the error is raised.
        """
        try:
            written = [sink.open(owner) for sink in self.sinks]
            return [cut for cut in written if cut is not None]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close every sink."""
        for sink in self.sinks:
            sink.close()

    def commit(
        self, cut: CutId, blobs: Iterable[bytes | pa.Buffer], enter: Callable[[str], None] = lambda _: None
    ) -> CommitResult:
        """Write the output of a cut to sinks and topics. On return, all of it is written exactly once, as far as the
        guarantee of each sink goes.

        ``blobs``: the output of each shard, in order of the shards (``lane_codec.encode_records``). ``enter`` is called
        with the name of each phase when it begins. Raises the errors of ``Sink.write`` and
        ``ExactlyOnceWriter.commit``.
        """
        output = self._collect_output(blobs)
        reports: dict[str, SinkReport] = {}
        for sink in self.sinks:
            enter(f"output to {sink.name}")
            started = time.perf_counter()
            tables = {lane: pa.concat_tables(output.tables[lane]) for lane in sink.lanes & output.tables.keys()}
            written = sink.write(cut, tables)
            output.records += [self._dead_letter(sink, tables, rejected) for rejected in written.rejected]
            output.lanes[DEAD_LETTERS] += len(written.rejected)
            output.reasons.update(rejected.code for rejected in written.rejected)
            reports[sink.name] = _report(sink, written, time.perf_counter() - started)
        enter("output to Kafka")
        receipt = self.writer.commit(cut, output.records)
        return CommitResult(receipt, dict(+output.lanes), dict(output.reasons), reports)

    def _collect_output(self, blobs: Iterable[bytes | pa.Buffer]) -> _CutOutput:
        """Decode the blobs into Kafka records and tables, merge the parts of several shards, and count all of them."""
        output = _CutOutput()
        parts: dict[str, list[pa.Table]] = {}
        for records in (records for blob in blobs for records in group_by_lane(blob)):
            if records.lane in self.app.merges:
                parts.setdefault(records.lane, []).extend(read_rows(records.values))
            elif records.lane in self.app.tables:
                self._add_tables(output, records.lane, records.values)
            else:
                output.records += self._to_kafka_records(records)
                output.lanes[records.lane] += len(records.values)
                if records.lane == DEAD_LETTERS:
                    output.reasons.update(_codes(records))
        for record in merge_rows(self.app, parts):
            if record.lane in self.app.tables:
                self._add_tables(output, record.lane, [record.value])
                continue
            output.records.append(OutRecord(self._topic(record.lane), record.key, record.value, record.headers))
            output.lanes[record.lane] += 1
        return output

    def _to_kafka_records(self, records: LaneRecords) -> Iterable[OutRecord | OutRecords]:
        """Address the records to the lane's topic. Only records with headers become objects, one each."""
        topic = self._topic(records.lane)
        if not records.headers:
            return [OutRecords(topic, records.keys, records.values)]
        return map(OutRecord, repeat(topic), records.keys, records.values, records.headers)

    def _topic(self, lane: str) -> str:
        """Return the topic of a lane."""
        topic = self.app.lanes.get(lane)
        if topic is None:
            raise ConfigError(f"app {self.app.name}: lane {lane} has no topic")
        return topic

    def _add_tables(self, output: _CutOutput, lane: str, values: Iterable[bytes | None]) -> None:
        """Decode the rows of a lane that ends in a sink."""
        for table in read_rows(values):
            output.tables.setdefault(lane, []).append(table)
            output.lanes[lane] += table.num_rows

    def _dead_letter(self, sink: Sink, tables: Mapping[str, pa.Table], rejected: RejectedRow) -> OutRecord:
        """Return the dead letter of a row that a sink rejected: the row as JSON, with the reason in its headers."""
        row = tables[rejected.lane].slice(rejected.row, 1).to_pylist()[0]
        headers = (
            ("sink", sink.name.encode()),
            ("lane", rejected.lane.encode()),
            ("reason_code", rejected.code.encode()),
            ("reason", rejected.reason.encode()),
        )
        return OutRecord(self.app.lanes[DEAD_LETTERS], None, orjson.dumps(row, default=str), headers)


def _codes(dead: LaneRecords) -> Iterable[str]:
    """Yield the reason code of each dead letter."""
    if not dead.headers:
        return repeat(_NO_CODE.decode(), len(dead.values))
    return (dict(headers).get("reason_code", _NO_CODE).decode("utf-8", "replace") for headers in dead.headers)


def _report(sink: Sink, written: WriteResult, seconds: float) -> SinkReport:
    return SinkReport(written.outcome, sink.guarantee.value, written.rows, len(written.rejected), round(seconds * 1000))


def _check(app: App, sinks: Sequence[Sink]) -> None:
    """Raise ``ConfigError`` unless each lane with rows ends in a sink, and each sink takes lanes of this app."""
    names = Counter(sink.name for sink in sinks)
    if twice := [name for name, count in names.items() if count > 1]:
        raise ConfigError(f"app {app.name}: two sinks are named {twice[0]!r}")
    taken = {lane for sink in sinks for lane in sink.lanes}
    if missing := sorted(app.tables - taken):
        raise ConfigError(f"app {app.name}: no sink takes the rows of lane {missing[0]!r}")
    if unknown := sorted(taken - app.tables):
        raise ConfigError(f"app {app.name}: a sink wants lane {unknown[0]!r}; lanes with rows are {sorted(app.tables)}")
