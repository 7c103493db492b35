"""Reads rows of files as records in batches of ``raw.RAW``, as ``kafka.range_reader`` reads records of topics."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from streamcore.errors import Permanent
from streamcore.files.listing import FileRange, is_parquet, open_file
from streamcore.wire.lane_rows import LaneRows
from streamcore.wire.raw import raw_batch

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_BATCH_ROWS = 20_000


class FileReader:
    """Reads ranges of files.

    A range usually begins where the one before has ended. So it remembers that place in a file of lines, the last group
    of rows of a Parquet file, and the last file of a bucket.
    """

    def __init__(self) -> None:
        self._places: dict[str, tuple[int, int]] = {}  # by path: the number of a line, and the byte where it begins
        self._rows: tuple[str, int, pl.DataFrame] = ("", 0, pl.DataFrame())  # path, number of the group, its rows
        self._copy: tuple[str, bytes] = ("", b"")  # path in a bucket, content

    def read(
        self, source: int, partition: int, ranges: Sequence[FileRange], *, header: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records. ``source``, ``partition``: as in ``raw.RAW``. ``Permanent`` if a file became shorter."""
        for one in ranges:
            values = self._table_rows(one) if is_parquet(one.path) else self._lines(one, header=header)
            count = 0
            while batch := [*itertools.islice(values, _BATCH_ROWS)]:
                offsets = np.arange(one.offset + count, one.offset + count + len(batch), dtype=np.int64)
                sources = np.full(len(batch), source, np.int32)
                yield raw_batch(sources, np.full(len(batch), partition, np.int32), offsets, [None] * len(batch), batch)
                count += len(batch)
            if count < one.rows:
                raise Permanent(
                    f"{one.path}: had {one.first + one.rows} rows when the app started, and has {one.first + count} "
                    "now; files of an input must not change: start with a new checkpoint"
                )

    def _lines(self, wanted: FileRange, *, header: bool) -> Iterator[bytes]:
        first = wanted.first + header
        line, place = self._places.get(wanted.path, (0, 0))
        if line > first:
            line, place = 0, 0
        with self._open(wanted.path) as file:
            file.seek(place)
            while line < first + wanted.rows:
                content = file.readline()
                if not content:
                    return
                if content.strip():
                    if line >= first:
                        yield content.rstrip(b"\r\n")
                    line += 1
            self._places[wanted.path] = (line, file.tell())

    def _table_rows(self, wanted: FileRange) -> Iterator[bytes]:
        """Yield rows of a Parquet file as JSON objects. Times without a zone are UTC."""
        import pyarrow.parquet as pq  # most workers read no files

        with self._open(wanted.path) as file:
            table = pq.ParquetFile(file)
            begin = 0
            for number in range(table.num_row_groups):
                end = begin + table.metadata.row_group(number).num_rows
                first, last = max(begin, wanted.first), min(end, wanted.first + wanted.rows)
                if first < last:
                    rows = self._row_group(wanted.path, table, number)[first - begin : last - begin]
                    yield from LaneRows("", (), rows).values()
                begin = end

    def _row_group(self, path: str, table: pq.ParquetFile, number: int) -> pl.DataFrame:
        if self._rows[:2] != (path, number):
            rows = pl.DataFrame(pl.from_arrow(table.read_row_group(number)))
            naive = [
                name
                for name, dtype in rows.schema.items()
                if isinstance(dtype, pl.Datetime) and dtype.time_zone is None
            ]
            self._rows = (path, number, rows.with_columns(pl.col(naive).dt.replace_time_zone("UTC")))
        return self._rows[2]

    def _open(self, path: str) -> io.BufferedIOBase:
        if not path.startswith("s3://"):
            return open_file(path)
        if self._copy[0] != path:
            with open_file(path) as file:
                self._copy = (path, file.read())
        return io.BytesIO(self._copy[1])
