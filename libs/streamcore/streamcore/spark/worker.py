"""The code of a Python worker for stage 1 and the keyed stages: converts Spark's rows and calls the engine.

A worker process executes many tasks, one after the other. This module caches decoders, Kafka clients, and shards with
their tables, so that a cut need not create them. Cached state is verified before use: a shard compares its tables with
the stored head, and a client compares its read position with the start of the range.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator

import orjson
import pyarrow as pa
from pyspark.sql import Row

from streamcore.app import App
from streamcore.engine.ingest import Ingest
from streamcore.engine.planner import TaskAssignment
from streamcore.engine.projection import encode_reads
from streamcore.engine.shard import Shard, ShardOutput
from streamcore.engine.shuffle import ShuffleBlock
from streamcore.environment import EnvironmentVariable, Reader
from streamcore.files.reader import FileReader
from streamcore.kafka.range_reader import RangeReader
from streamcore.kafka.settings import KafkaSettings
from streamcore.memory.memory_use import MemoryReader
from streamcore.memory.memory_warning import MemoryWarning
from streamcore.offsets import FILES_PARTITION
from streamcore.savepoint.initial_state import InitialBlobStore
from streamcore.schema_registry.schemas import NO_REGISTRY
from streamcore.schema_registry.store import SchemaStore
from streamcore.schema_registry.waiting import StoredSchemas
from streamcore.spark.wire import PackedApp, StageFolder
from streamcore.state.blob_store import BlobStore
from streamcore.state.cut_files import CutFiles
from streamcore.storage import LocalObjectStore, ObjectStore
from streamcore.wire.lane_codec import encode_records

_BLOCK_SCHEMA_ARROW = pa.schema(
    [
        pa.field("shard", pa.int32()),
        pa.field("kind", pa.int32()),
        pa.field("clock_ms", pa.int64()),
        pa.field("blob", pa.binary()),
    ]
)

EXECUTOR = EnvironmentVariable(
    "SPARK_EXECUTOR_ID", "Number of the executor; Spark sets it in executor pods.", Reader.WORKER
)

_ingests: dict[str, Ingest] = {}
_readers: dict[KafkaSettings, RangeReader] = {}
_files = FileReader()
_shards: dict[tuple[str, int, int], Shard] = {}


def run_stage1(
    packed: PackedApp, kafka: KafkaSettings, assignment: TaskAssignment, store: SchemaStore | None = None
) -> Iterator[pa.RecordBatch]:
    """Run a task of stage 1: read its assignment from Kafka and yield rows of ``wire.BLOCK_SCHEMA``.

    ``store``: the schemas of a registry.
    """
    ingest = _ingests.get(packed.identity)
    if ingest is None:
        ingest = _ingests[packed.identity] = Ingest(_unpack_and_evict(packed))
    batches = itertools.chain(_read(kafka, ingest.app, assignment), _read_files(ingest.app, assignment))
    partitions = dict(assignment.partitions)
    pins = assignment.schemas
    schemas = NO_REGISTRY if store is None or pins is None else StoredSchemas(store, pins)
    for block in ingest.process(
        batches, assignment.clock, partitions, assignment.ended, schemas, assignment.projection
    ):
        yield _to_batch(block)


def _to_batch(block: ShuffleBlock) -> pa.RecordBatch:
    columns = [
        pa.array([block.shard], pa.int32()),
        pa.array([int(block.kind)], pa.int32()),
        pa.array([block.clock_ms], pa.int64()),
        pa.array([block.blob], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_BLOCK_SCHEMA_ARROW)


def _read(kafka: KafkaSettings, app: App, assignment: TaskAssignment) -> Iterator[pa.RecordBatch]:
    """Yield the records of the assignment. After an error the client is dropped, and the next attempt creates one."""
    if not assignment.ranges:
        return
    reader = _readers.pop(kafka, None) or RangeReader(kafka)
    yield from reader.read(assignment.ranges, timestamps=app.reads_timestamps, headers=app.headers)
    _readers[kafka] = reader


def _read_files(app: App, assignment: TaskAssignment) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files of the assignment."""
    for source, ranges in assignment.files:
        files = app.sources[source].files
        assert files is not None, "only streams with files have ranges of them"
        yield from _files.read(source, FILES_PARTITION, ranges, header=files.header)


