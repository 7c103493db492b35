"""Where a cut's output goes: rows to the sinks, one after the other, then all records and the marker to Kafka.

A crash between two of them makes Spark run the cut again with the same output; each sink finds the batch in its own
ledger and writes nothing twice. Kafka comes last, so that rows which a sink refused are rejected records of the same
cut. Refuses to know Spark.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import orjson
import pyarrow as pa

from streamcore.app import App
from streamcore.errors import ConfigError
from streamcore.kafka.delivery import CommitReceipt, OutRecord, OutRecords
from streamcore.kafka.exactly_once import ExactlyOnceWriter
from streamcore.sinks.sink import RejectedRow, Sink, WriteOutcome, WriteResult
from streamcore.wire.lane_codec import LaneRecords, group_by_lane
from streamcore.wire.lanes import DEAD_LETTERS, DeadLetterCode
from streamcore.writer_id import WriterId

_UNKNOWN = DeadLetterCode.UNKNOWN.encode()


@dataclass(frozen=True, slots=True)
class SinkReport:
    """The result of one sink for a cut; ``ms``: its duration."""

    result: WriteOutcome
    guarantee: str
    rows: int
    refused: int
    ms: int


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The result of a committed cut. ``lanes``: how many records or rows each lane got; ``reasons``: rejected records
    by their code."""

    receipt: CommitReceipt
    lanes: Mapping[str, int]
    reasons: Mapping[str, int]
    sinks: Mapping[str, SinkReport]


@dataclass(slots=True)
class _CutOutput:
    """The output of all shards, in their order."""

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

    def open(self, owner: WriterId) -> int | None:
        """Open every sink, or none: ``ConfigError`` of the first that cannot keep its promise. The last batch
        that one of them has, or None."""
        try:
            found = [sink.open(owner) for sink in self.sinks]
            return max((batch for batch in found if batch is not None), default=None)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close every sink."""
        for sink in self.sinks:
            sink.close()

    def commit(self, batch: int, blobs: Iterable[bytes | pa.Buffer]) -> CommitResult:
        """Return the output of a cut's shards (``lane_blobs.encode_records``). When it returns, all is where it
        belongs, once."""
        output = self._collect_output(blobs)
        reports: dict[str, SinkReport] = {}
        for sink in self.sinks:
            started = time.perf_counter()
            tables = {lane: pa.concat_tables(output.tables[lane]) for lane in sink.lanes & output.tables.keys()}
            written = sink.write(batch, tables)
            output.records += [self._dead_letter(sink, tables, one) for one in written.rejected]
            output.lanes[DEAD_LETTERS] += len(written.rejected)
            output.reasons.update(one.code for one in written.rejected)
            reports[sink.name] = _report(sink, written, time.perf_counter() - started)
        receipt = self.writer.commit(batch, output.records)
        return CommitResult(receipt, dict(+output.lanes), dict(output.reasons), reports)

    def _collect_output(self, blobs: Iterable[bytes | pa.Buffer]) -> _CutOutput:
        output = _CutOutput()
        for some in (some for blob in blobs for some in group_by_lane(blob)):
            if some.lane in self.app.tables:
                self._take_tables(output, some)
            else:
                output.records += self._records(some)
                output.lanes[some.lane] += len(some.values)
                if some.lane == DEAD_LETTERS:
                    output.reasons.update(_codes(some))
        return output

    def _records(self, some: LaneRecords) -> Iterable[OutRecord | OutRecords]:
        """For the lane's topic; an object for each record only where there are headers."""
        topic = self.app.lanes.get(some.lane)
        if topic is None:
            raise ConfigError(f"app {self.app.name}: lane {some.lane} has no topic")
        if not some.headers:
            return [OutRecords(topic, some.keys, some.values)]
        return map(OutRecord, repeat(topic), some.keys, some.values, some.headers)

    def _take_tables(self, output: _CutOutput, some: LaneRecords) -> None:
        for value in some.values:
            table = pa.ipc.open_stream(pa.py_buffer(value)).read_all()
            output.tables.setdefault(some.lane, []).append(table)
            output.lanes[some.lane] += table.num_rows

    def _dead_letter(self, sink: Sink, tables: Mapping[str, pa.Table], refused: RejectedRow) -> OutRecord:
        row = tables[refused.lane].slice(refused.row, 1).to_pylist()[0]
        headers = (
            ("sink", sink.name.encode()),
            ("lane", refused.lane.encode()),
            ("reason_code", refused.code.encode()),
            ("reason", refused.reason.encode()),
        )
        return OutRecord(self.app.lanes[DEAD_LETTERS], None, orjson.dumps(row, default=str), headers)


def _codes(dead: LaneRecords) -> Iterable[str]:
    """Yield the reason of each rejected record, as one word."""
    if not dead.headers:
        return repeat(_UNKNOWN.decode(), len(dead.values))
    return (dict(headers).get("reason_code", _UNKNOWN).decode("utf-8", "replace") for headers in dead.headers)


def _report(sink: Sink, written: WriteResult, seconds: float) -> SinkReport:
    return SinkReport(written.outcome, sink.guarantee.value, written.rows, len(written.rejected), round(seconds * 1000))


def _check(app: App, sinks: Sequence[Sink]) -> None:
    """Each lane with rows ends in one sink, and each sink has lanes of this app."""
    names = Counter(sink.name for sink in sinks)
    if twice := [name for name, count in names.items() if count > 1]:
        raise ConfigError(f"app {app.name}: two sinks are named {twice[0]!r}")
    taken = Counter(lane for sink in sinks for lane in sink.lanes)
    if missing := sorted(app.tables - taken.keys()):
        raise ConfigError(f"app {app.name}: no sink takes the rows of lane {missing[0]!r}")
    if unknown := sorted(taken.keys() - app.tables):
        raise ConfigError(f"app {app.name}: a sink wants lane {unknown[0]!r}; lanes with rows are {sorted(app.tables)}")
    if shared := [lane for lane, count in taken.items() if count > 1]:
        raise ConfigError(f"app {app.name}: two sinks take lane {shared[0]!r}; give each a lane of its own")
