"""Stage 1: turns the raw records of a cut into shuffle blocks for the shards. Has no state, no clock of its own and no
order between tasks.

A task sees some of the cut's records, from any of its sources. It decodes them against the schema of their stream, lets
the app's stateless stage transform them, gives the rows to the shards that own them, copies control records and the
progress of the source partitions to every shard, and sends undecodable records to the lane of rejected records with the
reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from streamcore.app import CONTROL, App, EventTime
from streamcore.decode.types import Decoded, RawBatch
from streamcore.engine.shuffle import (
    BlockKind,
    ShardMetrics,
    ShuffleBlock,
    pack_control,
    pack_metrics,
    pack_partitions,
    pack_progress,
    pack_records,
    pack_rows,
)
from streamcore.kernel import ControlRecord, KernelOutput, StatelessStage, StreamKey
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import EVENT_MS, PARTITION, StreamSchema
from streamcore.watermark import END_OF_TIME_MS, NO_WATERMARK, Progress, WatermarkStrategy
from streamcore.wire.arrow_ipc import to_table
from streamcore.wire.lanes import DEAD_LETTERS, Record
from streamcore.wire.raw import RAW_KEY, RAW_VALUE


class Ingest:
    """Stage 1 of an app, for one task. ``process`` turns the batches of a cut into shuffle blocks."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.decoders = [source.decoder(app.limits) for source in app.sources]
        self.head: StatelessStage = app.stateless_stage() if app.stateless_stage is not None else KeyRouter(app.schemas)
        self.reset(0)

    def reset(self, clock_ms: int) -> None:
        """Begin a new cut: drop the remains of the previous one, and take its clock."""
        self.clock_ms = clock_ms
        self.control: list[ControlRecord] = []
        self.records: list[tuple[int, Record]] = []
        self.counted: Counter[str] = Counter()
        self.progress: dict[int, Progress] = {}
        self.events: list[list[pa.Table]] = [[] for _ in self.app.sources]
        self.held = 0

    def process(
        self, batches: Iterable[pa.RecordBatch], clock_ms: int, partitions: Mapping[int, int] | None = None
    ) -> Iterator[ShuffleBlock]:
        """Turn all batches of a task (``raw.RAW``) into shuffle blocks; holds at most ``Limits.flush_rows`` events and
        one batch.

        ``partitions``: the source partitions that there are and where the cut begins in each, from one task of the cut.
        """
        self.reset(clock_ms)
        for batch in batches:
            if batch.num_rows:
                self._add(batch)
            if self.held >= self.app.limits.flush_rows:
                yield from self._flush_events()
        yield from self.finish(partitions or {})

    def _add(self, batch: pa.RecordBatch) -> None:
        sources = batch.column("source")
        present = pc.unique(sources).to_pylist()
        for source in sorted(present):
            part = batch if len(present) == 1 else batch.filter(pc.equal(sources, source))
            if source == CONTROL:
                self._add_control(part)
            else:
                self._add_events(source, part)

    def _add_control(self, batch: pa.RecordBatch) -> None:
        columns = [batch.column(n).to_pylist() for n in ("partition", "offset", "key", "value")]
        self.control += [ControlRecord(*row) for row in zip(*columns, strict=True)]

    def _add_events(self, source: int, batch: pa.RecordBatch) -> None:
        numbers = pc.add(batch.column("partition"), pa.scalar(source * PARTITIONS_PER_TOPIC, pa.int32()))
        raw = RawBatch(
            values=batch.column("value"),
            partition=numbers,
            offset=batch.column("offset"),
            clock_ms=self.clock_ms,
        )
        decoded = self.decoders[source].decode(raw)
        if decoded.dead.num_rows:
            self._add_dead(source, batch, decoded.dead)
        if decoded.events.num_rows:
            events = self._with_event_time(source, batch, decoded)
            self._take(source, _with_records(events, batch, decoded) if self.app.sources[source].raw else events)

    def _with_event_time(self, source: int, batch: pa.RecordBatch, decoded: Decoded) -> pa.Table:
        """Return the events with the event time that the source asks for."""
        time = self.app.sources[source].time
        if time is EventTime.FIELD:
            return decoded.events
        if time is EventTime.PROCESSING:
            times = pa.repeat(pa.scalar(self.clock_ms, pa.int64()), decoded.events.num_rows)
        else:
            times = _alive(batch, decoded).column("timestamp_ms")
        return decoded.events.set_column(decoded.events.schema.get_field_index(EVENT_MS), EVENT_MS, times)

    def _take(self, source: int, events: pa.Table) -> None:
        self.events[source].append(events)
        self.held += events.num_rows
        for seen in measure_progress(events, self.app.watermark_for(source)):
            self.record_progress(seen)

    def record_progress(self, seen: Progress) -> None:
        """Merge the progress of a source partition into that of the cut."""
        before = self.progress.get(seen.partition)
        self.progress[seen.partition] = seen if before is None else _both(before, seen)

    def _add_dead(self, source: int, batch: pa.RecordBatch, dead: pa.Table) -> None:
        rows = batch.take(dead.column("row").combine_chunks())
        columns = [rows.column(n).to_pylist() for n in ("partition", "offset", "key", "value")]
        codes, reasons = dead.column("code").to_pylist(), dead.column("reason").to_pylist()
        topic = self.app.topics[source]
        for partition, offset, key, value, code, reason in zip(*columns, codes, reasons, strict=True):
            headers = (
                ("source_topic", topic.encode()),
                ("source_partition", b"%d" % partition),
                ("source_offset", b"%d" % offset),
                ("reason_code", code.encode()),
                ("reason", reason.encode()),
            )
            self.records.append((partition % self.app.shards, Record(DEAD_LETTERS, key, value, headers)))

    def _flush_events(self) -> Iterator[ShuffleBlock]:
        for source, tables in enumerate(self.events):
            if tables:
                table = pa.concat_tables(tables).combine_chunks()
                yield from self._apply_stateless_stage(source, table)
        self.events = [[] for _ in self.app.sources]
        self.held = 0

    def _apply_stateless_stage(self, source: int, table: pa.Table) -> Iterator[ShuffleBlock]:
        output = self.head.step(source, table, self.clock_ms)
        yield from self.pack(output.rows)
        shard = table.column(PARTITION)[0].as_py() % self.app.shards
        self.records += [(shard, record) for record in output.records]
        self.records += [(shard, record) for rows in output.lanes for record in rows.records()]
        self.counted.update(output.counters)

    def pack(self, rows: Mapping[StreamKey, pl.DataFrame | pa.Table]) -> Iterator[ShuffleBlock]:
        """Pack rows into a shuffle block for each exchange and shard."""
        for place, exchange in enumerate(self.app.exchanges):
            found = rows.get(exchange.rows)
            if found is not None and len(found):
                table = found if isinstance(found, pa.Table) else to_table(found)
                yield from pack_rows(exchange, BlockKind.ROWS + place, table, self.app.shards, self.clock_ms)

    def finish(self, partitions: Mapping[int, int]) -> Iterator[ShuffleBlock]:
        """Flush the rest of the cut. Progress goes to every shard, even when empty, so that each takes part."""
        yield from self._flush_events()
        copies = [(BlockKind.PROGRESS, pack_progress([*self.progress.values()]))]
        if partitions:
            copies.append((BlockKind.PARTITIONS, pack_partitions(partitions)))
        if self.control:
            copies.append((BlockKind.CONTROL, pack_control(self.control)))
        for shard in range(self.app.shards):
            for kind, blob in copies:
                yield ShuffleBlock(shard, kind, self.clock_ms, blob)
        for shard in sorted({s for s, _ in self.records}):
            blob = pack_records([r for s, r in self.records if s == shard], (self._first_partition(), 0))
            yield ShuffleBlock(shard, BlockKind.RECORDS, self.clock_ms, blob)
        if self.counted:
            blob = pack_metrics(ShardMetrics(counters=self.counted))
            yield ShuffleBlock(0, BlockKind.METRICS, self.clock_ms, blob)

    def _first_partition(self) -> int:
        """Return a number that identifies the task: no partition is read by two tasks."""
        return min(self.progress, default=-1)


