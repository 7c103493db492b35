"""What a Python worker does for stage 1 and the keyed stages. Thin: it converts rows and calls the engine.

A worker process serves many tasks, one after the other. It keeps what it built (decoders, Kafka clients, shards with
their tables) in this module, so that a cut pays for its data and not for its set-up. What it keeps is never trusted: a
shard compares its memory with the stored head before it uses it, a client what it read with what it is asked for.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator

import orjson
import pyarrow as pa
from pyspark.sql import Row

from streamcore.app import App, EventTime
from streamcore.ingest import Ingest
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.spans import SpanReader
from streamcore.lane_blobs import to_ipc
from streamcore.packing import Parcel
from streamcore.planner import Share
from streamcore.savepoint.initial import FirstBlobs
from streamcore.shard import Shard, ShardOutput
from streamcore.spark.processor import PackedApp
from streamcore.state.blobs import BlobStore
from streamcore.storage import Folder

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
_shards: dict[tuple[str, int, int], Shard] = {}


def parcels(packed: PackedApp, kafka: KafkaSettings, share: Share) -> Iterator[pa.RecordBatch]:
    """Stage 1 of a task: its share of the cut to ``processor.PARCEL``."""
    ingest = _ingests.get(packed.identity)
    if ingest is None:
        ingest = _ingests[packed.identity] = Ingest(_new(packed))
    timestamps = any(source.time is EventTime.INGESTION for source in ingest.app.sources)
    for parcel in ingest.run(_read(kafka, share, timestamps=timestamps), share.clock_ms, dict(share.partitions)):
        columns = [
            pa.array([parcel.shard], pa.int32()),
            pa.array([int(parcel.kind)], pa.int32()),
            pa.array([parcel.clock_ms], pa.int64()),
            pa.array([parcel.blob], pa.binary()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=_PARCEL_ARROW)


def _read(kafka: KafkaSettings, share: Share, *, timestamps: bool) -> Iterator[pa.RecordBatch]:
    """The records. After an error the client is given up: the next attempt begins with a new one."""
    if not share.spans:
        return
    reader = _readers.pop(kafka, None) or SpanReader(kafka)
    yield from reader.read(share.spans, timestamps=timestamps)
    _readers[kafka] = reader


def step(
    packed: PackedApp, stage: int, number: int, rows: Iterable[Row], blobs: BlobStore, initial: Folder | None
) -> Iterator[Row]:
    """A shard of a keyed stage: its parcels of a cut to those of the next stage, or, of the last one, to
    ``processor.OUTPUT``. ``initial``: as in ``processor.ShardProcessor``."""
    place = (packed.identity, stage, number)
    shard = _shards.get(place)
    if shard is None:
        shard = _shards[place] = Shard(_new(packed), number, stage)
    if initial is not None:
        blobs = FirstBlobs(blobs, initial, stage, number)
    output = shard.step([Parcel(r[0], r[1], r[2], bytes(r[3])) for r in rows], blobs)
    if shard.last:
        yield _to_row(output)
        return
    for parcel in output.onward():
        yield Row(shard=parcel.shard, kind=int(parcel.kind), clock_ms=parcel.clock_ms, blob=parcel.blob)


def _new(packed: PackedApp) -> App:
    """The app that was packed. What is kept of the app of that name as it was before its settings changed, goes."""
    app = open_app(packed)
    for identity in [i for i, ingest in _ingests.items() if i != packed.identity and ingest.app.name == app.name]:
        del _ingests[identity]
    for place in [p for p, shard in _shards.items() if p[0] != packed.identity and shard.app.name == app.name]:
        del _shards[place]
    return app


def open_app(packed: PackedApp) -> App:
    """The app that was packed."""
    app = pickle.loads(packed.blob)  # noqa: S301 - our own driver wrote it
    assert isinstance(app, App), "an app was packed"
    return app


def _to_row(output: ShardOutput) -> Row:
    produced = len(output.records) + sum(rows.rows.height for rows in output.lanes)
    return Row(
        shard=output.shard,
        records=to_ipc(output.records, [rows.batch() for rows in output.lanes]) if produced else b"",
        produced=produced,
        events=output.events,
        watermark_ms=output.watermark_ms,
        # Every shard would say the same: the first one says it.
        partitions=orjson.dumps([*output.partitions.items()] if output.shard == 0 else []).decode(),
        clock_ms=output.clock_ms,
        state_bytes=output.figures.state_bytes,
        loaded=output.figures.loaded,
        counted=orjson.dumps(output.figures.counted).decode(),
    )
