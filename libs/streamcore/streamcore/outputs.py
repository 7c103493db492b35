"""Where a cut's output goes: rows to the sinks, one after the other, then all records and the marker to Kafka.

A crash between two of them makes Spark run the cut again with the same output; whoever has it already says so by his
own ledger and writes nothing twice. Kafka comes last, so that rows which a sink refused are dead letters of the same
cut. Refuses to know Spark.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import orjson
import pyarrow as pa

from streamcore.app import App
from streamcore.errors import ConfigError
from streamcore.kafka.delivery import OutRecord, Receipt
from streamcore.kafka.exactly_once import ExactlyOnceWriter
from streamcore.lane_blobs import columns_from_ipc
from streamcore.lanes import DEAD_LETTERS, Headers
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
    """A cut that is out. ``lanes``: how many records or rows each lane got; ``reasons``: dead letters by their code."""

    receipt: Receipt
    lanes: Mapping[str, int]
    reasons: Mapping[str, int]
    sinks: Mapping[str, SinkReport]


@dataclass(slots=True)
class _Sorted:
    """The output of all shards, in their order."""

    records: list[OutRecord] = field(default_factory=list)
    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    lanes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)


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

    def commit(self, batch: int, blobs: Iterable[bytes]) -> Committed:
        """The output of a cut's shards (``lane_blobs.to_ipc``). When it returns, all is where it belongs, once."""
        output = self._sorted(blobs)
        reports: dict[str, SinkReport] = {}
        for sink in self.sinks:
            started = time.perf_counter()
            tables = {lane: pa.concat_tables(output.tables[lane]) for lane in sink.lanes & output.tables.keys()}
            written = sink.write(batch, tables)
            output.records += [self._dead_letter(sink, tables, one) for one in written.refused]
            output.lanes[DEAD_LETTERS] += len(written.refused)
            output.reasons.update(one.code for one in written.refused)
            reports[sink.name] = _report(sink, written, time.perf_counter() - started)
        receipt = self.writer.commit(batch, output.records)
        return Committed(receipt, dict(+output.lanes), dict(output.reasons), reports)

    def _sorted(self, blobs: Iterable[bytes]) -> _Sorted:
        topics, output = self.app.lanes, _Sorted()
        for blob in blobs:
            lanes, keys, values, headers = columns_from_ipc(blob)
            count = Counter(lanes)
            if unknown := count.keys() - topics.keys() - self.app.tables:
                raise ConfigError(f"app {self.app.name}: lane {min(unknown)} has no topic")
            if count[DEAD_LETTERS]:
                output.reasons.update(_codes(lanes, headers))
            if not self.app.tables.isdisjoint(count):
                self._take_tables(output, zip(lanes, keys, values, headers, strict=True))
                continue
            output.lanes.update(count)
            output.records += map(OutRecord, map(topics.__getitem__, lanes), keys, values, headers)
        return output

    def _take_tables(self, output: _Sorted, records: Iterable[tuple[str, bytes | None, bytes | None, Headers]]) -> None:
        for lane, key, value, headers in records:
            if lane in self.app.tables:
                table = pa.ipc.open_stream(pa.py_buffer(value)).read_all()
                output.tables.setdefault(lane, []).append(table)
                output.lanes[lane] += table.num_rows
            else:
                output.records.append(OutRecord(self.app.lanes[lane], key, value, headers))
                output.lanes[lane] += 1

    def _dead_letter(self, sink: Sink, tables: Mapping[str, pa.Table], refused: Refused) -> OutRecord:
        row = tables[refused.lane].slice(refused.row, 1).to_pylist()[0]
        headers = (
            ("sink", sink.name.encode()),
            ("lane", refused.lane.encode()),
            ("reason_code", refused.code.encode()),
            ("reason", refused.reason.encode()),
        )
        return OutRecord(self.app.lanes[DEAD_LETTERS], None, orjson.dumps(row, default=str), headers)


def _codes(lanes: Iterable[str], headers: Iterable[Headers]) -> Iterator[str]:
    """The reason codes of the dead letters among them."""
    for lane, of_record in zip(lanes, headers, strict=True):
        if lane == DEAD_LETTERS:
            yield dict(of_record).get("reason_code", b"unknown").decode("utf-8", "replace")


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
