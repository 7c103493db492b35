"""The form in which a cut crosses from stage 1 to the shards: few fat rows instead of millions of thin ones.

A parcel is ``(shard, kind, clock_ms, blob)``. Rows of one exchange travel as one Arrow IPC stream per shard; control
records, the list of partitions and their progress are copied to every shard; what is on its way to a lane passes
through one shard of each stage. Parcels of one cut arrive in any order; ``open_parcels`` puts their rows back into the
order of partition and offset, so a shard's input does not depend on how a shuffle interleaved it. Rows that a shard
sends to the next stage count it as their partition and are numbered there.
"""

from __future__ import annotations

import enum
import io
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson
import polars as pl
import pyarrow as pa

from streamcore.arrow import ipc_stream
from streamcore.hashing import hash_columns, shard_of
from streamcore.kernel import Control, Exchange, Routed
from streamcore.lane_blobs import from_ipc, to_ipc
from streamcore.lanes import DEAD_LETTERS, Record
from streamcore.schema import OFFSET, PARTITION
from streamcore.watermark import Progress

_ORIGIN = struct.Struct(">iq")


class ParcelKind(enum.IntEnum):
    """What a parcel holds. Rows are ``ROWS`` and the exchange's place in ``App.exchanges``."""

    PROGRESS = 0
    CONTROL = 1
    RECORDS = 2
    PARTITIONS = 3
    FIGURES = 4
    ROWS = 16


@dataclass(frozen=True, slots=True)
class Parcel:
    """One row of the shuffle."""

    shard: int
    kind: int
    clock_ms: int
    blob: bytes


@dataclass(frozen=True, slots=True)
class Figures:
    """What one shard has to say of one cut for the metrics. ``counted``: what happened how often, by name."""

    state_bytes: int = 0
    loaded: int = 0
    counted: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Figures) -> Figures:
        counted = Counter(self.counted)
        counted.update(other.counted)
        return Figures(self.state_bytes + other.state_bytes, self.loaded + other.loaded, dict(counted))


def pack_figures(figures: Figures) -> bytes:
    """One shard's figures, for a shard of the next stage to pass on."""
    return orjson.dumps([figures.state_bytes, figures.loaded, figures.counted])


@dataclass(frozen=True, slots=True)
class Contents:
    """What a shard found in its parcels of one cut. ``onward``: parcels for stages after this one, not opened."""

    clock_ms: int
    rows: dict[Routed, pl.DataFrame]
    control: list[Control]
    progress: list[Progress]
    partitions: dict[int, int]
    records: list[Record]
    figures: list[Figures]
    onward: list[Parcel]


def pack_rows(exchange: Exchange, kind: int, table: pa.Table, shards: int, clock_ms: int) -> Iterator[Parcel]:
    """Rows of one exchange to a parcel for every shard that owns some. ``kind``: ``ParcelKind.ROWS`` plus its place."""
    if exchange.broadcast:
        blob = ipc_stream(table)
        yield from (Parcel(shard, kind, clock_ms, blob) for shard in range(shards))
        return
    columns = pl.DataFrame(table.select(exchange.key)).get_columns()
    owners = shard_of(hash_columns(columns, table.num_rows), shards)
    ordered = table.take(pa.array(np.argsort(owners.astype(np.int16), kind="stable")))
    ends = np.cumsum(np.bincount(owners, minlength=shards))
    start = 0
    for shard, end in enumerate(ends.tolist()):
        if end > start:
            yield Parcel(shard, kind, clock_ms, ipc_stream(ordered.slice(start, end - start)))
        start = end


def pack_records(records: Sequence[Record], origin: tuple[int, int], more: Sequence[pa.RecordBatch] = ()) -> bytes:
    """Records on their way to a lane (as ``lane_blobs.to_ipc``). ``origin`` says their order."""
    return _ORIGIN.pack(*origin) + to_ipc(records, more)


