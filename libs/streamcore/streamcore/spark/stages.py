"""The functions that Spark calls for stage 1 and the keyed stages, and a shard's blobs in Spark's state store.

The last keyed stage is an operator of Spark's with state. The stages before it are functions on the shuffled blocks,
with their state in files of the checkpoint (``streamcore.state.cut_files``): a second operator of Spark's costs each
cut much (docs/decisions/20261127-stages-in-files.md).

When Spark plans the query, it also opens the processor in a separate process, to ask for its state variables. So this
module imports no heavy modules; ``streamcore.spark.worker`` does the work and is imported in workers only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from streamcore.spark.wire import ASSIGNMENTS_PROPERTY, BATCH_PROPERTY, PackedApp, StageFolder, decode_assignments

if TYPE_CHECKING:
    import pyarrow as pa

    from streamcore.kafka.settings import KafkaSettings
    from streamcore.schema_registry.store import SchemaStore
    from streamcore.storage import ObjectStore

_NAME = StructType([StructField("name", StringType())])
_BLOB = StructType([StructField("blob", BinaryType())])


@dataclass(frozen=True, slots=True)
class Stage1:
    """The function for ``mapInArrow``. It is a class because pickling a nested function would copy its module's
    globals.

    The input rows are placeholders; the task assignment is in the Spark job's property ``ASSIGNMENTS_PROPERTY``.
    ``schemas``: those of a registry, or None.
    """

    app: PackedApp
    kafka: KafkaSettings
    schemas: SchemaStore | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from streamcore.spark import worker  # heavy: loaded in workers only

        for _ in batches:
            pass
        context = TaskContext.get()
        assert context is not None, "called in a task"
        assignments = decode_assignments(context.getLocalProperty(ASSIGNMENTS_PROPERTY) or "")
        task = context.partitionId()
        if task >= len(assignments):
            return iter(())
        return worker.run_stage1(self.app, self.kafka, assignments[task], self.schemas)


@dataclass(frozen=True, slots=True)
class FileStage:
    """The function for ``mapInArrow`` of a keyed stage that is not the last. ``initial``: as in ``ShardProcessor``."""

    app: PackedApp
    stage: int
    folder: StageFolder
    initial: ObjectStore | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from streamcore.spark import worker  # heavy: loaded in workers only

        context = TaskContext.get()
        assert context is not None, "called in a task"
        batch = context.getLocalProperty(BATCH_PROPERTY)
        assert batch is not None, "the runner sets it for each batch"
        return worker.run_file_stage(self.app, self.stage, batches, self.folder, int(batch), self.initial)


def state_variable(stage: int) -> str:
    """Return the name of a stage's state variable in Spark's store. Operators are found by it, because Spark numbers
    them in its own order."""
    return f"blobs{stage}"


class _SparkBlobs:
    """A shard's blobs in Spark's state store. Every call is a round trip to the JVM."""

    def __init__(self, handle: StatefulProcessorHandle, stage: int) -> None:
        self.state = handle.getMapState(state_variable(stage), _NAME, _BLOB)

    def get(self, name: str) -> bytes | None:
        row = self.state.getValue((name,))
        return None if row is None else bytes(row[0])

    def put(self, name: str, blob: bytes) -> None:
        self.state.updateValue((name,), (blob,))

    def remove(self, name: str) -> None:
        self.state.removeKey((name,))


class ShardProcessor(StatefulProcessor):
    """The last keyed stage: each grouping key of ``transformWithState`` is one shard.

    ``initial``: folder with the state that the shards begin with (``streamcore.savepoint.initial_state``); None if they
    begin empty.
    """

    def __init__(self, app: PackedApp, stage: int, initial: ObjectStore | None = None) -> None:
        self.app = app
        self.stage = stage
        self.initial = initial

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.blobs = _SparkBlobs(handle, self.stage)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int, ...],
        rows: Iterator[Row],
        timerValues: object,  # noqa: ARG002, N803 - Spark's signature; our time is in the blocks
    ) -> Iterator[Row]:
        from streamcore.spark import worker  # heavy: loaded in workers only

        yield worker.run_shard(self.app, self.stage, int(key[0]), rows, self.blobs, self.initial)

    def close(self) -> None:
        """Do nothing: the worker keeps its shards for the next cut."""
