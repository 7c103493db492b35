"""An app in this process: the code that runs on Spark, without Spark and without Kafka.

For unit tests of kernels, for simulation and for trying rules on a laptop: the caller makes the cuts, so time and the
borders of a cut are whatever a test says they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streamcore.app import CONTROL, App
from streamcore.ingest import Ingest
from streamcore.lanes import Record
from streamcore.packing import Parcel
from streamcore.position import partitions_of
from streamcore.raw import raw_batch
from streamcore.shard import Shard, ShardOutput
from streamcore.state.blobs import MemoryBlobs


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One record as a broker would hand it over. ``source``: the topic's index in the app, or CONTROL."""

    source: int
    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int | None = None


@dataclass(slots=True)
class LocalApp:
    """Runs cuts one after the other. ``blobs`` is the durable state, by stage and shard: hand it to a new LocalApp to
    restart. ``outputs``: those of the last cut, stage by stage.

    ``partitions``: source partitions that the watermark waits for before they gave an event (``app.partitions_of``).
    ``ends``: the next offset of each source partition that gave one.
    """

    app: App
    blobs: dict[tuple[int, int], MemoryBlobs] = field(default_factory=dict)
    outputs: list[ShardOutput] = field(default_factory=list)
    shards: dict[tuple[int, int], Shard] = field(default_factory=dict)
    partitions: Sequence[int] = ()
    ends: dict[int, int] = field(default_factory=dict)

    def cut(self, records: Sequence[RawRecord], clock_ms: int, tasks: int = 1) -> list[Record]:
        """Run one cut, its records spread over so many stage-1 tasks; the output of all shards in shard order."""
        parcels: list[Parcel] = []
        for task in range(tasks):
            partitions = dict.fromkeys(self.partitions, 0) | self.ends if task == 0 else {}
            parcels += Ingest(self.app).run(_batches(records[task::tasks]), clock_ms, partitions)
        self._end(records)
        return [record for output in self.run(parcels) for record in output.all_records()]

    def _end(self, records: Sequence[RawRecord]) -> None:
        """Where the next cut begins in each source partition that has had a record."""
        for record in records:
            if record.source != CONTROL:
                number = partitions_of(record.source)[record.partition]
                self.ends[number] = max(self.ends.get(number, 0), record.offset + 1)

    def run(self, parcels: Sequence[Parcel]) -> list[ShardOutput]:
        """All keyed stages of one cut, from the parcels of stage 1."""
        self.outputs = []
        for stage in range(len(self.app.stages)):
            outputs = [self._step(stage, number, parcels) for number in range(self.app.shards)]
            parcels = [parcel for output in outputs for parcel in output.parcels]
            self.outputs += outputs
        return self.outputs

    def _step(self, stage: int, number: int, parcels: Iterable[Parcel]) -> ShardOutput:
        place = (stage, number)
        if place not in self.shards:
            self.shards[place] = Shard(self.app, number, stage)
        blobs = self.blobs.setdefault(place, MemoryBlobs())
        return self.shards[place].step([p for p in parcels if p.shard == number], blobs)


def control_record(offset: int, key: str, value: bytes | None) -> RawRecord:
    """A record of the control topic."""
    return RawRecord(CONTROL, 0, offset, value, key.encode())


def _batches(records: Sequence[RawRecord]) -> Iterable[pa.RecordBatch]:
    if records:
        yield raw_batch(
            np.array([r.source for r in records], np.int32),
            np.array([r.partition for r in records], np.int32),
            np.array([r.offset for r in records], np.int64),
            [r.key for r in records],
            [r.value for r in records],
            [r.timestamp_ms for r in records],
        )
