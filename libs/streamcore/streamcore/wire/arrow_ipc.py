"""Arrow as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import polars as pl


#: Whatever carries a stream copies it several times on its way through the JVM, so it is made small here. Measured for
#: an app that writes what it reads: half of the JVM's CPU less, and none more for the workers, who copy less too.
_SMALL = pa.ipc.IpcWriteOptions(compression="lz4")


def ipc_stream(rows: pa.Table | pa.RecordBatch) -> bytes:
    """Encode rows as one Arrow IPC stream, its columns compressed: later stages need not."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_SMALL) as writer:
        writer.write(rows)
    return bytes(sink.getvalue())


def to_table(frame: pl.DataFrame) -> pa.Table:
    """Return a frame with text as Arrow's plain large strings, as all columns of ours have it."""
    import polars  # the driver imports this module and has no frames

    return frame.to_arrow(compat_level=polars.CompatLevel.oldest())
