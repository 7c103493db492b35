"""Writes and reads the state of a shard as a file of a savepoint.

A file holds state of one shard of one stage: Parquet with the columns ``table`` (text), ``rows`` (int64) and ``blob``
(binary: an Arrow IPC stream with some rows of that table), zstd. A shard has one file, or several if its state is
large. They have each current row once, as the app's kernel and its cold runs return it, and no history of the state
log. Cold rows are read and written a part at a time.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from streamcore.app import App
from streamcore.engine.shard import page_kernel
from streamcore.errors import CorruptState
from streamcore.kernel import Kernel
from streamcore.savepoint.blob_file import write_rows
from streamcore.savepoint.manifest import StateFile, StoredTable, sha256
from streamcore.state.blob_store import BlobStore, MemoryBlobs
from streamcore.state.cold.block import concat_tables
from streamcore.state.cold.cold_state import ColdState
from streamcore.state.frame_codec import from_bytes, to_bytes
from streamcore.state.row_versions import VERSION
from streamcore.state.scope import ScopeKind, TableScope
from streamcore.state.state_log import HEAD, LogHead, StateLog, fresh_log
from streamcore.storage import ObjectStore

#: The approximate size of a part in memory.
PART_BYTES = 4 * 1024 * 1024
#: The approximate size of the parts of a file in memory; further parts are in another file.
FILE_BYTES = 128 * 1024 * 1024
_SCHEMA = pa.schema([("table", pa.string()), ("rows", pa.int64()), ("blob", pa.binary())])

#: Rows by table.
Frames = Mapping[str, pl.DataFrame]


@dataclass(frozen=True, slots=True)
class StatePart:
    """Some rows of a table. ``rows``: their number. ``blob``: the rows, encoded by ``frame_codec.to_bytes``."""

    table: str
    rows: int
    blob: bytes

    @property
    def frame(self) -> pl.DataFrame:
        """The rows as a frame."""
        return from_bytes(self.blob)


@dataclass(frozen=True, slots=True)
class ShardReceipt:
    """The written files of a shard: their entries in the manifest, the tables, and the cells of the shard's state log.

    ``copies``: the digest of the rows of each replicated table, also of one without rows.
    """

    stage: int
    shard: int
    files: tuple[StateFile, ...]
    tables: tuple[StoredTable, ...]
    cells: Mapping[str, object]
    copies: Mapping[str, str]


def read_cells(blobs: BlobStore) -> Mapping[str, object]:
    """Return the cells (small values by name) of the shard's state log; none if the shard has no state."""
    head = blobs.get(HEAD)
    return {} if head is None else LogHead.from_json(head).cells


def live_rows(app: App, stage: int, blobs: BlobStore) -> Frames:
    """Load the shard's state into the app's kernel; return its rows by table, those in memory and the cold ones."""
    kernel, cold = _load(app, stage, blobs)
    in_memory = _rows_in_memory(kernel)
    parts = [in_memory, *([] if cold is None else cold.live_rows())]
    return in_memory | concat_tables([{name: rows for name, rows in part.items() if rows.height} for part in parts])


def _load(app: App, stage: int, blobs: BlobStore) -> tuple[Kernel, ColdState | None]:
    kernel = app.stages[stage]()
    cold = page_kernel(_without_bound(app), stage, 0, kernel, local=False)
    if cold is not None:
        cold.begin(blobs)
    StateLog(app.state, cold).load(blobs.get(HEAD), blobs, kernel.table)
    kernel.on_state_loaded()
    return kernel, cold


def _without_bound(app: App) -> App:
    """Return the app without a bound of its memory: what only reads state evicts no keys."""
    return replace(app, state=replace(app.state, memory_bytes=None))


