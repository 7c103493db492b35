"""Packs a cut into shuffle blocks, few large rows of Spark's shuffle, and unpacks the blocks of a shard.

A shuffle block is ``(shard, kind, clock_ms, blob)``. The rows of one exchange go to each shard as one Arrow IPC stream.
Control records, the list of partitions and their progress are copied to every shard. Records for a lane pass through
one shard of each stage. The blocks of a cut arrive in any order; ``unpack_blocks`` sorts their rows by partition and
offset, so a shard's input does not depend on the shuffle. For rows that a shard sends to the next stage, the partition
is the number of that shard and the offset is the index of the row.
"""

from __future__ import annotations

import io
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson
import polars as pl
import pyarrow as pa

from streamcore.columnar.event_order import find_order
from streamcore.engine.block_kind import BlockKind
from streamcore.hashing import UInt64Array, hash_columns
from streamcore.kernel import ControlRecord, Exchange, StreamKey
from streamcore.key_space import KeySpace
from streamcore.watermark import Progress
from streamcore.wire.arrow_ipc import ipc_stream
from streamcore.wire.lane_codec import decode_records, encode_records
from streamcore.wire.lanes import DEAD_LETTERS, Record

_ORIGIN = struct.Struct(">iq")


@dataclass(frozen=True, slots=True)
class ShuffleBlock:
    """One row of the shuffle: ``blob`` holds contents of ``kind`` for ``shard``."""

    shard: int
    kind: int
    clock_ms: int
    blob: bytes


@dataclass(frozen=True, slots=True)
class ShardMetrics:
    """The metrics of one shard and cut. ``state_bytes``: bytes of state written. ``loaded``: number of shards that had
    to read their state. ``counters``: numbers of occurrences by name."""

    state_bytes: int = 0
    loaded: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: ShardMetrics) -> ShardMetrics:
        counters = Counter(self.counters)
        counters.update(other.counters)
        return ShardMetrics(self.state_bytes + other.state_bytes, self.loaded + other.loaded, dict(counters))


def pack_metrics(metrics: ShardMetrics) -> bytes:
    """Encode one shard's metrics as JSON, for a shard of the next stage to pass on."""
    return orjson.dumps([metrics.state_bytes, metrics.loaded, metrics.counters])


@dataclass(frozen=True, slots=True)
class ShardInput:
    """The contents of a shard's blocks of one cut.

    ``elapsed_ms``: how long the app has run (``CutClock``). ``rows``: by exchange, in order of partition and offset;
    ``tables``: those of exchanges ``as_table``, in any order.
    ``partitions``: the offset where the cut begins, by source
    partition. ``records``: for lanes. ``forward``: blocks for later stages, not unpacked.
    """

    clock_ms: int
    elapsed_ms: int
    rows: dict[StreamKey, pl.DataFrame]
    tables: dict[StreamKey, pa.Table]
    control: list[ControlRecord]
    progress: list[Progress]
    partitions: dict[int, int]
    records: list[Record]
    metrics: list[ShardMetrics]
    forward: list[ShuffleBlock]


def pack_rows(exchange: Exchange, kind: int, table: pa.Table, keys: KeySpace, clock_ms: int) -> Iterator[ShuffleBlock]:
    """Yield a block with rows of one exchange for every shard that owns some.

    ``kind``: ``BlockKind.ROWS`` plus the index of the exchange. ``keys``: decides the shard of a row.
    """
    if exchange.broadcast:
        blob = ipc_stream(table)
        yield from (ShuffleBlock(shard, kind, clock_ms, blob) for shard in range(keys.shards))
        return
    receivers = keys if exchange.parallelism is None else keys.with_at_most(exchange.parallelism)
    owners = receivers.shard_for(_key_hashes(exchange, table))
    ordered = table.take(pa.array(np.argsort(owners.astype(np.int16), kind="stable")))
    ends = np.cumsum(np.bincount(owners, minlength=keys.shards))
    start = 0
    for shard, end in enumerate(ends.tolist()):
        if end > start:
            yield ShuffleBlock(shard, kind, clock_ms, ipc_stream(ordered.slice(start, end - start)))
        start = end


def _key_hashes(exchange: Exchange, table: pa.Table) -> UInt64Array:
    if exchange.hashed:
        hashes: UInt64Array = table.column(exchange.key[0]).to_numpy()
        return hashes
    columns = pl.DataFrame(table.select(exchange.key)) if exchange.columns is None else exchange.columns(table)
    return hash_columns(columns.get_columns(), table.num_rows)


def pack_records(records: Sequence[Record], origin: tuple[int, int], more: Sequence[pa.RecordBatch] = ()) -> bytes:
    """Encode records for lanes: their ``origin``, by which ``unpack_blocks`` orders blobs, then
    ``lane_codec.encode_records``."""
    return _ORIGIN.pack(*origin) + encode_records(records, more)


