"""What a Python worker does for stages 1 and 2. Thin: it converts rows and calls the engine.

A worker process serves many tasks, one after the other. It keeps what it built (decoders, Kafka clients, shards with
their tables) in this module, so that a cut pays for its data and not for its set-up. What it keeps is never trusted: a
shard compares its memory with the stored head before it uses it, a client what it read with what it is asked for.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Row

from streamcore.app import App
from streamcore.ingest import Ingest
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.spans import SpanReader
from streamcore.lanes import to_ipc
from streamcore.packing import Parcel
from streamcore.planner import Share
from streamcore.shard import Shard, ShardOutput
from streamcore.spark.processor import PackedApp
from streamcore.state.blobs import BlobStore

_PARCEL_ARROW = pa.schema(
    [
        pa.field("shard", pa.int32()),
        pa.field("kind", pa.int32()),
        pa.field("clock_ms", pa.int64()),
        pa.field("blob", pa.binary()),
    ]
)

_ingests: dict[str, Ingest] = {}
_readers: dict[KafkaSettings, SpanReader] = {}
_shards: dict[tuple[str, int], Shard] = {}


def parcels(packed: PackedApp, kafka: KafkaSettings, share: Share) -> Iterator[pa.RecordBatch]:
    """Stage 1 of a task: its share of the cut to ``processor.PARCEL``."""
    ingest = _ingests.get(packed.identity)
    if ingest is None:
        ingest = _ingests[packed.identity] = Ingest(_open(packed))
    for parcel in ingest.run(_read(kafka, share), share.clock_ms, share.partitions):
        columns = [
            pa.array([parcel.shard], pa.int32()),
            pa.array([int(parcel.kind)], pa.int32()),
            pa.array([parcel.clock_ms], pa.int64()),
            pa.array([parcel.blob], pa.binary()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=_PARCEL_ARROW)


def _read(kafka: KafkaSettings, share: Share) -> Iterator[pa.RecordBatch]:
    """The records. After an error the client is given up: the next attempt begins with a new one."""
    if not share.spans:
        return
    reader = _readers.pop(kafka, None) or SpanReader(kafka)
    yield from reader.read(share.spans)
    _readers[kafka] = reader


def step(packed: PackedApp, number: int, rows: Iterable[Row], blobs: BlobStore) -> Row:
    """Stage 2 of a shard: its parcels of a cut to ``processor.OUTPUT``."""
    shard = _shards.get((packed.identity, number))
    if shard is None:
        shard = _shards[packed.identity, number] = Shard(_open(packed), number)
    return _to_row(shard.step([Parcel(r[0], r[1], r[2], bytes(r[3])) for r in rows], blobs))


def _open(packed: PackedApp) -> App:
    app = pickle.loads(packed.blob)  # noqa: S301 - our own driver wrote it
    assert isinstance(app, App), "an app was packed"
    return app


def _to_row(output: ShardOutput) -> Row:
    return Row(
        shard=output.shard,
        records=to_ipc(output.records) if output.records else b"",
        produced=len(output.records),
        events=output.events,
        watermark_ms=output.watermark_ms,
        clock_ms=output.clock_ms,
        state_bytes=output.state_bytes,
        loaded=output.loaded,
    )
