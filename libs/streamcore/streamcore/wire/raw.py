"""The columns of records as read from Kafka: the input of stage 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

#: Columns of a raw batch, in this order. ``source``: the topic's index in the app, or ``app.CONTROL``.
#: ``timestamp_ms``: the broker's; null where it was not requested, except in the first record of a piece. A column for
#: each requested header follows, with ``HEADER`` and its name: of headers with one name, the last one of the record.
RAW = pa.schema(
    [
        pa.field("source", pa.int32()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp_ms", pa.int64()),
    ]
)


HEADER = "header."

#: Columns of an event that carries its record (``Source.raw``): the record's key and value, its partition and offset.
#: No field of a stream can have such a name.
RAW_KEY, RAW_VALUE, RAW_PARTITION, RAW_OFFSET = "@key", "@value", "@partition", "@offset"
ORIGIN = (RAW_KEY, RAW_VALUE, RAW_PARTITION, RAW_OFFSET)


def raw_batch(
    sources: npt.NDArray[np.int32],
    partitions: npt.NDArray[np.int32],
    offsets: npt.NDArray[np.int64],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps_ms: Sequence[int | None] | pa.Array | None = None,
    headers: Mapping[str, Sequence[bytes | None]] = MappingProxyType({}),
) -> pa.RecordBatch:
    """Build a batch of ``RAW`` from columns of equal length. ``headers``: the requested ones, by name."""
    columns = [
        pa.array(sources),
        pa.array(partitions),
        pa.array(offsets),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        _timestamps(len(values), timestamps_ms),
    ]
    if not headers:
        return pa.RecordBatch.from_arrays(columns, schema=RAW)
    schema = RAW
    for name, column in sorted(headers.items()):
        schema = schema.append(pa.field(HEADER + name, pa.binary()))
        columns.append(pa.array(column, pa.binary()))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def header_columns(batch: pa.RecordBatch) -> dict[str, pa.BinaryArray]:
    """Return the columns of the headers of a batch, by name."""
    return {n.removeprefix(HEADER): batch.column(n) for n in batch.schema.names if n.startswith(HEADER)}


def header_rows(batch: pa.RecordBatch) -> Iterator[dict[str, bytes]]:
    """Yield the headers of each record of a batch that are not null."""
    columns = {name: column.to_pylist() for name, column in header_columns(batch).items()}
    for row in range(batch.num_rows):
        yield {name: column[row] for name, column in columns.items() if column[row] is not None}


def _timestamps(rows: int, timestamps_ms: Sequence[int | None] | pa.Array | None) -> pa.Array:
    if isinstance(timestamps_ms, pa.Array):
        return timestamps_ms
    return pa.nulls(rows, pa.int64()) if timestamps_ms is None else pa.array(timestamps_ms, pa.int64())
