"""The initial state of the shards of a checkpoint that was restored from a savepoint.

The folder has copies of the savepoint's files that the app needs, and an index that maps their tables to stages
(``InitialStateIndex``). A shard without state reads its files there in its first cut, in the worker that runs the
shard: so shards are read in parallel. If the app has another number of shards or of key groups than the savepoint, a
shard takes its part of the files of several stored shards (``division``). Promises: a shard gets identical blobs at
each attempt, so a cut that was not committed can be repeated; a file whose digest differs from the manifest raises
``CorruptState``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import polars as pl
from pydantic import TypeAdapter, ValidationError

from streamcore.app import App
from streamcore.errors import CorruptState
from streamcore.key_space import KeySpace
from streamcore.savepoint.compatibility import CompatibilityReport
from streamcore.savepoint.division import divide_rows, overlapping_shards
from streamcore.savepoint.manifest import StateFile
from streamcore.savepoint.repository import Savepoint, read_verified
from streamcore.savepoint.state_files import initial_log, read_parts
from streamcore.state.blob_store import BlobStore
from streamcore.state.state_log import HEAD
from streamcore.storage import ObjectStore, checked_json

_INDEX = "index.json"
_REMEDY = "restore the savepoint to a new checkpoint"
#: Files copied in parallel. Each is held in memory.
_COPIES = 4


@dataclass(frozen=True, slots=True)
class TableAssignment:
    """A stored table, with the stage that wrote it and the stage that restores it."""

    stored_stage: int
    table: str
    stage: int


@dataclass(frozen=True, slots=True)
class InitialStateIndex:
    """The index of the folder.

    ``files``: the copied files. ``taken``: the tables that the app restores. ``cells``: values that every shard begins
    with, also one without rows. ``buckets``: number of buckets of each shard's state log. ``stored``: the division of
    the keys among the shards of the files; None if it is unknown.
    """

    files: tuple[StateFile, ...]
    taken: tuple[TableAssignment, ...]
    cells: Mapping[str, object]
    buckets: int
    stored: KeySpace | None = None

    def write(self, folder: ObjectStore) -> None:
        """Write the index to the folder."""
        folder.write(_INDEX, checked_json.encode(_adapter().dump_python(self, mode="json")))

    @classmethod
    def read(cls, folder: ObjectStore) -> InitialStateIndex:
        """Read the index of the folder. Raise ``CorruptState`` if it is missing or was changed."""
        document = checked_json.parse(folder.read(_INDEX) or b"", f"{folder.url}/{_INDEX}", _REMEDY)
        try:
            return _adapter().validate_python(document)
        except ValidationError as error:
            raise CorruptState(f"{folder.url}/{_INDEX}: {error.errors()[0]['msg']}; {_REMEDY}") from error

    def tables(self, stored_stage: int, stage: int) -> frozenset[str]:
        """Return the names of the tables that ``stage`` restores from files of ``stored_stage``."""
        return frozenset(t.table for t in self.taken if (t.stored_stage, t.stage) == (stored_stage, stage))


def copy_files(
    folder: ObjectStore, savepoint: Savepoint, plan: CompatibilityReport, cells: Mapping[str, object], buckets: int
) -> None:
    """Copy the files of the savepoint that have a table to restore, and write the index."""
    every = [*((stored, table, stage) for (stored, table), stage in plan.stages.items()), *plan.copies]
    taken = tuple(TableAssignment(*one) for one in sorted(every))
    stored_stages = {assignment.stored_stage for assignment in taken}
    files = tuple(file for file in savepoint.manifest.files if file.stage in stored_stages)
    with ThreadPoolExecutor(_COPIES) as copies:
        for copied in [copies.submit(_copy, savepoint, file, folder) for file in files]:
            copied.result()
    InitialStateIndex(files, taken, cells, buckets, savepoint.manifest.app.key_space).write(folder)


def _copy(savepoint: Savepoint, file: StateFile, folder: ObjectStore) -> None:
    folder.write(file.path, savepoint.content(file))


def initial_blobs(folder: ObjectStore, app: App, stage: int, shard: int) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the blobs that a shard of the app begins with, the head last."""
    index = InitialStateIndex.read(folder)
    if index.stored == app.key_space:
        rows = _read_rows(folder, index, stage, shard)
    else:
        shards = {file.shard for file in index.files}
        taken = overlapping_shards(index.stored, shards, app.key_space, shard)
        rows = divide_rows(app, stage, shard, [_read_rows(folder, index, stage, one) for one in taken])
    yield from initial_log(app, stage, shard, rows, index.buckets, index.cells)


def _read_rows(folder: ObjectStore, index: InitialStateIndex, stage: int, shard: int) -> dict[str, pl.DataFrame]:
    """Return the rows of a stored shard that a stage restores, by table."""
    frames_by_table: dict[str, list[pl.DataFrame]] = defaultdict(list)
    for file in index.files:
        wanted = index.tables(file.stage, stage) if file.shard == shard else ()
        if wanted:
            for part in read_parts(read_verified(folder, file, f"checkpoint {folder.url}"), file.path):
                if part.table in wanted:
                    frames_by_table[part.table].append(part.frame)
    return {name: pl.concat(frames, how="diagonal_relaxed") for name, frames in frames_by_table.items()}


class InitialBlobStore:
    """The blob store of one shard in one cut. If the head is read and does not exist, the initial blobs are written.

    In that cut they are read from memory, because Spark's store reads more slowly than it writes.
    """

    def __init__(self, blobs: BlobStore, folder: ObjectStore, app: App, stage: int, shard: int) -> None:
        self._blobs, self._folder, self._app = blobs, folder, app
        self._stage_and_shard = (stage, shard)
        self._initial: dict[str, bytes] = {}

    def get(self, name: str) -> bytes | None:
        stored = self._initial.get(name)
        if stored is None:
            stored = self._blobs.get(name)
        if stored is None and name == HEAD:
            for initial_name, blob in initial_blobs(self._folder, self._app, *self._stage_and_shard):
                self.put(initial_name, blob)
                self._initial[initial_name] = blob
            stored = self._initial[HEAD]
        return stored

    def put(self, name: str, blob: bytes) -> None:
        self._initial.pop(name, None)
        self._blobs.put(name, blob)

    def remove(self, name: str) -> None:
        self._initial.pop(name, None)
        self._blobs.remove(name)


@cache
def _adapter() -> TypeAdapter[InitialStateIndex]:
    return TypeAdapter(InitialStateIndex)
