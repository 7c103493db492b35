"""A shard's state as rows of its tables, and as a file of a savepoint.

A file holds the state of one shard of one stage: Parquet with the columns ``table`` (text), ``rows`` (int64) and
``blob`` (binary: an Arrow IPC stream with some rows of that table), zstd. Each row is there once, as the app's own
kernel knows it: nothing of the log that it came from is left, so a restore reads what is alive and no history.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from streamcore.app import App
from streamcore.errors import CorruptState
from streamcore.savepoint.blob_file import write_rows
from streamcore.savepoint.manifest import StateFile, StoredTable, sha256
from streamcore.state.blob_store import BlobStore
from streamcore.state.frame_codec import from_bytes, to_bytes
from streamcore.state.row_versions import VERSION
from streamcore.state.state_log import HEAD, LogHead, StateLog
from streamcore.storage import ObjectStore

#: About how much of a table is in one part.
PART_BYTES = 4 * 1024 * 1024
_SCHEMA = pa.schema([("table", pa.string()), ("rows", pa.int64()), ("blob", pa.binary())])

#: Rows by table.
Frames = Mapping[str, pl.DataFrame]


@dataclass(frozen=True, slots=True)
class StatePart:
    """Some rows of a table. ``blob``: as ``state.packed.to_bytes`` makes it."""

    table: str
    rows: int
    blob: bytes

    @property
    def frame(self) -> pl.DataFrame:
        """The rows."""
        return from_bytes(self.blob)


@dataclass(frozen=True, slots=True)
class ShardReceipt:
    """That a shard's file is written: its entry, what is in it of each table, and the shard's own cells."""

    file: StateFile
    tables: tuple[StoredTable, ...]
    cells: Mapping[str, object]


def read_cells(blobs: BlobStore) -> Mapping[str, object]:
    """Return the shard's own small values; none where it has never written."""
    head = blobs.get(HEAD)
    return {} if head is None else LogHead.from_json(head).cells


def live_rows(app: App, stage: int, blobs: BlobStore) -> Frames:
    """Return the rows that are alive, as the app's kernel knows them, by table."""
    kernel, log = app.stages[stage](), StateLog(app.state)
    log.load(blobs.get(HEAD), blobs, kernel.table)
    kernel.on_state_loaded()
    return {name: table.rows(0, 1) for name, table in kernel.tables().items()}


def write_shard(
    folder: ObjectStore, stage: int, shard: int, frames: Frames, cells: Mapping[str, object]
) -> ShardReceipt:
    """Write the file of a shard."""
    found: list[StoredTable] = []
    parts: list[StatePart] = []
    for name in sorted(frames):
        if frames[name].height:
            mine = [*_parts(name, frames[name])]
            found.append(_describe_stored(stage, name, frames[name], sum(len(part.blob) for part in mine)))
            parts += mine
    content = write_parts(parts)
    file = StateFile(f"state/stage-{stage}/shard-{shard:05}.parquet", stage, shard, len(content), sha256(content))
    folder.write(file.path, content)
    return ShardReceipt(file, merge(found), cells)


def write_parts(parts: Iterable[StatePart]) -> bytes:
    """Encode the parts as a file."""
    sink = io.BytesIO()
    write_rows(sink, _SCHEMA, ((part.table, part.rows, part.blob) for part in parts))
    return sink.getvalue()


def read_parts(content: bytes, where: str) -> Iterator[StatePart]:
    """Yield the parts that ``write_parts`` wrote, in their order. ``CorruptState`` for any other file."""
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group).select(_SCHEMA.names)
            yield from map(StatePart, *(column.to_pylist() for column in rows.columns))
    except (pa.ArrowException, KeyError) as error:
        raise CorruptState(f"{where}: {error}; take the file from a copy") from error


def merge(tables: Iterable[StoredTable]) -> tuple[StoredTable, ...]:
    """Merge the tables of all shards, by stage and name."""
    found: dict[tuple[int, str], StoredTable] = {}
    for one in tables:
        before = found.get((one.stage, one.name))
        found[one.stage, one.name] = one if before is None else _sum(before, one)
    return tuple(found[place] for place in sorted(found))


def _sum(one: StoredTable, other: StoredTable) -> StoredTable:
    columns = {**one.columns, **other.columns}
    versions = tuple(sorted({*one.versions, *other.versions}))
    return StoredTable(one.name, one.stage, one.rows + other.rows, one.bytes + other.bytes, columns, versions)


def _describe_stored(stage: int, name: str, rows: pl.DataFrame, size: int) -> StoredTable:
    versions = tuple(sorted(rows[VERSION].unique().to_list())) if VERSION in rows.columns else (1,)
    return StoredTable(name, stage, rows.height, size, column_types(rows), versions)


def column_types(rows: pl.DataFrame) -> dict[str, str]:
    """Names and types, whole numbers as they are read back."""
    narrow = (pl.Int8, pl.Int16, pl.Int32)
    return {name: str(pl.Int64() if dtype in narrow else dtype) for name, dtype in rows.schema.items()}


def _parts(name: str, rows: pl.DataFrame) -> Iterator[StatePart]:
    pieces = max(1, round(rows.estimated_size() / PART_BYTES))
    height = -(-rows.height // pieces)
    for some in rows.iter_slices(height):
        yield StatePart(name, some.height, to_bytes(some))
