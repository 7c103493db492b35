"""Takes the savepoint of a query: its state after a batch, read and written by Spark's tasks.

That of the last keyed stage is read by Spark's ``statestore`` source, that of the others from their files
(``streamcore.state.cut_files``). The state of the last batches stays (``minBatchesToRetain``), so a savepoint reads a
committed batch and never the one in progress; nothing here changes the checkpoint. The rows of a shard lie in one
partition, so each task gets whole shards, lets the app's kernels read them and writes the live rows
(``streamcore.savepoint.state_files``).
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from streamcore.app import App
from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.checkpoint.epoch import read_epoch
from streamcore.errors import ConfigError
from streamcore.savepoint.create import SavepointPosition, write_manifest
from streamcore.savepoint.repository import Savepoint, SavepointRepository
from streamcore.savepoint.state_files import ShardReceipt, save_shard
from streamcore.spark.stages import state_variable
from streamcore.spark.wire import PackedApp, StageFolder
from streamcore.state.blob_store import MemoryBlobs
from streamcore.storage import ObjectStore, open_object_store
from streamcore.storage.location import for_spark

if TYPE_CHECKING:
    import pyarrow as pa

#: A shard's blobs come to a task in batches of so many rows: a blob may have megabytes.
_ROWS = "16"
_RECEIPT = "receipt binary"


@dataclass(frozen=True, slots=True)
class SavepointTarget:
    """A requested savepoint: its repository and name, and the batch and epoch whose state it has.

    ``settled``: False if a part of a later batch may be written.
    """

    savepoints: SavepointRepository
    name: str
    batch: int
    epoch: int
    settled: bool = True


def take_savepoint(session: SparkSession, app: App, root: CheckpointRoot, asked: SavepointTarget) -> Savepoint:
    """Take a savepoint of the state after a committed batch, by the steps of ``streamcore.savepoint.create``.

    An existing savepoint with this name, batch and epoch is returned as it is. Raises ``ConfigError`` if another
    savepoint has the name, or if Spark no longer has the batch, and the errors of the savepoints' storage.
    """
    found = asked.savepoints.find(asked.name)
    if found is not None and (found.manifest.batch, found.manifest.epoch) == (asked.batch, asked.epoch):
        return found
    bounds = root.offsets.read(asked.batch)
    if bounds is None or asked.batch not in root.committed_batches():
        raise ConfigError(f"checkpoint {root.path}: batch {asked.batch} does not exist; take a savepoint after a cut")
    root.check_stages(len(app.stages))
    streams = root.streams.in_force(asked.batch + 1)
    app = app.with_streams(streams)
    # 1. An empty folder, without files of an earlier attempt.
    folder = asked.savepoints.create(asked.name)
    # 2. Spark's tasks write the shards.
    receipts = _write_state(_reader_session(session), app, root, asked.batch, folder)
    # 3. With its manifest the savepoint exists.
    now_ms = time.time_ns() // 1_000_000
    moment = SavepointPosition(asked.epoch, asked.batch, bounds.end, now_ms, asked.settled, streams)
    return Savepoint(folder, write_manifest(folder, asked.name, app, moment, receipts))


def take_savepoint_of_stopped(
    session: SparkSession,
    app: App,
    root: CheckpointRoot,
    savepoints: SavepointRepository,
    name: str,
    *,
    accept_unsettled: bool,
) -> Savepoint:
    """Take a savepoint of an app that does not run. The caller holds its lease.

    Raises ``ConfigError`` if no batch is committed, or if a batch was begun and not finished. ``accept_unsettled``
    permits the latter; a restore may then write the output of that batch again.
    """
    batch = root.last_committed()
    if batch is None:
        raise ConfigError(f"checkpoint {root.path}: no batch is committed yet, so there is nothing to save")
    settled = root.offsets.read(batch + 1) is None
    if not settled and not accept_unsettled:
        raise ConfigError(
            f"checkpoint {root.path}: batch {batch + 1} was begun and not finished; settle it first by running this "
            "version of the app once more, or accept that what it wrote may be written again"
        )
    return take_savepoint(
        session, app, root, SavepointTarget(savepoints, name, batch, read_epoch(root.epoch_path), settled)
    )


def _reader_session(session: SparkSession) -> SparkSession:
    """Return a second session, with settings for few and large rows."""
    reading = session.newSession()
    reading.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", _ROWS)
    # A reader that loads a snapshot would report it to a coordinator, which exists only after a query has run.
    reading.conf.set("spark.sql.streaming.stateStore.coordinatorReportSnapshotUploadLag", "false")
    return reading


def _write_state(
    session: SparkSession, app: App, root: CheckpointRoot, batch: int, folder: ObjectStore
) -> list[ShardReceipt]:
    packed, last = PackedApp.pack(app), len(app.stages) - 1
    stages = [StageFolder.of(open_object_store(root.stages), stage, retained=0) for stage in range(last)]
    shards = session.range(app.shards)
    written = [
        shards.mapInArrow(_WriteFileShards(packed, stage, folder, files, batch), _RECEIPT)
        for stage, files in enumerate(stages)
    ]
    written.append(_read_blobs(session, root, batch, last).mapInArrow(_WriteShards(packed, last, folder), _RECEIPT))
    # Our own tasks wrote them.
    return [pickle.loads(bytes(row.receipt)) for frame in written for row in frame.collect()]  # noqa: S301


def _read_blobs(session: SparkSession, root: CheckpointRoot, batch: int, stage: int) -> DataFrame:
    """Return shard, name and content of the blobs in Spark's state store after a batch."""
    variable = state_variable(stage)
    reader = session.read.format("statestore").option("path", for_spark(root.spark)).option("batchId", batch)
    reader = reader.option("operatorId", _operators(session, root)[variable])
    rows = reader.option("stateVarName", variable).load()
    return rows.selectExpr("key.shard as shard", "user_map_key.name as name", "user_map_value.blob as blob")


