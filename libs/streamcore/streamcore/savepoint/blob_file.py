"""A Parquet file of rows whose last column is a blob, in row groups that a reader can hold one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, Final

import pyarrow as pa
import pyarrow.parquet as pq

_GROUP_BYTES: Final = 16 * 1024 * 1024

#: A row of the file; its last value is the blob.
Row = tuple[str | int | bytes, ...]


def write_rows(target: IO[bytes], schema: pa.Schema, rows: Iterable[Row]) -> None:
    """Write the rows in their order, zstd. A row group is closed when its blobs come to about 16 MiB."""
    text = [field.name for field in schema if field.type == pa.string()]
    with pq.ParquetWriter(target, schema, compression="zstd", compression_level=1, use_dictionary=text) as writer:
        for group in _groups(rows):
            columns = zip(*group, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    size = 0
    for row in rows:
        group.append(row)
        blob = row[-1]
        assert isinstance(blob, bytes)
        size += len(blob)
        if size >= _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
