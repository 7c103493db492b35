"""Arrow as bytes."""

from __future__ import annotations

import pyarrow as pa


def ipc_stream(rows: pa.Table | pa.RecordBatch) -> bytes:
    """One Arrow IPC stream, uncompressed: what carries it compresses."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return bytes(sink.getvalue())