def _unpack_records(blobs: Iterable[bytes]) -> list[Record]:
    """Decode records in the order of their blobs' origin, then the dead letters in the order of their headers, because
    any task may write those."""
    records = [record for blob in sorted(blobs, key=_origin) for record in decode_records(blob[_ORIGIN.size :])]
    dead = sorted((r for r in records if r.lane == DEAD_LETTERS), key=lambda r: r.headers)
    return [*(r for r in records if r.lane != DEAD_LETTERS), *dead]


def _origin(blob: bytes) -> tuple[int, ...]:
    return _ORIGIN.unpack_from(blob)


def pack_progress(progress: Sequence[Progress], elapsed_ms: int) -> bytes:
    """Encode how long the app has run and the progress of source partitions, as JSON."""
    return orjson.dumps([elapsed_ms, [[p.partition, p.max_event_ms, p.events, p.watermark_ms] for p in progress]])


def _unpack_progress(blobs: Iterable[bytes]) -> tuple[int, list[Progress]]:
    """Return how long the app has run, and the progress by partition. Every shard gets a blob in every cut."""
    documents = [orjson.loads(blob) for blob in blobs]
    progress = [Progress(*row) for _, rows in documents for row in rows]
    return max(elapsed_ms for elapsed_ms, _ in documents), sorted(progress, key=lambda p: p.partition)


def pack_partitions(partitions: Mapping[int, int]) -> bytes:
    """Encode the source partitions, each with the offset where the cut begins, as JSON."""
    return orjson.dumps([*partitions.items()])


_CONTROL = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("key", pa.large_binary()),
        pa.field("value", pa.large_binary()),
    ]
)


def pack_control(records: Sequence[ControlRecord]) -> bytes:
    """Encode control records as one Arrow IPC stream."""
    columns = [
        pa.array([r.partition for r in records], pa.int32()),
        pa.array([r.offset for r in records], pa.int64()),
        pa.array([r.key for r in records], pa.large_binary()),
        pa.array([r.value for r in records], pa.large_binary()),
    ]
    return ipc_stream(pa.RecordBatch.from_arrays(columns, schema=_CONTROL))


def _unpack_control(blob: bytes) -> list[ControlRecord]:
    table = pa.ipc.open_stream(pa.py_buffer(blob)).read_all()
    return [ControlRecord(*row) for row in zip(*(table.column(n).to_pylist() for n in _CONTROL.names), strict=True)]


def unpack_blocks(
    blocks: Iterable[ShuffleBlock], exchanges: Sequence[Exchange], stage: int, *, last: bool
) -> ShardInput:
    """Unpack all blocks of one shard in one cut. Records are unpacked only in the ``last`` stage."""
    by_kind: dict[int, list[bytes]] = {}
    forward = []
    clock_ms = 0
    for block in blocks:
        clock_ms = max(clock_ms, block.clock_ms)
        later = block.kind >= BlockKind.ROWS and exchanges[block.kind - BlockKind.ROWS].stage > stage
        if later or (block.kind == BlockKind.RECORDS and not last):
            forward.append(block)
        else:
            by_kind.setdefault(block.kind, []).append(block.blob)
    control = [r for blob in by_kind.get(BlockKind.CONTROL, ()) for r in _unpack_control(blob)]
    elapsed_ms, progress = _unpack_progress(by_kind.get(BlockKind.PROGRESS, ()))
    partitions = dict(pair for blob in by_kind.get(BlockKind.PARTITIONS, ()) for pair in orjson.loads(blob))
    by_exchange = [
        (exchanges[k - BlockKind.ROWS], blobs) for k, blobs in sorted(by_kind.items()) if k >= BlockKind.ROWS
    ]
    return ShardInput(
        clock_ms=clock_ms,
        elapsed_ms=elapsed_ms,
        rows={exchange.rows: _in_order(blobs) for exchange, blobs in by_exchange if not exchange.as_table},
        tables={exchange.rows: _in_any_order(blobs) for exchange, blobs in by_exchange if exchange.as_table},
        control=sorted(control, key=lambda r: (r.partition, r.offset)),
        progress=progress,
        partitions=partitions,
        records=_unpack_records(by_kind.get(BlockKind.RECORDS, ())),
        metrics=[ShardMetrics(*orjson.loads(blob)) for blob in by_kind.get(BlockKind.METRICS, ())],
        forward=sorted(forward, key=lambda p: (p.kind, p.blob)) if forward else [],
    )


def _in_any_order(blobs: Sequence[bytes]) -> pa.Table:
    tables = [pa.ipc.open_stream(pa.py_buffer(blob)).read_all() for blob in blobs]
    return pa.concat_tables(tables).combine_chunks()


def _in_order(blobs: Sequence[bytes]) -> pl.DataFrame:
    """Return the rows in order of partition and offset."""
    frames = [pl.read_ipc_stream(io.BytesIO(blob)) for blob in blobs]
    # Blocks of late events have more columns (``Projection``), which are null in the other rows.
    frame = pl.concat(frames, how="diagonal", rechunk=True) if len(frames) > 1 else frames[0]
    order = find_order(frame)
    return frame if order is None else frame[order]
