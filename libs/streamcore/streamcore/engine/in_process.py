"""Runs an app in this process, without Spark and without Kafka, with the code that runs on Spark.

For unit tests of kernels, for simulation and for trying rules on a laptop. The caller chooses the records and the clock
of each cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streamcore.app import CONTROL, App
from streamcore.cuts.cut_clock import CutClock
from streamcore.engine.ingest import Ingest
from streamcore.engine.merged_lanes import merge_records
from streamcore.engine.projection import Projection
from streamcore.engine.shard import Shard, ShardOutput
from streamcore.engine.shuffle import ShardMetrics, ShuffleBlock
from streamcore.errors import ConfigError, other_division
from streamcore.offsets import source_partitions
from streamcore.schema.published_document import PublishedDocument, merge_documents
from streamcore.schema_registry.schemas import NO_REGISTRY, SchemaLookup
from streamcore.state.blob_store import MemoryBlobs
from streamcore.wire.lanes import Record
from streamcore.wire.raw import raw_batch


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One record as a broker would hand it over. ``source``: the topic's index in the app, or CONTROL."""

    source: int
    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int | None = None
    headers: Mapping[str, bytes | None] = field(default_factory=dict)


@dataclass(slots=True)
class InProcessApp:
    """Runs cuts one after the other.

    ``blobs`` is the durable state, by stage and shard; pass it to a new ``InProcessApp`` to simulate a restart.
    ``outputs``: the output of each shard in the last cut, stage by stage. ``partitions``: numbers of source partitions
    (``offsets.source_partitions``) that hold back the watermark even before their first event. ``next_offsets``: the
    offset after the last record of each source partition. ``schemas``: finds the schemas of a registry. ``streams``:
    those that were published in earlier cuts; ``app`` has them. ``projection``: the fields of the next cut if it has
    no control records; None for all.
    """

    app: App
    blobs: dict[tuple[int, int], MemoryBlobs] = field(default_factory=dict)
    outputs: list[ShardOutput] = field(default_factory=list)
    shards: dict[tuple[int, int], Shard] = field(default_factory=dict)
    partitions: Sequence[int] = ()
    next_offsets: dict[int, int] = field(default_factory=dict)
    schemas: SchemaLookup = NO_REGISTRY
    streams: tuple[PublishedDocument, ...] = ()
    projection: Projection | None = None

    def __post_init__(self) -> None:
        """Raise ``ConfigError`` if ``blobs`` is the state of another number of shards or of more stages."""
        if self.streams:
            self.app = self.app.with_streams(self.streams)
        shards = {shard for _, shard in self.blobs}
        if shards and len(shards) != self.app.shards:
            raise ConfigError(
                f"the state of app {self.app.name}: {other_division('shards', len(shards), self.app.shards)}"
            )
        stages = {stage for stage, _ in self.blobs}
        if len(stages) > len(self.app.stages):
            raise ConfigError(
                f"the state of app {self.app.name}: it has {len(stages)} keyed stages, the app has "
                f"{len(self.app.stages)}; continue with the program that wrote it, or from a savepoint"
            )

    def cut(self, records: Sequence[RawRecord], clock_ms: int, tasks: int = 1) -> list[Record]:
        """Run one cut, with its records spread over ``tasks`` tasks of stage 1. Return the output in shard order."""
        return self.cut_at(records, CutClock.at(clock_ms), tasks)

    def cut_at(
        self, records: Sequence[RawRecord], clock: CutClock, tasks: int = 1, ended: Iterable[int] = ()
    ) -> list[Record]:
        """Run one cut as ``cut`` does, with all its times. ``ended``: source partitions that have no more records."""
        blocks: list[ShuffleBlock] = []
        changes = [r for r in records if r.source == CONTROL and not (r.key or b"").startswith(self.app.data_keys)]
        projection = None if changes else self.projection
        for task in range(tasks):
            partitions = dict.fromkeys(self.partitions, 0) | self.next_offsets if task == 0 else {}
            batches = _batches(self.app, records[task::tasks])
            blocks += Ingest(self.app).process(
                batches, clock, partitions, ended if task == 0 else (), self.schemas, projection
            )
        self._advance_offsets(records)
        output = merge_records(self.app, (record for output in self.run(blocks) for record in output.all_records()))
        last = [output for output in self.outputs if output.stage + 1 == len(self.app.stages)]
        counters = sum((one.metrics for one in self.outputs), ShardMetrics()).counters
        reads = (one.reads for one in last)
        self.projection = Projection.of_next_cut(self.app, reads, last[0].watermark_ms, counters)
        self._take_streams(self.outputs[-1].streams)
        return output

    def _take_streams(self, published: Sequence[PublishedDocument]) -> None:
        """Give the app the streams that the cut has published, for the next one. The shards load their state anew."""
        if published:
            self.streams = merge_documents(self.streams, published)
            self.app = self.app.with_streams(self.streams)
            self.shards.clear()
            self.projection = None

    def _advance_offsets(self, records: Sequence[RawRecord]) -> None:
        """Record the offset at which the next cut begins, for each source partition in ``records``."""
        for record in records:
            if record.source != CONTROL:
                number = source_partitions(record.source)[record.partition]
                self.next_offsets[number] = max(self.next_offsets.get(number, 0), record.offset + 1)

    def run(self, blocks: Sequence[ShuffleBlock]) -> list[ShardOutput]:
        """Run all keyed stages of one cut on the blocks of stage 1."""
        self.outputs = []
        for stage in range(len(self.app.stages)):
            outputs = [self._step(stage, number, blocks) for number in range(self.app.shards)]
            blocks = [block for output in outputs for block in output.blocks]
            self.outputs += outputs
        return self.outputs

    def _step(self, stage: int, number: int, blocks: Iterable[ShuffleBlock]) -> ShardOutput:
        key = (stage, number)
        if key not in self.shards:
            self.shards[key] = Shard(self.app, number, stage)
        blobs = self.blobs.setdefault(key, MemoryBlobs())
        return self.shards[key].step([block for block in blocks if block.shard == number], blobs)


def control_record(offset: int, key: str, value: bytes | None) -> RawRecord:
    """Return a record of the control topic."""
    return RawRecord(CONTROL, 0, offset, value, key.encode())


def _batches(app: App, records: Sequence[RawRecord]) -> Iterable[pa.RecordBatch]:
    if records:
        yield raw_batch(
            np.array([r.source for r in records], np.int32),
            np.array([r.partition for r in records], np.int32),
            np.array([r.offset for r in records], np.int64),
            [r.key for r in records],
            [r.value for r in records],
            [r.timestamp_ms for r in records],
            {name: [r.headers.get(name) for r in records] for name in app.headers},
        )
