"""Stage 1: raw records of a cut to parcels for the shards. No state, no order between tasks, no clock of its own.

A task sees some of the cut's records, from any of its sources. It decodes them against the schema of their stream,
gives every valid event to the shard that owns it under each of the stream's keys, copies control records and the
progress of the source partitions to every shard, and sends what cannot be decoded to the dead letters with the
reason. Every input record ends in exactly one of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from streamcore.app import CONTROL, PARTITIONS_PER_TOPIC, App, Source
from streamcore.arrow import ipc_stream
from streamcore.decode import DecodeLimits, ExtraFields, JsonDecoder, RawBatch
from streamcore.hashing import hash_columns, shard_of
from streamcore.kernel import Control
from streamcore.lanes import DEAD_LETTERS, Record, to_ipc
from streamcore.packing import (
    Parcel,
    ParcelKind,
    events_kind,
    pack_control,
    pack_partitions,
    pack_progress,
)
from streamcore.schema import EVENT_MS, PARTITION
from streamcore.watermark import Progress


class Ingest:
    """Stage 1 of an app, for one task: ``add`` every batch, then take the ``parcels``."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.decoders = [_decoder(app, source) for source in app.sources]
        self._reset(0)

    def _reset(self, clock_ms: int) -> None:
        self.clock_ms = clock_ms
        self.control: list[Control] = []
        self.dead: list[tuple[int, Record]] = []
        self.progress: dict[int, Progress] = {}
        self.events: list[list[pa.Table]] = [[] for _ in self.app.sources]
        self.held = 0

    def run(self, batches: Iterable[pa.RecordBatch], clock_ms: int, partitions: Sequence[int] = ()) -> Iterator[Parcel]:
        """All batches of a task (``raw.RAW``) to parcels; holds at most ``Limits.flush_rows`` events and one batch.

        ``partitions``: the source partitions that there are, from one task of the cut.
        """
        self._reset(clock_ms)
        for batch in batches:
            if batch.num_rows:
                self._add(batch)
            if self.held >= self.app.limits.flush_rows:
                yield from self._flush_events()
        yield from self._flush_events()
        yield from self._rest(partitions)

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
        self.control += [Control(*row) for row in zip(*columns, strict=True)]

    def _add_events(self, source: int, batch: pa.RecordBatch) -> None:
        numbers = pc.add(batch.column("partition"), pa.scalar(source * PARTITIONS_PER_TOPIC, pa.int32()))
        raw = RawBatch(
            values=batch.column("value"),
            partition=numbers,
            offset=batch.column("offset"),
            clock_ms=self.clock_ms,
        )
        decoded = self.decoders[source].decode(raw)
        if decoded.events.num_rows:
            self.events[source].append(decoded.events)
            self.held += decoded.events.num_rows
            self._note_progress(decoded.events)
        if decoded.dead.num_rows:
            self._add_dead(source, batch, decoded.dead)

    def _note_progress(self, events: pa.Table) -> None:
        latest = (
            events.select([PARTITION, EVENT_MS]).group_by(PARTITION).aggregate([(EVENT_MS, "max"), ([], "count_all")])
        )
        for partition, event_ms, count in zip(*(latest.column(n).to_pylist() for n in range(3)), strict=True):
            before = self.progress.get(partition)
            self.progress[partition] = (
                Progress(partition, event_ms, count)
                if before is None
                else Progress(partition, max(event_ms, before.max_event_ms), count + before.events)
            )

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
            self.dead.append((partition % self.app.shards, Record(DEAD_LETTERS, key, value, headers)))

    def _flush_events(self) -> Iterator[Parcel]:
        for source, tables in enumerate(self.events):
            if tables:
                table = pa.concat_tables(tables).combine_chunks()
                for route, key in enumerate(self.app.schemas[source].keys):
                    yield from self._by_shard(table, events_kind(source, route), key)
        self.events = [[] for _ in self.app.sources]
        self.held = 0

    def _by_shard(self, table: pa.Table, kind: int, key: tuple[str, ...]) -> Iterator[Parcel]:
        columns = pl.DataFrame(table.select(key)).get_columns()
        shards = shard_of(hash_columns(columns, table.num_rows), self.app.shards)
        ordered = table.take(pa.array(np.argsort(shards.astype(np.int16), kind="stable")))
        ends = np.cumsum(np.bincount(shards, minlength=self.app.shards))
        start = 0
        for shard, end in enumerate(ends.tolist()):
            if end > start:
                yield Parcel(shard, kind, self.clock_ms, ipc_stream(ordered.slice(start, end - start)))
            start = end

    def _rest(self, partitions: Sequence[int]) -> Iterator[Parcel]:
        """Progress goes to every shard even when empty: it is what makes a shard take part in the cut."""
        copies = [(ParcelKind.PROGRESS, pack_progress([*self.progress.values()]))]
        if partitions:
            copies.append((ParcelKind.PARTITIONS, pack_partitions(partitions)))
        if self.control:
            copies.append((ParcelKind.CONTROL, pack_control(self.control)))
        for shard in range(self.app.shards):
            for kind, blob in copies:
                yield Parcel(shard, kind, self.clock_ms, blob)
        for shard in sorted({s for s, _ in self.dead}):
            yield Parcel(shard, ParcelKind.DEAD, self.clock_ms, to_ipc([r for s, r in self.dead if s == shard]))


def _decoder(app: App, source: Source) -> JsonDecoder:
    limits = DecodeLimits(max_record_bytes=app.limits.record_bytes, max_future_ms=app.limits.future_ms)
    extra = ExtraFields.REJECT if source.reject_extra_fields else ExtraFields.IGNORE
    return JsonDecoder(source.schema, limits=limits, extra_fields=extra)
