"""The code of a Python worker for stage 1 and the keyed stages. Thin: it converts rows and calls the engine.

A worker process serves many tasks, one after the other. It keeps decoders, Kafka clients and shards with their tables
in this module, so that a cut pays for its data and not for its set-up. Cached objects are never trusted: a shard
compares its memory with the stored head before it uses it, and a client compares its read position with the range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import orjson
import pyarrow as pa
from pyspark.sql import Row

from streamcore.app import App, EventTime
from streamcore.engine.ingest import Ingest
from streamcore.engine.planner import TaskAssignment
from streamcore.engine.shard import Shard, ShardOutput
from streamcore.engine.shuffle import ShuffleBlock
from streamcore.kafka.range_reader import RangeReader
from streamcore.kafka.settings import KafkaSettings
from streamcore.savepoint.initial_state import InitialBlobStore
from streamcore.spark.wire import PackedApp
from streamcore.state.blob_store import BlobStore
from streamcore.storage import ObjectStore
from streamcore.wire.lane_codec import encode_records

_BLOCK_SCHEMA_ARROW = pa.schema(
    [
        pa.field("shard", pa.int32()),
        pa.field("kind", pa.int32()),
        pa.field("clock_ms", pa.int64()),
        pa.field("blob", pa.binary()),
    ]
)

_ingests: dict[str, Ingest] = {}
_readers: dict[KafkaSettings, RangeReader] = {}
_shards: dict[tuple[str, int, int], Shard] = {}


def run_stage1(packed: PackedApp, kafka: KafkaSettings, assignment: TaskAssignment) -> Iterator[pa.RecordBatch]:
    """Run stage 1 of a task: turn its assignment into rows of ``wire.BLOCK_SCHEMA``."""
    ingest = _ingests.get(packed.identity)
    if ingest is None:
        ingest = _ingests[packed.identity] = Ingest(_new(packed))
    timestamps = any(source.time is EventTime.INGESTION for source in ingest.app.sources)
    batches = _read(kafka, assignment, timestamps=timestamps)
    for block in ingest.process(batches, assignment.clock_ms, dict(assignment.partitions)):
        columns = [
            pa.array([block.shard], pa.int32()),
            pa.array([int(block.kind)], pa.int32()),
            pa.array([block.clock_ms], pa.int64()),
            pa.array([block.blob], pa.binary()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=_BLOCK_SCHEMA_ARROW)


def _read(kafka: KafkaSettings, assignment: TaskAssignment, *, timestamps: bool) -> Iterator[pa.RecordBatch]:
    """Yield the records. After an error the client is given up: the next attempt begins with a new one."""
    if not assignment.ranges:
        return
    reader = _readers.pop(kafka, None) or RangeReader(kafka)
    yield from reader.read(assignment.ranges, timestamps=timestamps)
    _readers[kafka] = reader


def run_shard(
    packed: PackedApp, stage: int, number: int, rows: Iterable[Row], blobs: BlobStore, initial: ObjectStore | None
) -> Iterator[Row]:
    """Run a shard of a keyed stage: turn its blocks of a cut into those of the next stage or, in the last one, into
    ``wire.OUTPUT_SCHEMA``. ``initial``: as in ``stages.ShardProcessor``."""
    place = (packed.identity, stage, number)
    shard = _shards.get(place)
    if shard is None:
        shard = _shards[place] = Shard(_new(packed), number, stage)
    if initial is not None:
        blobs = InitialBlobStore(blobs, initial, stage, number)
    output = shard.step([ShuffleBlock(r[0], r[1], r[2], bytes(r[3])) for r in rows], blobs)
    if shard.last:
        yield _to_row(output)
        return
    for block in output.forward():
        yield Row(shard=block.shard, kind=int(block.kind), clock_ms=block.clock_ms, blob=block.blob)


def _new(packed: PackedApp) -> App:
    """Unpack the app, and drop the cached objects of the same app with other settings."""
    app = packed.unpack()
    for identity in [i for i, ingest in _ingests.items() if i != packed.identity and ingest.app.name == app.name]:
        del _ingests[identity]
    for place in [p for p, shard in _shards.items() if p[0] != packed.identity and shard.app.name == app.name]:
        del _shards[place]
    return app


def _to_row(output: ShardOutput) -> Row:
    produced = len(output.records) + sum(rows.rows.height for rows in output.lanes)
    return Row(
        shard=output.shard,
        records=encode_records(output.records, [rows.batch() for rows in output.lanes]) if produced else b"",
        produced=produced,
        events=output.events,
        watermark_ms=output.watermark_ms,
        # The same on every shard: the first one reports it.
        partitions=orjson.dumps([*output.partitions.items()] if output.shard == 0 else []).decode(),
        clock_ms=output.clock_ms,
        state_bytes=output.metrics.state_bytes,
        shards_loaded=output.metrics.loaded,
        counters=orjson.dumps(output.metrics.counters).decode(),
    )
