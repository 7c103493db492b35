"""Stage 1: turns the raw records of a cut into shuffle blocks for the shards. It has no state and no clock of its own,
and its tasks run in any order.

A task gets some of the cut's records, from any of the app's sources. It decodes them against the schema of their
stream, runs the app's stateless stage on them, and sends the rows to the shards that own them. It copies control
records and the progress of the source partitions to every shard, and sends undecodable records with the reason to the
``deadletters`` lane.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from streamcore.app import CONTROL, App, EventTime, Source, decode_limits
from streamcore.cuts.cut_clock import CutClock
from streamcore.decode.assembly import count_values
from streamcore.decode.reject_codes import RejectCode, TooManyBatchValues
from streamcore.decode.stream_selection import IGNORED, NO_STREAM, StreamSelection, TopicStream
from streamcore.decode.types import DEAD_SCHEMA, BesideValues, Decoded, RawBatch, dead_table
from streamcore.engine.block_kind import BlockKind
from streamcore.engine.projection import Projection, hashes_all
from streamcore.engine.shuffle import (
    ShardMetrics,
    ShuffleBlock,
    pack_control,
    pack_metrics,
    pack_partitions,
    pack_progress,
    pack_records,
    pack_rows,
)
from streamcore.kernel import FIRST_RECORD_MS, ControlRecord, KernelOutput, StatelessStage, StreamKey
from streamcore.keyed.runtime_context import close
from streamcore.offsets import FILES_PARTITION, PARTITIONS_PER_TOPIC
from streamcore.schema import EVENT_MS, PARTITION, StreamSchema
from streamcore.schema_registry.schemas import NO_REGISTRY, SchemaLookup
from streamcore.timestamps import MIN_MS, to_text
from streamcore.watermark import END_OF_TIME_MS, NO_WATERMARK, Progress, WatermarkStrategy
from streamcore.wire.arrow_ipc import to_table
from streamcore.wire.lanes import DEAD_LETTERS, SOURCE_HEADER, Record
from streamcore.wire.raw import RAW_KEY, RAW_VALUE, header_columns, header_rows


@dataclass(frozen=True, slots=True)
class _Held:
    """Events of one source until the next flush. ``sent``: as in ``Ingest._hold``."""

    events: pa.Table
    sent: frozenset[str] | None

    def narrow(
        self, rows: Mapping[StreamKey, pl.DataFrame | pa.Table], schema: StreamSchema
    ) -> Mapping[StreamKey, pl.DataFrame | pa.Table]:
        """Return the rows of a step without the fields that are not sent."""
        assert self.sent is not None, "some fields are left out"
        dropped = {*schema.names} - self.sent
        return {key: one.drop_columns([*dropped]) if one is self.events else one for key, one in rows.items()}


class Ingest:
    """Stage 1 of an app, for one task. ``process`` turns the batches of a cut into shuffle blocks."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.decoders = [source.decoder(app.limits) for source in app.sources]
        self.selections = {
            source: StreamSelection(
                [TopicStream(one.schema, one.format) for one in map(self._source, app.find_sources(source))],
                decode_limits(app.limits),
            )
            for source in app.selecting_sources
        }
        self.head: StatelessStage = app.stateless_stage() if app.stateless_stage is not None else KeyRouter(app.routes)
        self.reset(CutClock())

    def close(self) -> None:
        """Close the functions of the stateless stage, when the process drops this object."""
        close(self.head)

    def reset(self, clock: CutClock, schemas: SchemaLookup = NO_REGISTRY, projection: Projection | None = None) -> None:
        """Begin a new cut: drop the remains of the previous one, and take its times, schemas and fields."""
        self.clock, self.schemas, self.projection = clock, schemas, projection
        self.control: list[ControlRecord] = []
        self.records: list[tuple[int, Record]] = []
        self.counters: Counter[str] = Counter()
        self.progress: dict[int, Progress] = {}
        self.events: list[list[_Held]] = [[] for _ in self.app.sources]
        self.held_rows = self.held_values = 0
        self.packed: list[ShuffleBlock] = []

    def process(
        self,
        batches: Iterable[pa.RecordBatch],
        clock: CutClock,
        partitions: Mapping[int, int] | None = None,
        ended: Iterable[int] = (),
        schemas: SchemaLookup = NO_REGISTRY,
        projection: Projection | None = None,
    ) -> Iterator[ShuffleBlock]:
        """Turn all batches of a task (``raw.RAW``) into shuffle blocks; hold at most ``Limits.flush_rows`` events and
        one batch in memory.

        ``partitions``: all source partitions with the offset where the cut begins, ``ended``: those that the cut reads
        to their end; only one task of the cut gets them. ``schemas``: finds the schemas of a registry. ``projection``:
        the fields that become columns; None for all.
        """
        self.reset(clock, schemas, projection)
        for batch in batches:
            if batch.num_rows:
                self._add(batch)
            if self.held_rows >= self.app.limits.flush_rows:
                self._flush_events()
            yield from self.packed
            self.packed = []
        for partition in ended:
            self.record_progress(Progress(partition, NO_WATERMARK, 0, END_OF_TIME_MS))
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
        """Add the records of a topic. ``source``: the first one of the topic."""
        numbers = pc.add(batch.column("partition"), pa.scalar(source * PARTITIONS_PER_TOPIC, pa.int32()))
        self._note_first_records(numbers, batch.column("timestamp_ms"))
        raw = RawBatch(
            values=batch.column("value"),
            partition=numbers,
            offset=batch.column("offset"),
            clock_ms=self.clock.wall_ms,
            beside=_beside(batch, self.app.topics[source]),
            schemas=self.schemas,
        )
        if source not in self.selections:
            self._decode(source, batch, raw)
            return
        selected = self.selections[source].select(raw)
        if selected.dead.num_rows:
            self._add_dead(source, batch, selected.dead)
        for number, index in enumerate(self.app.find_sources(source)):
            rows = np.flatnonzero(selected.owner == number)
            if len(rows) == len(batch):
                self._decode(index, batch, raw)
            elif len(rows):
                self._decode(index, batch.take(pa.array(rows)), raw.take(pa.array(rows)))
        self._add_others(source, batch, np.flatnonzero(selected.owner == NO_STREAM))
        self._count_tombstones(source, int((selected.owner == IGNORED).sum()))

    def _add_others(self, source: int, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> None:
        """Count the records that belong to no stream, or add a dead letter for each."""
        if not len(rows):
            return
        if not any(self.app.sources[one].reject_other_records for one in self.app.find_sources(source)):
            self.counters[f"other_records.{self.app.topics[source]}"] += len(rows)
            return
        names = ", ".join(
            f"{s.schema.name} ({s.schema.when})" for s in map(self._source, self.app.find_sources(source))
        )
        reason = f"the record is an event of no stream of its topic: {names}"
        columns = [
            pa.array(rows, pa.uint32()),
            *(pa.array([text] * len(rows)) for text in (RejectCode.NO_STREAM, reason)),
        ]
        self._add_dead(source, batch, pa.Table.from_arrays(columns, schema=DEAD_SCHEMA))

    def _count_tombstones(self, source: int, count: int) -> None:
        if count:
            self.counters[f"tombstones.{self.app.topics[source]}"] += count

    def _source(self, index: int) -> Source:
        return self.app.sources[index]

    def _decode(self, source: int, batch: pa.RecordBatch, raw: RawBatch) -> None:
        """Decode the records of one stream."""
        fields = self._project(source)
        is_hashed = hashes_all(self.app, source)
        for part in self._decode_parts(source, batch, replace(raw, fields=None if is_hashed else fields)):
            self._take(source, *part, fields, is_hashed=is_hashed)

    def _decode_parts(
        self, source: int, batch: pa.RecordBatch, raw: RawBatch
    ) -> Iterator[tuple[pa.RecordBatch, RawBatch, Decoded]]:
        """Yield the decoded records, in halves, quarters and so on if they have too many values to be decoded at
        once."""
        try:
            decoded = self.decoders[source].decode(raw)
        except TooManyBatchValues:
            decoded = None
        if decoded is not None:
            yield batch, raw, decoded
            return
        self.counters[f"divided_batches.{self.app.topics[source]}"] += 1
        half, count = len(raw) // 2, len(raw)
        for begin, end in ((0, half), (half, count)):
            yield from self._decode_parts(
                source, batch.slice(begin, end - begin), raw.take(pa.array(range(begin, end), pa.int64()))
            )

    def _take(
        self,
        source: int,
        batch: pa.RecordBatch,
        raw: RawBatch,
        decoded: Decoded,
        fields: frozenset[str] | None,
        *,
        is_hashed: bool,
    ) -> None:
        """Take the decoded records of one stream."""
        if self.app.sources[source].time is EventTime.INGESTION:
            times = _decoded_records(batch, decoded).column("timestamp_ms")
            decoded = _without_wrong_times(decoded, times, raw.clock_ms + self.app.limits.max_future_ms)
        if decoded.dead.num_rows:
            self._add_dead(source, batch, decoded.dead)
        self._count_tombstones(source, len(decoded.ignored))
        if not decoded.events.num_rows:
            return
        events = self._with_event_time(source, batch, decoded)
        self._measure(source, events)
        if fields is not None and is_hashed:
            is_late = pc.less(events.column(EVENT_MS), self.projection.watermark_ms if self.projection else 0)
            self._hold(source, events.filter(is_late))
            self._hold(source, events.filter(pc.invert(is_late)), fields)
            return
        if fields is not None:
            events = self._decode_late(source, batch, replace(raw, fields=None), decoded, events)
        self._hold(source, _with_records(events, batch, decoded) if self.app.sources[source].raw else events)

    def _project(self, source: int) -> frozenset[str] | None:
        """Return the fields of a source's events that become columns; None for all."""
        if self.projection is None or self.app.sources[source].raw:
            return None
        return self.projection.project(self.app.schemas[source], self.app.watermark_for(source))

    def _decode_late(
        self, source: int, batch: pa.RecordBatch, raw: RawBatch, decoded: Decoded, events: pa.Table
    ) -> pa.Table:
        """Hold those of the events that are late with all their fields; return the others. ``raw``: the batch."""
        assert self.projection is not None, "some fields are left out"
        is_late = pc.less(events.column(EVENT_MS), self.projection.watermark_ms).to_numpy()
        if not is_late.any():
            return events
        late = pa.array(np.delete(np.arange(len(batch)), decoded.undecoded)[is_late])
        for part, _, whole in self._decode_parts(source, batch.take(late), raw.take(late)):
            self._hold(source, self._with_event_time(source, part, whole))
        return events.filter(pa.array(~is_late))

    def _note_first_records(self, numbers: pa.Array, timestamps_ms: pa.Array) -> None:
        """Keep the timestamp of the first record of each source partition that has one: of the first batch."""
        timed = pa.table({"n": numbers, "ms": timestamps_ms}).filter(pc.is_valid(timestamps_ms)).group_by("n")
        first = timed.aggregate([("ms", "min")]).to_pydict()
        for number, ms in zip(first["n"], first["ms_min"], strict=True):
            self.counters.setdefault(f"{FIRST_RECORD_MS}.{number}", ms)

    def _with_event_time(self, source: int, batch: pa.RecordBatch, decoded: Decoded) -> pa.Table:
        """Return the events with the event time of the source's kind (``EventTime``)."""
        time = self.app.sources[source].time
        if time is EventTime.FIELD:
            return decoded.events
        if time is EventTime.PROCESSING:
            times = pa.repeat(pa.scalar(self.clock.clock_ms, pa.int64()), decoded.events.num_rows)
        else:
            times = _decoded_records(batch, decoded).column("timestamp_ms")
        return decoded.events.set_column(decoded.events.schema.get_field_index(EVENT_MS), EVENT_MS, times)

    def _hold(self, source: int, events: pa.Table, sent: frozenset[str] | None = None) -> None:
        """Hold the events until the next flush. ``sent``: those of their fields that are sent; None: all."""
        if events.num_rows:
            self.events[source].append(_Held(events, sent))
            self.held_rows += events.num_rows
            self.held_values += sum(count_values(chunk) for column in events.columns for chunk in column.chunks)
            if self.held_values > self.app.limits.max_batch_values:
                self._flush_events()

    def _measure(self, source: int, events: pa.Table) -> None:
        """Record the progress of the partitions of some events."""
        for progress in measure_progress(events, self.app.watermark_for(source)):
            self.record_progress(progress)

    def record_progress(self, progress: Progress) -> None:
        """Merge the progress of a source partition into that of the cut."""
        before = self.progress.get(progress.partition)
        self.progress[progress.partition] = progress if before is None else _merge(before, progress)

    def _add_dead(self, source: int, batch: pa.RecordBatch, dead: pa.Table) -> None:
        """Add a dead letter for each undecodable record of the batch. ``dead``: their row, code and reason.

        It has the headers that the app reads, so that the record can be sent again as it was.
        """
        rows = batch.take(dead.column("row").combine_chunks())
        columns = [rows.column(n).to_pylist() for n in ("partition", "offset", "key", "value")]
        codes, reasons = dead.column("code").to_pylist(), dead.column("reason").to_pylist()
        topic, own = self.app.topics[source], list(header_rows(rows))
        for partition, offset, key, value, code, reason, read in zip(*columns, codes, reasons, own, strict=True):
            headers = (
                ("source_topic", topic.encode()),
                ("source_partition", b"%d" % partition),
                ("source_offset", b"%d" % offset),
                ("reason_code", code.encode()),
                ("reason", reason.encode()),
                *((SOURCE_HEADER + name, text) for name, text in read.items()),
            )
            self.records.append((partition % self.app.shards, Record(DEAD_LETTERS, key, value, headers)))

    def _flush_events(self) -> None:
        """Pack the held events into shuffle blocks, and drop the events."""
        for source, held in enumerate(self.events):
            by_columns: dict[tuple[object, ...], list[_Held]] = {}  # late events have more of them
            for one in held:
                by_columns.setdefault((one.sent, *one.events.column_names), []).append(one)
            for same in by_columns.values():
                events = pa.concat_tables([one.events for one in same]).combine_chunks()
                self.packed += self._apply_stateless_stage(source, _Held(events, same[0].sent))
        self.events = [[] for _ in self.app.sources]
        self.held_rows = self.held_values = 0

    def _apply_stateless_stage(self, source: int, held: _Held) -> Iterator[ShuffleBlock]:
        table = held.events
        output = self.head.step(source, table, self.clock.clock_ms)
        yield from self.pack(output.rows if held.sent is None else held.narrow(output.rows, self.app.schemas[source]))
        shard = table.column(PARTITION)[0].as_py() % self.app.shards
        self.records += [(shard, record) for record in output.records]
        self.records += [(shard, record) for rows in output.lanes for record in rows.records()]
        self.counters.update(output.counters)
        for progress in output.progress:
            self.record_progress(progress)

    def pack(self, rows: Mapping[StreamKey, pl.DataFrame | pa.Table]) -> Iterator[ShuffleBlock]:
        """Pack rows into a shuffle block for each exchange that is read, and shard."""
        for index, exchange in enumerate(self.app.exchanges):
            exchange_rows = rows.get(exchange.rows)
            if exchange_rows is not None and self.projection is not None and not self.projection.sends(exchange.rows):
                exchange_rows = self._late(exchange_rows) if exchange.rows.route == 0 else None
            if exchange_rows is not None and len(exchange_rows):
                table = exchange_rows if isinstance(exchange_rows, pa.Table) else to_table(exchange_rows)
                yield from pack_rows(exchange, BlockKind.ROWS + index, table, self.app.key_space, self.clock.clock_ms)

    def _late(self, rows: pl.DataFrame | pa.Table) -> pa.Table:
        """Return the events that are late for the cut: the first key brings them even if nothing reads it."""
        assert self.projection is not None, "without one all events are sent"
        table = rows if isinstance(rows, pa.Table) else to_table(rows)
        return table.filter(pc.less(table.column(EVENT_MS), self.projection.watermark_ms))

    def finish(self, partitions: Mapping[int, int]) -> Iterator[ShuffleBlock]:
        """Yield the remaining blocks of the cut. Every shard gets a progress block, even an empty one, so that every
        shard runs in every cut."""
        self._flush_events()
        yield from self.packed
        copies = [(BlockKind.PROGRESS, pack_progress([*self.progress.values()], self.clock.elapsed_ms))]
        if partitions:
            copies.append((BlockKind.PARTITIONS, pack_partitions(partitions)))
        if self.control:
            copies.append((BlockKind.CONTROL, pack_control(self.control)))
        for shard in range(self.app.shards):
            for kind, blob in copies:
                yield ShuffleBlock(shard, kind, self.clock.clock_ms, blob)
        for shard in sorted({s for s, _ in self.records}):
            blob = pack_records([r for s, r in self.records if s == shard], (self._first_partition(), 0))
            yield ShuffleBlock(shard, BlockKind.RECORDS, self.clock.clock_ms, blob)
        if self.counters:
            blob = pack_metrics(ShardMetrics(counters=self.counters))
            yield ShuffleBlock(0, BlockKind.METRICS, self.clock.clock_ms, blob)

    def _first_partition(self) -> int:
        """Return the lowest source partition with events in this task, by which the records of all tasks are ordered;
        no partition is read by two tasks."""
        return min(self.progress, default=-1)


def _beside(batch: pa.RecordBatch, topic: str) -> BesideValues:
    """Return what Kafka keeps of the records of a batch; nothing for rows of files, which are in batches of their
    own."""
    partitions = batch.column("partition")
    if partitions[0].as_py() == FILES_PARTITION:
        return BesideValues()
    return BesideValues(topic, partitions, batch.column("key"), batch.column("timestamp_ms"), header_columns(batch))


def _decoded_records(batch: pa.RecordBatch, decoded: Decoded) -> pa.RecordBatch:
    """Return the records that were decoded into events."""
    if not decoded.dead.num_rows and not decoded.ignored:
        return batch
    is_decoded = np.ones(batch.num_rows, dtype=bool)
    is_decoded[decoded.undecoded] = False
    return batch.filter(pa.array(is_decoded))


def _without_wrong_times(decoded: Decoded, times: pa.Array, latest_ms: int) -> Decoded:
    """Reject the events whose record has no timestamp that an event may have: a producer may set it to anything.

    ``times``: the timestamps of the records of the events. ``latest_ms``: the latest that is accepted.
    """
    count = decoded.events.num_rows + decoded.dead.num_rows + len(decoded.ignored)
    accepted = pc.and_(pc.greater_equal(times, MIN_MS), pc.less_equal(times, latest_ms)).fill_null(False)
    good = accepted.to_numpy(zero_copy_only=False)
    if good.all():
        return decoded
    rows = np.setdiff1d(np.arange(count), np.array(decoded.undecoded, np.int64))
    dead = []
    for at in np.flatnonzero(~good).tolist():
        ms = times[at].as_py()
        code = RejectCode.MISSING_FIELD if ms is None else RejectCode.OUT_OF_RANGE
        if ms is not None and ms > latest_ms:
            code = RejectCode.FROM_THE_FUTURE
        found = "the record has no timestamp" if ms is None else f"found the record's timestamp {to_text(ms)}"
        reason = f"event time: {found}; accepted is a time from 1970 to {to_text(latest_ms)}"
        dead.append((int(rows[at]), code.value, reason))
    rejected = pa.concat_tables([decoded.dead, dead_table(dead)]).sort_by("row")
    return Decoded(decoded.events.filter(accepted), rejected, decoded.ignored)


def _with_records(events: pa.Table, batch: pa.RecordBatch, decoded: Decoded) -> pa.Table:
    """Return the events with two more columns: key and value of the record that each was decoded from."""
    records = _decoded_records(batch, decoded)
    for name, column in ((RAW_KEY, "key"), (RAW_VALUE, "value")):
        events = events.append_column(name, records.column(column).cast(pa.large_binary()))
    return events


class KeyRouter:
    """The default stateless stage: sends every event to the exchanges of its source. ``routes``: ``App.routes``."""

    def __init__(self, routes: Sequence[Sequence[StreamKey]]) -> None:
        self.routes = routes

    def step(self, source: int, events: pa.Table, clock_ms: int) -> KernelOutput:  # noqa: ARG002 - the protocol's signature
        return KernelOutput(rows=dict.fromkeys(self.routes[source], events))


def measure_progress(events: pa.Table, strategy: WatermarkStrategy) -> list[Progress]:
    """Return the event-time progress of each partition in some events of one source."""
    latest = events.select([PARTITION, EVENT_MS]).group_by(PARTITION).aggregate([(EVENT_MS, "max"), ([], "count_all")])
    marks = _marks(events, strategy)
    return [
        Progress(partition, event_ms, count, marks.get(partition, event_ms - strategy.max_out_of_orderness_ms))
        for partition, event_ms, count in zip(*(latest.column(n).to_pylist() for n in range(3)), strict=True)
    ]


def _marks(events: pa.Table, strategy: WatermarkStrategy) -> dict[int, int]:
    """Return the watermark in milliseconds of each partition whose events carry one (``punctuation``, ``end``)."""
    marks: dict[int, int] = {}
    if strategy.punctuation is not None:
        marks = dict.fromkeys(pc.unique(events.column(PARTITION)).to_pylist(), NO_WATERMARK)
        punctuation = events.column(strategy.punctuation)
        is_flag = pa.types.is_boolean(punctuation.type)
        times = pc.if_else(punctuation, events.column(EVENT_MS), None) if is_flag else punctuation
        by_partition = pa.table({PARTITION: events.column(PARTITION), "ms": times}).group_by(PARTITION)
        latest = by_partition.aggregate([("ms", "max")]).to_pydict()
        marks |= {n: ms for n, ms in zip(latest[PARTITION], latest["ms_max"], strict=True) if ms is not None}
    if strategy.end is not None:
        ended = events.filter(pc.fill_null(events.column(strategy.end), fill_value=False))
        marks |= dict.fromkeys(pc.unique(ended.column(PARTITION)).to_pylist(), END_OF_TIME_MS)
    return marks


def _merge(one: Progress, other: Progress) -> Progress:
    """Return the progress of one partition over two sets of events."""
    return Progress(
        one.partition,
        max(one.max_event_ms, other.max_event_ms),
        one.events + other.events,
        max(one.watermark_ms, other.watermark_ms),
    )