def run_file_stage(
    packed: PackedApp,
    stage: int,
    batches: Iterable[pa.RecordBatch],
    folder: StageFolder,
    batch: int,
    initial: ObjectStore | None = None,
) -> Iterator[pa.RecordBatch]:
    """Run the shards of a task of a stage that is not the last, and yield the blocks for the next stages.

    ``batches``: rows of ``wire.BLOCK_SCHEMA``. ``batch``: the number of the batch. ``initial``: as in
    ``stages.ShardProcessor``.
    """
    blocks: dict[int, list[ShuffleBlock]] = defaultdict(list)
    for rows in batches:
        for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            blocks[row[0]].append(ShuffleBlock(*row))
    for number in sorted(blocks):
        files = CutFiles(folder.shard(number), after=batch - 1)
        shard = _find_shard(packed, stage, number, copies_logs=not isinstance(folder.store, LocalObjectStore))
        output = shard.step(blocks.pop(number), _with_initial(files, initial, shard))
        files.commit(folder.retained)
        yield from map(_to_batch, output.forward())


def run_shard(
    packed: PackedApp, stage: int, number: int, rows: Iterable[Row], blobs: BlobStore, initial: ObjectStore | None
) -> Row:
    """Run a shard of the last keyed stage on its blocks of a cut. Return a row of ``wire.OUTPUT_SCHEMA``.

    ``rows``: of ``wire.BLOCK_SCHEMA``. ``blobs``: the shard's stored state. ``initial``: as in
    ``stages.ShardProcessor``.
    """
    shard = _find_shard(packed, stage, number)
    blocks = [ShuffleBlock(r[0], r[1], r[2], bytes(r[3])) for r in rows]
    return _to_row(shard.step(blocks, _with_initial(blobs, initial, shard)))


def _find_shard(packed: PackedApp, stage: int, number: int, *, copies_logs: bool = True) -> Shard:
    key = (packed.identity, stage, number)
    shard = _shards.get(key)
    if shard is None:
        shard = _shards[key] = Shard(_unpack_and_evict(packed), number, stage, copies_logs=copies_logs)
    return shard


def _with_initial(blobs: BlobStore, initial: ObjectStore | None, shard: Shard) -> BlobStore:
    return blobs if initial is None else InitialBlobStore(blobs, initial, shard.app, shard.stage, shard.number)


def _unpack_and_evict(packed: PackedApp) -> App:
    """Unpack the app, and drop the cached objects of earlier versions of it: other pickles of an app of this name."""
    _watch_memory()
    app = packed.unpack()
    for identity in [i for i, ingest in _ingests.items() if i != packed.identity and ingest.app.name == app.name]:
        _ingests.pop(identity).close()
    for key in [k for k, shard in _shards.items() if k[0] != packed.identity and shard.app.name == app.name]:
        _shards.pop(key).close()
    return app


@functools.cache
def _watch_memory() -> None:
    """Watch the memory of the executor's container, once in a process. Without executors the driver does it."""
    if executor := os.environ.get(EXECUTOR):
        container = MemoryReader(pid=1)  # all processes of the container
        MemoryWarning(logging.getLogger(f"executor {executor}"), container.read).start()


def _to_row(output: ShardOutput) -> Row:
    produced = len(output.records) + sum(rows.rows.height for rows in output.lanes)
    return Row(
        shard=output.shard,
        records=encode_records(output.records, [rows.batch() for rows in output.lanes]) if produced else b"",
        produced=produced,
        events=output.events,
        watermark_ms=output.watermark_ms,
        # Every shard computes equal watermarks, so only shard 0 reports them.
        partitions=orjson.dumps(
            [[n, time.watermark_ms, time.max_event_ms] for n, time in output.partitions.items() if output.shard == 0]
        ).decode(),
        clock_ms=output.clock_ms,
        state_bytes=output.metrics.state_bytes,
        shards_loaded=output.metrics.loaded,
        counters=orjson.dumps(output.metrics.counters).decode(),
        # They are equal in all shards, so only shard 0 reports them.
        reads=encode_reads(output.reads),
        streams=orjson.dumps([[s.topic, s.document] for s in output.streams] if output.shard == 0 else []).decode(),
    )
