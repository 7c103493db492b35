"""Where a cut's output goes: rows to the sinks, one after the other, then all records and the marker to Kafka.

A crash between two of them makes Spark run the cut again with the same output; whoever has it already says so by his
own ledger and writes nothing twice. Kafka comes last, so that rows which a sink refused are dead letters of the same
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
from streamcore.kafka.delivery import OutRecord, OutRecords, Receipt
from streamcore.kafka.exactly_once import ExactlyOnceWriter
from streamcore.lane_blobs import LaneRecords, by_lane
from streamcore.lanes import DEAD_LETTERS
from streamcore.sinks.sink import Refused, Result, Sink, Written
from streamcore.writer import WriterId


@dataclass(frozen=True, slots=True)
class SinkReport:
    """What a sink did with a cut; ``ms``: how long that took."""

    result: Result
    guarantee: str
    rows: int
    refused: int
    ms: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A cut that is out. ``lanes``: how many records or rows each lane got."""

    receipt: Receipt
    lanes: Mapping[str, int]
    sinks: Mapping[str, SinkReport]


@dataclass(slots=True)
class _Sorted:
    """The output of all shards, in their order."""

    records: list[OutRecord | OutRecords] = field(default_factory=list)
    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    lanes: Counter[str] = field(default_factory=Counter)


class Outputs:
    """Of one running app. The Kafka writer is opened by who made it; ``open`` and ``close`` are for the sinks."""

    def __init__(self, app: App, writer: ExactlyOnceWriter, sinks: Sequence[Sink] = ()) -> None:
        self.app = app
        self.writer = writer
        self.sinks = tuple(sinks)
        _check(app, self.sinks)

    def open(self, owner: WriterId) -> int | None:
        """Open every sink, or none: ``ConfigError`` of the first that cannot hold what it would promise. The last batch
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

    def commit(self, batch: int, blobs: Iterable[bytes | pa.Buffer]) -> Committed:
        """The output of a cut's shards (``lane_blobs.to_ipc``). When it returns, all is where it belongs, once."""
        output = self._sorted(blobs)
        reports: dict[str, SinkReport] = {}
        for sink in self.sinks:
            started = time.perf_counter()
            tables = {lane: pa.concat_tables(output.tables[lane]) for lane in sink.lanes & output.tables.keys()}
            written = sink.write(batch, tables)
            output.records += [self._dead_letter(sink, tables, one) for one in written.refused]
            output.lanes[DEAD_LETTERS] += len(written.refused)
            reports[sink.name] = _report(sink, written, time.perf_counter() - started)
        return Committed(self.writer.commit(batch, output.records), dict(+output.lanes), reports)

    def _sorted(self, blobs: Iterable[bytes | pa.Buffer]) -> _Sorted:
        output = _Sorted()
        for some in (some for blob in blobs for some in by_lane(blob)):
            if some.lane in self.app.tables:
                self._take_tables(output, some)
            else:
                output.records += self._records(some)
                output.lanes[some.lane] += len(some.values)
        return output

    def _records(self, some: LaneRecords) -> Iterable[OutRecord | OutRecords]:
        """For the lane's topic; an object for each record only where there are headers."""
        topic = self.app.lanes.get(some.lane)
        if topic is None:
            raise ConfigError(f"app {self.app.name}: lane {some.lane} has no topic")
        if not some.headers:
            return [OutRecords(topic, some.keys, some.values)]
        return map(OutRecord, repeat(topic), some.keys, some.values, some.headers)

    def _take_tables(self, output: _Sorted, some: LaneRecords) -> None:
        for value in some.values:
            table = pa.ipc.open_stream(pa.py_buffer(value)).read_all()
            output.tables.setdefault(some.lane, []).append(table)
            output.lanes[some.lane] += table.num_rows

    def _dead_letter(self, sink: Sink, tables: Mapping[str, pa.Table], refused: Refused) -> OutRecord:
        row = tables[refused.lane].slice(refused.row, 1).to_pylist()[0]
        headers = (
            ("sink", sink.name.encode()),
            ("lane", refused.lane.encode()),
            ("reason_code", refused.code.encode()),
            ("reason", refused.reason.encode()),
        )
        return OutRecord(self.app.lanes[DEAD_LETTERS], None, orjson.dumps(row, default=str), headers)


def _report(sink: Sink, written: Written, seconds: float) -> SinkReport:
    return SinkReport(written.result, sink.guarantee.value, written.rows, len(written.refused), round(seconds * 1000))


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
