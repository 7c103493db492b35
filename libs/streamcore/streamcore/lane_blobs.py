"""Records on lanes as one Arrow blob: how they cross from the shards to the sink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from streamcore.arrow import ipc_stream
from streamcore.lanes import Headers, Record

_HEADERS = pa.map_(pa.string(), pa.large_binary())
SCHEMA = pa.schema(
    [
        pa.field("lane", pa.string()),
        pa.field("key", pa.large_binary()),
        pa.field("value", pa.large_binary()),
        pa.field("headers", _HEADERS),
    ]
)


def to_ipc(records: Sequence[Record], more: Sequence[pa.RecordBatch] = ()) -> bytes:
    """The records, in order, and then ``more`` of them, as one Arrow IPC stream of ``SCHEMA``."""
    return ipc_stream(pa.Table.from_batches([batch_of_records(records), *more]))


def batch_of_records(records: Sequence[Record]) -> pa.RecordBatch:
    """The records in the form of ``SCHEMA``."""
    columns = [
        pa.array([r.lane for r in records], pa.string()),
        pa.array([r.key for r in records], pa.large_binary()),
        pa.array([r.value for r in records], pa.large_binary()),
        pa.array([list(r.headers) for r in records], _HEADERS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def batch_of(lanes: pa.StringArray, keys: pa.LargeBinaryArray, values: pa.LargeBinaryArray) -> pa.RecordBatch:
    """Records without headers, in the form of ``SCHEMA``."""
    starts = pa.array(np.zeros(len(lanes) + 1, np.int32))
    headers = pa.MapArray.from_arrays(starts, pa.array([], pa.string()), pa.array([], pa.large_binary()))
    return pa.RecordBatch.from_arrays([lanes, keys, values, headers], schema=SCHEMA)


def from_ipc(blob: bytes) -> Iterator[Record]:
    """The records that ``to_ipc`` wrote, in order."""
    return map(Record, *columns_from_ipc(blob))


def columns_from_ipc(blob: bytes) -> tuple[list[str], list[bytes | None], list[bytes | None], list[Headers]]:
    """Lanes, keys, values and headers of the records that ``to_ipc`` wrote, in order."""
    table = pa.ipc.open_stream(pa.py_buffer(blob)).read_all()
    lanes, keys, values = (table.column(name).to_pylist() for name in SCHEMA.names[:3])
    return lanes, keys, values, _headers(table.column("headers"))


def _headers(column: pa.ChunkedArray) -> list[Headers]:
    """Most records have none, and then no list has to be made for each."""
    if not any(len(chunk.keys) for chunk in column.chunks):
        return [()] * len(column)
    return [tuple(headers) for headers in column.to_pylist()]
