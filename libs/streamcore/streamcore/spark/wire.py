"""The formats between the driver, the JVM and the Python workers: the pickled app, task assignments and row schemas.

Imports no heavy modules, because Spark's planner loads it in a process of its own.
"""

from __future__ import annotations

import base64
import hashlib
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

if TYPE_CHECKING:
    from streamcore.app import App
    from streamcore.engine.planner import TaskAssignment
    from streamcore.storage import ObjectStore

#: The Spark job's local property that carries the ``TaskAssignment`` of every stage 1 task.
ASSIGNMENTS_PROPERTY = "streamcore.assignments"
#: The Spark job's local property with the number of its batch.
BATCH_PROPERTY = "streamcore.batch"

#: Each row is one ``ShuffleBlock``.
BLOCK_SCHEMA = StructType(
    [
        StructField("shard", IntegerType()),
        StructField("kind", IntegerType()),
        StructField("clock_ms", LongType()),
        StructField("blob", BinaryType()),
    ]
)
#: The output of one shard in one cut, a row a shard (``collect.ShardRow``).
OUTPUT_SCHEMA = StructType(
    [
        StructField("shard", IntegerType()),
        StructField("records", BinaryType()),
        StructField("produced", LongType()),
        StructField("events", LongType()),
        StructField("watermark_ms", LongType()),
        StructField("partitions", StringType()),
        StructField("clock_ms", LongType()),
        StructField("state_bytes", LongType()),
        StructField("shards_loaded", IntegerType()),
        StructField("counters", StringType()),
        StructField("streams", StringType()),
        StructField("reads", StringType()),
    ]
)


@dataclass(frozen=True, slots=True)
class PackedApp:
    """A pickled app, which is unpickled only in workers. ``identity``: digest of the pickle."""

    blob: bytes
    identity: str

    @classmethod
    def pack(cls, app: App) -> PackedApp:
        """Pickle the app, including functions that workers cannot import."""
        blob = cloudpickle.dumps(replace(app, rebuild=None))  # type: ignore[no-untyped-call]
        return cls(blob, hashlib.blake2b(blob, digest_size=8).hexdigest())

    def unpack(self) -> App:
        """Unpickle the app."""
        from streamcore.app import App

        app = pickle.loads(self.blob)  # noqa: S301 - our own driver wrote it
        assert isinstance(app, App), "an app was packed"
        return app


@dataclass(frozen=True, slots=True)
class StageFolder:
    """The folder with the state of a keyed stage that is not the last. ``retained``: number of batches whose state
    stays."""

    store: ObjectStore
    retained: int

    @classmethod
    def of(cls, stages: ObjectStore, stage: int, retained: int) -> StageFolder:
        """Return that of a stage in the folder of all stages of a checkpoint."""
        return cls(stages.under(str(stage)), retained)

    def shard(self, number: int) -> ObjectStore:
        """Return the folder of a shard."""
        return self.store.under(str(number))


def encode_assignments(assignments: Sequence[TaskAssignment]) -> str:
    """Encode the assignments of all tasks as the value of ``ASSIGNMENTS_PROPERTY``."""
    return base64.b64encode(pickle.dumps([*assignments])).decode()


def decode_assignments(text: str) -> list[TaskAssignment]:
    """Decode the value of ``ASSIGNMENTS_PROPERTY``."""
    assignments: list[TaskAssignment] = pickle.loads(base64.b64decode(text))  # noqa: S301 - our driver wrote it
    return assignments
