"""Reads rows of files as records in batches of ``raw.RAW``, as ``kafka.range_reader`` reads records of topics."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from streamcore.errors import Permanent
from streamcore.files.listing import FileRange, is_parquet, open_file
from streamcore.wire.lane_rows import LaneRows
from streamcore.wire.raw import raw_batch

_BATCH_ROWS = 20_000


class FileReader:
    """Reads ranges of files. Remembers where a range of lines has ended, because the next one usually begins there."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[int, int]] = {}  # by path: the number of a line, and the byte where it begins

    def read(
        self, source: int, partition: int, ranges: Sequence[FileRange], *, header: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records. ``source``, ``partition``: as in ``raw.RAW``. ``Permanent`` if a file became shorter."""
        for one in ranges:
            values = _table_rows(one) if is_parquet(one.path) else self._lines(one, header=header)
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
        with open_file(wanted.path) as file:
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


def _table_rows(wanted: FileRange) -> Iterator[bytes]:
    """Yield rows of a Parquet file as JSON objects. Times without a zone are UTC."""
    with open_file(wanted.path) as file:
        frame = pl.read_parquet(file.read(), n_rows=wanted.first + wanted.rows)[wanted.first :]
    naive = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.Datetime) and dtype.time_zone is None]
    yield from LaneRows("", (), frame.with_columns(pl.col(naive).dt.replace_time_zone("UTC"))).values()
