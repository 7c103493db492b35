"""The form in which a cut crosses from stage 1 to the shards: few fat rows instead of millions of thin ones.

A parcel is ``(shard, kind, clock_ms, blob)``. Events of one stream under one key travel as one Arrow IPC stream per
shard; control records, the list of partitions and their progress are copied to every shard; dead letters pass through
one shard on their way to their lane. Parcels of one cut arrive in any order; ``open_parcels`` puts their rows back into
the order of partition and offset, so a shard's input does not depend on how a shuffle interleaved it.
"""

from __future__ import annotations

import enum
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson
import polars as pl
import pyarrow as pa

from streamcore.arrow import ipc_stream
from streamcore.kernel import Control, Routed
from streamcore.lanes import Record, from_ipc
from streamcore.schema import OFFSET, PARTITION, StreamSchema
from streamcore.watermark import Progress

_MAX_ROUTES = 64


class ParcelKind(enum.IntEnum):
    """What a parcel holds. Events are ``EVENTS + stream * 64 + route``."""

    PROGRESS = 0
    CONTROL = 1
    DEAD = 2
    PARTITIONS = 3
    EVENTS = 16


@dataclass(frozen=True, slots=True)
class Parcel:
    """One row of the shuffle."""

    shard: int
    kind: int
    clock_ms: int
    blob: bytes


@dataclass(frozen=True, slots=True)
class Contents:
    """What a shard found in its parcels of one cut."""

    clock_ms: int
    events: dict[Routed, pl.DataFrame]
    control: list[Control]
    progress: list[Progress]
    partitions: list[int]
    dead: list[Record]


def events_kind(stream: int, route: int) -> int:
    """The kind number of events of a stream (index in the app's list) under a key (index in its schema)."""
    assert 0 <= route < _MAX_ROUTES, "a schema declares fewer keys than that"
    return ParcelKind.EVENTS + stream * _MAX_ROUTES + route


def pack_progress(progress: Sequence[Progress]) -> bytes:
    """A few numbers a source partition."""
    return orjson.dumps([[p.partition, p.max_event_ms, p.events] for p in progress])


def pack_partitions(partitions: Sequence[int]) -> bytes:
    """The numbers of the source partitions that there are."""
    return orjson.dumps([*partitions])


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


def open_parcels(parcels: Iterable[Parcel], streams: Sequence[StreamSchema]) -> Contents:
    """All parcels of one shard in one cut, sorted into what they are."""
    by_kind: dict[int, list[bytes]] = {}
    clock_ms = 0
    for parcel in parcels:
        clock_ms = max(clock_ms, parcel.clock_ms)
        by_kind.setdefault(parcel.kind, []).append(parcel.blob)
    control = [r for blob in by_kind.get(ParcelKind.CONTROL, ()) for r in _unpack_control(blob)]
    progress = [Progress(*row) for blob in by_kind.get(ParcelKind.PROGRESS, ()) for row in orjson.loads(blob)]
    partitions = [n for blob in by_kind.get(ParcelKind.PARTITIONS, ()) for n in orjson.loads(blob)]
    dead = [r for blob in by_kind.get(ParcelKind.DEAD, ()) for r in from_ipc(blob)]
    events = {}
    for kind, blobs in sorted(by_kind.items()):
        if kind >= ParcelKind.EVENTS:
            stream, route = divmod(kind - ParcelKind.EVENTS, _MAX_ROUTES)
            events[Routed(streams[stream].name, route)] = _in_order(blobs)
    return Contents(
        clock_ms=clock_ms,
        events=events,
        control=sorted(control, key=lambda r: (r.partition, r.offset)),
        progress=sorted(progress, key=lambda p: p.partition),
        partitions=sorted(partitions),
        dead=sorted(dead, key=lambda r: r.headers),
    )


def _in_order(blobs: Sequence[bytes]) -> pl.DataFrame:
    frames = [pl.read_ipc_stream(io.BytesIO(blob)) for blob in blobs]
    frame = pl.concat(frames, rechunk=True) if len(frames) > 1 else frames[0]
    order = frame.select(code=pl.col(PARTITION).cast(pl.Int64) * (1 << 40) + pl.col(OFFSET))["code"]
    return frame if order.is_sorted() else frame[order.arg_sort()]
