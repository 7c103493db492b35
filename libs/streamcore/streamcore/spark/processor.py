"""Stages 1 and 2 as functions that Spark calls in its Python workers. Thin: they convert rows and call the engine.

A worker process serves many tasks, one after the other. It keeps what it built (decoders, shards with their tables)
in this module, so that a cut pays for its data and not for its set-up. What it keeps is never trusted: a shard
compares its memory with the stored head before it uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from streamcore.app import App
from streamcore.ingest import Ingest
from streamcore.lanes import to_ipc
from streamcore.packing import Parcel
from streamcore.shard import Shard, ShardOutput

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
        StructField("clock_ms", LongType()),
        StructField("state_bytes", LongType()),
        StructField("loaded", BooleanType()),
    ]
)
_NAME = StructType([StructField("name", StringType())])
_BLOB = StructType([StructField("blob", BinaryType())])

_PARCEL_ARROW = pa.schema(
    [
        pa.field("shard", pa.int32()),
        pa.field("kind", pa.int32()),
        pa.field("clock_ms", pa.int64()),
        pa.field("blob", pa.binary()),
    ]
)

_ingests: dict[str, Ingest] = {}
_shards: dict[tuple[str, int], Shard] = {}


def stage1(app: App, identity: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``: raw batches (``ingest.RAW``) to parcels."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ingest = _ingests.get(identity)
        if ingest is None:
            ingest = _ingests[identity] = Ingest(app)
        for parcel in ingest.run(batches):
            columns = [
                pa.array([parcel.shard], pa.int32()),
                pa.array([int(parcel.kind)], pa.int32()),
                pa.array([parcel.clock_ms], pa.int64()),
                pa.array([parcel.blob], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=_PARCEL_ARROW)

    return run


class _SparkBlobs:
    """A shard's blobs in Spark's state store. Every call is a round trip to the JVM."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getMapState("blobs", _NAME, _BLOB)

    def get(self, name: str) -> bytes | None:
        row = self.state.getValue((name,))
        return None if row is None else bytes(row[0])

    def put(self, name: str, blob: bytes) -> None:
        self.state.updateValue((name,), (blob,))

    def remove(self, name: str) -> None:
        self.state.removeKey((name,))


class ShardProcessor(StatefulProcessor):
    """Stage 2: one grouping key of ``transformWithState`` is one shard."""

    def __init__(self, app: App, identity: str) -> None:
        self.app = app
        self.identity = identity

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.blobs = _SparkBlobs(handle)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int, ...],
        rows: Iterator[Row],
        timerValues: object,  # noqa: ARG002, N803 - Spark's signature; our time is in the parcels
    ) -> Iterator[Row]:
        number = int(key[0])
        shard = _shards.get((self.identity, number))
        if shard is None:
            shard = _shards[self.identity, number] = Shard(self.app, number)
        parcels = [Parcel(r[0], r[1], r[2], bytes(r[3])) for r in rows]
        yield _to_row(shard.step(parcels, self.blobs))

    def close(self) -> None:
        """Nothing to close: what is kept, is kept on purpose."""


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
