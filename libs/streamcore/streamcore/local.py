"""An app in this process: the code that runs on Spark, without Spark and without Kafka.

For unit tests of kernels, for simulation and for trying rules on a laptop: the caller makes the cuts, so time and the
borders of a cut are whatever a test says they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from streamcore.app import CONTROL, HEARTBEAT, App
from streamcore.ingest import RAW, Ingest
from streamcore.lanes import Record
from streamcore.packing import Parcel
from streamcore.shard import Shard, ShardOutput
from streamcore.state.blobs import MemoryBlobs


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One record as a broker would hand it over. ``source``: the topic's index in the app, CONTROL or HEARTBEAT."""

    source: int
    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None
    ingest_ms: int = 0


@dataclass(slots=True)
class LocalApp:
    """Runs cuts one after the other. ``blobs`` is the durable state: hand it to a new LocalApp to restart."""

    app: App
    blobs: dict[int, MemoryBlobs] = field(default_factory=dict)
    outputs: list[ShardOutput] = field(default_factory=list)
    shards: dict[int, Shard] = field(default_factory=dict)

    def cut(self, records: Sequence[RawRecord], clock_ms: int, tasks: int = 1) -> list[Record]:
        """Run one cut, its records spread over so many stage-1 tasks; the output of all shards in shard order."""
        heartbeat = RawRecord(HEARTBEAT, 0, 0, None)
        parts = [[*records[t::tasks], heartbeat] if t == 0 else [*records[t::tasks]] for t in range(tasks)]
        parcels = [p for part in parts for p in Ingest(self.app).run(_batches(part, clock_ms))]
        self.outputs = [self._step(number, parcels) for number in range(self.app.shards)]
        return [record for output in self.outputs for record in output.records]

    def _step(self, number: int, parcels: Iterable[Parcel]) -> ShardOutput:
        shard = self.shards.setdefault(number, Shard(self.app, number))
        blobs = self.blobs.setdefault(number, MemoryBlobs())
        return shard.step([p for p in parcels if p.shard == number], blobs)


def control_record(offset: int, key: str, value: bytes | None) -> RawRecord:
    """A record of the control topic."""
    return RawRecord(CONTROL, 0, offset, value, key.encode())


def _batches(records: Sequence[RawRecord], clock_ms: int) -> Iterable[pa.RecordBatch]:
    if not records:
        return
    columns = [
        pa.array([r.source for r in records], pa.int32()),
        pa.array([r.partition for r in records], pa.int32()),
        pa.array([r.offset for r in records], pa.int64()),
        pa.array([r.ingest_ms for r in records], pa.int64()),
        pa.array([clock_ms] * len(records), pa.int64()),
        pa.array([r.key for r in records], pa.binary()),
        pa.array([r.value for r in records], pa.binary()),
    ]
    yield pa.RecordBatch.from_arrays(columns, schema=RAW)
