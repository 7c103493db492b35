"""Encodes the lane records of a shard as one Arrow blob for the driver, and decodes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamcore.wire.arrow_ipc import ipc_stream
from streamcore.wire.lanes import Headers, Record

_HEADERS = pa.map_(pa.string(), pa.large_binary())
SCHEMA = pa.schema(
    [
        pa.field("lane", pa.string()),
        pa.field("key", pa.large_binary()),
        pa.field("value", pa.large_binary()),
        pa.field("headers", _HEADERS),
    ]
)


def encode_records(records: Sequence[Record], more: Sequence[pa.RecordBatch] = ()) -> bytes:
    """Encode the records, in order, and then the batches ``more`` of ``SCHEMA``, as one Arrow IPC stream."""
    return ipc_stream(pa.Table.from_batches([records_to_batch(records), *more]))


def records_to_batch(records: Sequence[Record]) -> pa.RecordBatch:
    """Convert records to a batch of ``SCHEMA``."""
    columns = [
        pa.array([r.lane for r in records], pa.string()),
        pa.array([r.key for r in records], pa.large_binary()),
        pa.array([r.value for r in records], pa.large_binary()),
        pa.array([list(r.headers) for r in records], _HEADERS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def record_batch(lanes: pa.StringArray, keys: pa.LargeBinaryArray, values: pa.LargeBinaryArray) -> pa.RecordBatch:
    """Build a batch of ``SCHEMA`` from records without headers."""
    starts = pa.array(np.zeros(len(lanes) + 1, np.int32))
    headers = pa.MapArray.from_arrays(starts, pa.array([], pa.string()), pa.array([], pa.large_binary()))
    return pa.RecordBatch.from_arrays([lanes, keys, values, headers], schema=SCHEMA)


@dataclass(frozen=True, slots=True)
class LaneRecords:
    """Records of one lane as columns. ``headers`` is empty if no record has headers."""

    lane: str
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]


def group_by_lane(blob: bytes | pa.Buffer) -> Iterator[LaneRecords]:
    """Yield the records of a blob of ``encode_records`` by lane. The records of a lane are in order."""
    for batch in pa.ipc.open_stream(pa.py_buffer(blob)):
        lanes = batch.column("lane")
        names = pc.unique(lanes).to_pylist()
        for name in names:
            records = batch if len(names) == 1 else batch.filter(pc.equal(lanes, name))
            yield LaneRecords(name, *_columns(records))


def decode_records(blob: bytes) -> Iterator[Record]:
    """Yield the records of a blob of ``encode_records``, in order."""
    for batch in pa.ipc.open_stream(pa.py_buffer(blob)):
        keys, values, headers = _columns(batch)
        yield from map(Record, batch.column("lane").to_pylist(), keys, values, headers or repeat(()))


def _columns(batch: pa.RecordBatch) -> tuple[Sequence[bytes | None], Sequence[bytes | None], Sequence[Headers]]:
    """Return keys, values and headers; the headers are empty if no record has any, which is the usual case."""
    headers = batch.column("headers")
    headers_by_row = [tuple(pairs) for pairs in headers.to_pylist()] if len(headers.keys) else ()
    return batch.column("key").to_pylist(), batch.column("value").to_pylist(), headers_by_row