def _unpack_records(blobs: Iterable[bytes]) -> list[Record]:
    """In the order of where they come from; dead letters, which may come from any task, by what they say of that."""
    records = [record for blob in sorted(blobs, key=_origin) for record in from_ipc(blob[_ORIGIN.size :])]
    dead = sorted((r for r in records if r.lane == DEAD_LETTERS), key=lambda r: r.headers)
    return [*(r for r in records if r.lane != DEAD_LETTERS), *dead]


def _origin(blob: bytes) -> tuple[int, ...]:
    return _ORIGIN.unpack_from(blob)


def pack_progress(progress: Sequence[Progress]) -> bytes:
    """A few numbers a source partition."""
    return orjson.dumps([[p.partition, p.max_event_ms, p.events, p.watermark_ms] for p in progress])


def pack_partitions(partitions: Mapping[int, int]) -> bytes:
    """The numbers of the source partitions that there are, each with the offset where the cut begins."""
    return orjson.dumps([*partitions.items()])


_CONTROL = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("key", pa.large_binary()),
        pa.field("value", pa.large_binary()),
    ]
)


def pack_control(records: Sequence[Control]) -> bytes:
    """Control records as one Arrow IPC stream."""
    columns = [
        pa.array([r.partition for r in records], pa.int32()),
        pa.array([r.offset for r in records], pa.int64()),
        pa.array([r.key for r in records], pa.large_binary()),
        pa.array([r.value for r in records], pa.large_binary()),
    ]
    return ipc_stream(pa.RecordBatch.from_arrays(columns, schema=_CONTROL))


def _unpack_control(blob: bytes) -> list[Control]:
    table = pa.ipc.open_stream(pa.py_buffer(blob)).read_all()
    return [Control(*row) for row in zip(*(table.column(n).to_pylist() for n in _CONTROL.names), strict=True)]


def open_parcels(parcels: Iterable[Parcel], exchanges: Sequence[Exchange], stage: int, *, last: bool) -> Contents:
    """All parcels of one shard in one cut, sorted into what they are. Records are for the ``last`` stage to open."""
    by_kind: dict[int, list[bytes]] = {}
    onward = []
    clock_ms = 0
    for parcel in parcels:
        clock_ms = max(clock_ms, parcel.clock_ms)
        later = parcel.kind >= ParcelKind.ROWS and exchanges[parcel.kind - ParcelKind.ROWS].stage > stage
        if later or (parcel.kind == ParcelKind.RECORDS and not last):
            onward.append(parcel)
        else:
            by_kind.setdefault(parcel.kind, []).append(parcel.blob)
    control = [r for blob in by_kind.get(ParcelKind.CONTROL, ()) for r in _unpack_control(blob)]
    progress = [Progress(*row) for blob in by_kind.get(ParcelKind.PROGRESS, ()) for row in orjson.loads(blob)]
    partitions = dict(pair for blob in by_kind.get(ParcelKind.PARTITIONS, ()) for pair in orjson.loads(blob))
    rows = {
        exchanges[kind - ParcelKind.ROWS].rows: _in_order(blobs)
        for kind, blobs in sorted(by_kind.items())
        if kind >= ParcelKind.ROWS
    }
    return Contents(
        clock_ms=clock_ms,
        rows=rows,
        control=sorted(control, key=lambda r: (r.partition, r.offset)),
        progress=sorted(progress, key=lambda p: p.partition),
        partitions=partitions,
        records=_unpack_records(by_kind.get(ParcelKind.RECORDS, ())),
        figures=[Figures(*orjson.loads(blob)) for blob in by_kind.get(ParcelKind.FIGURES, ())],
        onward=sorted(onward, key=lambda p: (p.kind, p.blob)) if onward else [],
    )


def _in_order(blobs: Sequence[bytes]) -> pl.DataFrame:
    """Stable: rows that were made of the same event stay in the order in which they were made."""
    frames = [pl.read_ipc_stream(io.BytesIO(blob)) for blob in blobs]
    frame = pl.concat(frames, rechunk=True) if len(frames) > 1 else frames[0]
    order = frame.select(code=pl.col(PARTITION).cast(pl.Int64) * (1 << 40) + pl.col(OFFSET))["code"]
    return frame if order.is_sorted() else frame[np.argsort(order.to_numpy(), kind="stable")]
