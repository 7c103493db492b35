"""The stages as Spark calls them: what is pickled, the rows that cross the JVM, and a shard's blobs there.

Spark also opens the processor in a process of its own when it plans, only to ask for its state variables. So this
module imports nothing heavy; the work is in ``streamcore.spark.work``, imported where it is done.
"""

from __future__ import annotations

import base64
import hashlib
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext, cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from streamcore.app import App
    from streamcore.kafka.settings import KafkaSettings
    from streamcore.planner import Share
    from streamcore.storage import Folder

#: The job's property with the shares of its tasks.
CUT = "streamcore.cut"

PARCEL = StructType(
    [
        StructField("shard", IntegerType()),
        StructField("kind", IntegerType()),
        StructField("clock_ms", LongType()),
        StructField("blob", BinaryType()),
    ]
)
OUTPUT = StructType(
    [
        StructField("shard", IntegerType()),
        StructField("records", BinaryType()),
        StructField("produced", LongType()),
        StructField("events", LongType()),
        StructField("watermark_ms", LongType()),
        StructField("partitions", StringType()),
        StructField("clock_ms", LongType()),
        StructField("state_bytes", LongType()),
        StructField("loaded", IntegerType()),
        StructField("counted", StringType()),
    ]
)
_NAME = StructType([StructField("name", StringType())])
_BLOB = StructType([StructField("blob", BinaryType())])


@dataclass(frozen=True, slots=True)
class PackedApp:
    """An app that nobody has to open before it is needed. ``identity``: the same for equal apps."""

    blob: bytes
    identity: str

    @classmethod
    def of(cls, app: App) -> PackedApp:
        """Pack."""
        # An app may hold functions that its author wrote beside it.
        blob = cloudpickle.dumps(app)  # type: ignore[no-untyped-call]
        return cls(blob, hashlib.blake2b(blob, digest_size=8).hexdigest())


@dataclass(frozen=True, slots=True)
class Stage1:
    """The function for ``mapInArrow``. A class: a nested function would take copies of its module's globals along.

    Its input says nothing; the task's share of the cut is in the job's property ``CUT``, as ``pack_shares`` wrote it.
    """

    app: PackedApp
    kafka: KafkaSettings

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from streamcore.spark import work

        for _ in batches:
            pass
        context = TaskContext.get()
        assert context is not None, "called in a task"
        shares = pickle.loads(base64.b64decode(context.getLocalProperty(CUT) or ""))  # noqa: S301 - our driver wrote it
        task = context.partitionId()
        return work.parcels(self.app, self.kafka, shares[task]) if task < len(shares) else iter(())


def pack_shares(shares: Sequence[Share]) -> str:
    """The value of ``CUT``."""
    return base64.b64encode(pickle.dumps([*shares])).decode()


def state_variable(stage: int) -> str:
    """What a stage's state is called in Spark's store, whose numbers of operators follow an order of its own."""
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
    """A keyed stage: one grouping key of ``transformWithState`` is one shard.

    ``initial``: where shards find what they begin with (``streamcore.savepoint.initial``), None where with nothing.
    """

    def __init__(self, app: PackedApp, stage: int, initial: Folder | None = None) -> None:
        self.app = app
        self.stage = stage
        self.initial = initial

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.blobs = _SparkBlobs(handle, self.stage)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int, ...],
        rows: Iterator[Row],
        timerValues: object,  # noqa: ARG002, N803 - Spark's signature; our time is in the parcels
    ) -> Iterator[Row]:
        from streamcore.spark import work

        yield from work.step(self.app, self.stage, int(key[0]), rows, self.blobs, self.initial)

    def close(self) -> None:
        """Nothing to close: what is kept, is kept on purpose."""