def _alive(batch: pa.RecordBatch, decoded: Decoded) -> pa.RecordBatch:
    """Return the records that became events."""
    if not decoded.dead.num_rows:
        return batch
    alive = np.ones(batch.num_rows, dtype=bool)
    alive[decoded.dead.column("row").to_numpy()] = False
    return batch.filter(pa.array(alive))


def _with_records(events: pa.Table, batch: pa.RecordBatch, decoded: Decoded) -> pa.Table:
    """Return the events beside the bytes that they were decoded from."""
    records = _alive(batch, decoded)
    for name, column in ((RAW_KEY, "key"), (RAW_VALUE, "value")):
        events = events.append_column(name, records.column(column).cast(pa.large_binary()))
    return events


class KeyRouter:
    """A stateless stage that sends every event to an exchange for each key of its stream."""

    def __init__(self, schemas: Sequence[StreamSchema]) -> None:
        self.routes = [[StreamKey(schema.name, route) for route in range(len(schema.keys))] for schema in schemas]

    def step(self, source: int, events: pa.Table, clock_ms: int) -> KernelOutput:  # noqa: ARG002 - the protocol's signature
        return KernelOutput(rows=dict.fromkeys(self.routes[source], events))


def measure_progress(events: pa.Table, strategy: WatermarkStrategy) -> list[Progress]:
    """Measure the event-time progress of each partition in some events of one source."""
    latest = events.select([PARTITION, EVENT_MS]).group_by(PARTITION).aggregate([(EVENT_MS, "max"), ([], "count_all")])
    marks = _marks(events, strategy)
    return [
        Progress(partition, event_ms, count, marks.get(partition, event_ms - strategy.max_out_of_orderness_ms))
        for partition, event_ms, count in zip(*(latest.column(n).to_pylist() for n in range(3)), strict=True)
    ]


def _marks(events: pa.Table, strategy: WatermarkStrategy) -> dict[int, int]:
    """Return the watermark of each partition whose events carry it."""
    marks: dict[int, int] = {}
    if strategy.punctuation is not None:
        marks = dict.fromkeys(pc.unique(events.column(PARTITION)).to_pylist(), NO_WATERMARK)
        says = events.column(strategy.punctuation)
        times = pc.if_else(says, events.column(EVENT_MS), None) if pa.types.is_boolean(says.type) else says
        spoken = pa.table({PARTITION: events.column(PARTITION), "ms": times}).group_by(PARTITION)
        found = spoken.aggregate([("ms", "max")]).to_pydict()
        marks |= {n: ms for n, ms in zip(found[PARTITION], found["ms_max"], strict=True) if ms is not None}
    if strategy.end is not None:
        ended = events.filter(pc.fill_null(events.column(strategy.end), fill_value=False))
        marks |= dict.fromkeys(pc.unique(ended.column(PARTITION)).to_pylist(), END_OF_TIME_MS)
    return marks


def _both(one: Progress, other: Progress) -> Progress:
    return Progress(
        one.partition,
        max(one.max_event_ms, other.max_event_ms),
        one.events + other.events,
        max(one.watermark_ms, other.watermark_ms),
    )