def _operators(session: SparkSession, root: CheckpointRoot) -> Mapping[str, int]:
    """Return Spark's operator id of each state variable."""
    operator_ids: dict[str, int] = {}
    for row in session.read.format("state-metadata").load(for_spark(root.spark)).collect():
        for variable in json.loads(row.operatorProperties).get("stateVariables", []):
            operator_ids[variable["stateName"]] = row.operatorId
    return operator_ids


@dataclass(frozen=True, slots=True)
class _WriteShards:
    """The function for ``mapInArrow``: writes the blobs of some shards to files and yields a receipt for each shard."""

    app: PackedApp
    stage: int
    folder: ObjectStore

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        app = self.app.unpack()
        for shard, blobs in sorted(_by_shard(batches).items()):
            yield _to_receipt(save_shard(self.folder, app, self.stage, shard, blobs))


@dataclass(frozen=True, slots=True)
class _WriteFileShards:
    """The same for the shards of a stage whose state is in ``files``. The rows are numbers of shards."""

    app: PackedApp
    stage: int
    folder: ObjectStore
    files: StageFolder
    batch: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from streamcore.state.cut_files import CutFiles

        app = self.app.unpack()
        for shard in (number for rows in batches for number in rows.column(0).to_pylist()):
            blobs = CutFiles(self.files.shard(shard), self.batch)
            yield _to_receipt(save_shard(self.folder, app, self.stage, shard, blobs))


def _to_receipt(receipt: ShardReceipt) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(receipt)], pa.binary())], ["receipt"])


def _by_shard(batches: Iterable[pa.RecordBatch]) -> dict[int, MemoryBlobs]:
    blobs: dict[int, MemoryBlobs] = {}
    for batch in batches:
        for row in batch.to_pylist():
            blobs.setdefault(row["shard"], MemoryBlobs()).put(row["name"], row["blob"])
    return blobs