def initial_log(
    app: App, stage: int, shard: int, rows: Frames, buckets: int, cells: Mapping[str, object]
) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the blobs of a new log with these rows, by table, the head last.

    If the app bounds its memory, all keys that can be cold are, and the shard's first cut loads those that it needs.
    """
    if app.state.memory_bytes is None:
        yield from fresh_log(rows, buckets, cells, {})
        return
    kernel = app.stages[stage]()
    cold = page_kernel(_without_bound(app), stage, shard, kernel, local=False)
    if cold is None:
        yield from fresh_log(rows, buckets, cells, {})
        return
    written = MemoryBlobs()
    cold.begin(written)
    # First the tables that stay in memory: the times of cold rows depend on the progress of their operator.
    for name, one in rows.items():
        if one.height and not cold.pages_table(name):
            kernel.table(name).load(one)
    kernel.on_state_loaded()
    in_memory = cold.add(rows)
    yield from written.blobs.items()
    yield from fresh_log(in_memory, buckets, cells, cold.to_json())


def _rows_in_memory(kernel: Kernel) -> dict[str, pl.DataFrame]:
    return {name: table.rows(0, 1) for name, table in kernel.tables().items()}


def save_shard(folder: ObjectStore, app: App, stage: int, shard: int, blobs: BlobStore) -> ShardReceipt:
    """Write the state of a shard, which is in ``blobs``, as files of the savepoint.

    Raise ``CorruptState`` if the shard has rows of a keyed table that another shard owns: a table that declares a wrong
    scope could not be divided among another number of shards.
    """
    kernel, cold = _load(app, stage, blobs)
    copies: dict[str, str] = {}
    tables: list[StoredTable] = []

    def parts() -> Iterator[StatePart]:
        for frames in chain([_rows_in_memory(kernel)], [] if cold is None else cold.live_rows()):
            for name in sorted(frames):
                scope, rows = kernel.scope(name), frames[name]
                if scope.kind is ScopeKind.KEYED:
                    rows = _owned(app, shard, name, rows, scope)
                elif scope.kind is ScopeKind.REPLICATED:
                    copies[name] = sha256(to_bytes(rows))
                if rows.height:
                    table_parts = [*_parts(name, rows)]
                    tables.append(_describe_stored(stage, name, rows, sum(len(part.blob) for part in table_parts)))
                    yield from table_parts

    files = []
    for number, group in enumerate(_file_groups(parts())):
        content = write_parts(group)
        path = f"state/stage-{stage}/shard-{shard:05}{f'-{number}' if number else ''}.parquet"
        files.append(StateFile(path, stage, shard, len(content), sha256(content)))
        folder.write(path, content)
    return ShardReceipt(stage, shard, tuple(files), merge(tables), read_cells(blobs), copies)


def _file_groups(parts: Iterable[StatePart]) -> Iterator[list[StatePart]]:
    """Yield the parts of each file: at least one file, also without parts."""
    group: list[StatePart] = []
    size = 0
    for part in parts:
        if size >= FILE_BYTES:
            yield group
            group, size = [], 0
        group.append(part)
        size += len(part.blob)
    yield group


def _owned(app: App, shard: int, name: str, rows: pl.DataFrame, scope: TableScope) -> pl.DataFrame:
    """Return the rows that have an effect; ``CorruptState`` if another shard owns one of them."""
    if not rows.height:
        return rows
    kept, hashes = scope.hashed(rows)
    foreign = int(np.count_nonzero(app.key_space.shard_for(hashes) != shard))
    if foreign:
        raise CorruptState(
            f"app {app.name}: {foreign} of {rows.height} rows of the state {name} in shard {shard} belong to other "
            "shards: the program declares a wrong scope for this table; report it"
        )
    return kept


def write_parts(parts: Iterable[StatePart]) -> bytes:
    """Encode the parts as a file."""
    sink = io.BytesIO()
    write_rows(sink, _SCHEMA, ((part.table, part.rows, part.blob) for part in parts))
    return sink.getvalue()


def read_parts(content: bytes, where: str) -> Iterator[StatePart]:
    """Yield the parts in the result of ``write_parts``. Raise ``CorruptState``, naming ``where``, for other content."""
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group).select(_SCHEMA.names)
            yield from map(StatePart, *(column.to_pylist() for column in rows.columns))
    except (pa.ArrowException, KeyError) as error:
        raise CorruptState(f"{where}: {error}; take the file from a copy") from error


def merge(tables: Iterable[StoredTable]) -> tuple[StoredTable, ...]:
    """Merge the tables of all shards, by stage and name."""
    merged: dict[tuple[int, str], StoredTable] = {}
    for table in tables:
        before = merged.get((table.stage, table.name))
        merged[table.stage, table.name] = table if before is None else _sum(before, table)
    return tuple(merged[key] for key in sorted(merged))


def _sum(one: StoredTable, other: StoredTable) -> StoredTable:
    columns = {**one.columns, **other.columns}
    versions = tuple(sorted({*one.versions, *other.versions}))
    return StoredTable(one.name, one.stage, one.rows + other.rows, one.bytes + other.bytes, columns, versions)


def _describe_stored(stage: int, name: str, rows: pl.DataFrame, size: int) -> StoredTable:
    versions = tuple(sorted(rows[VERSION].unique().to_list())) if VERSION in rows.columns else (1,)
    return StoredTable(name, stage, rows.height, size, column_types(rows), versions)


def column_types(rows: pl.DataFrame) -> dict[str, str]:
    """Return the types of the columns by name. All signed integers are ``Int64``, as they are restored."""
    narrow = (pl.Int8, pl.Int16, pl.Int32)
    return {name: str(pl.Int64() if dtype in narrow else dtype) for name, dtype in rows.schema.items()}


def _parts(name: str, rows: pl.DataFrame) -> Iterator[StatePart]:
    """Yield the rows of a table in parts of about ``PART_BYTES``."""
    count = max(1, round(rows.estimated_size() / PART_BYTES))
    height = -(-rows.height // count)
    for part in rows.iter_slices(height):
        yield StatePart(name, part.height, to_bytes(part))
