"""The initial state of the shards of a checkpoint that was made from a savepoint.

A folder with those files of the savepoint that some stage takes, as they are, and an index that maps their tables to
stages (``InitialStateIndex``). A shard that has no head yet reads its own files there, in the process that runs it:
shards are read side by side, and what crosses to the state store crosses once. Promises: the same folder gives a shard
the same blobs whenever it asks, so an attempt that was not committed is repeated as it was; a file that is not what was
written is ``CorruptState``. Refuses to know where the blobs are kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import polars as pl
from pydantic import TypeAdapter, ValidationError

from streamcore.errors import CorruptState
from streamcore.savepoint.compatibility import CompatibilityReport
from streamcore.savepoint.manifest import StateFile
from streamcore.savepoint.repository import Savepoint, read_verified
from streamcore.savepoint.state_files import read_parts
from streamcore.state.blob_store import BlobStore
from streamcore.state.state_log import HEAD, fresh_log
from streamcore.storage import ObjectStore

_GIVEN = "index.json"
#: Files that are copied at once: each is in memory meanwhile.
_COPIES = 4


@dataclass(frozen=True, slots=True)
class TableAssignment:
    """A table as it is stored, and the stage that takes it."""

    stored_stage: int
    table: str
    stage: int


@dataclass(frozen=True, slots=True)
class InitialStateIndex:
    """``files`` of the savepoint, and what is ``taken`` from them. ``cells``: of every shard, also of one without rows.
    ``buckets``: of the logs that are made of them."""

    files: tuple[StateFile, ...]
    taken: tuple[TableAssignment, ...]
    cells: Mapping[str, object]
    buckets: int

    def write(self, folder: ObjectStore) -> None:
        """Keep it."""
        folder.write(_GIVEN, _adapter().dump_json(self))

    @classmethod
    def read(cls, folder: ObjectStore) -> InitialStateIndex:
        """``CorruptState`` when it is not there, or is none."""
        content = folder.read(_GIVEN)
        try:
            return _adapter().validate_json(content or b"")
        except ValidationError as error:
            raise CorruptState(
                f"{folder.url}/{_GIVEN}: {error.errors()[0]['msg']}; restore the savepoint to a new checkpoint"
            ) from error

    def tables(self, stored_stage: int, stage: int) -> frozenset[str]:
        """Return the tables that a stage takes from a file of ``stored_stage``."""
        return frozenset(t.table for t in self.taken if (t.stored_stage, t.stage) == (stored_stage, stage))


def copy_files(
    folder: ObjectStore, savepoint: Savepoint, plan: CompatibilityReport, cells: Mapping[str, object], buckets: int
) -> None:
    """Copy the files of the savepoint that some stage takes, and write their index."""
    taken = tuple(TableAssignment(stored, table, stage) for (stored, table), stage in sorted(plan.stages.items()))
    wanted = {one.stored_stage for one in taken}
    files = tuple(file for file in savepoint.manifest.files if file.stage in wanted)
    with ThreadPoolExecutor(_COPIES) as copies:
        for done in [copies.submit(_copy, savepoint, file, folder) for file in files]:
            done.result()
    InitialStateIndex(files, taken, cells, buckets).write(folder)


def _copy(savepoint: Savepoint, file: StateFile, folder: ObjectStore) -> None:
    folder.write(file.path, savepoint.content(file))


def initial_blobs(folder: ObjectStore, stage: int, shard: int) -> Iterator[tuple[str, bytes]]:
    """Name and content of the blobs that a shard begins with; the head comes last."""
    given = InitialStateIndex.read(folder)
    yield from fresh_log(_rows(folder, given, stage, shard), given.buckets, given.cells)


def _rows(folder: ObjectStore, given: InitialStateIndex, stage: int, shard: int) -> dict[str, pl.DataFrame]:
    """Read the rows that a shard of a stage takes, by table."""
    found: dict[str, list[pl.DataFrame]] = defaultdict(list)
    for file in given.files:
        wanted = given.tables(file.stage, stage) if file.shard == shard else ()
        if wanted:
            for part in read_parts(read_verified(folder, file, f"checkpoint {folder.url}"), file.path):
                if part.table in wanted:
                    found[part.table].append(part.frame)
    return {name: pl.concat(frames) for name, frames in found.items()}


class InitialBlobStore:
    """One shard's blobs in one cut, which may be its first: when it asks for its head and there is none, those that it
    begins with are written.

    They are then read from memory: Spark's store takes longer to give a blob than to take it.
    """

    def __init__(self, blobs: BlobStore, folder: ObjectStore, stage: int, shard: int) -> None:
        self._blobs, self._folder = blobs, folder
        self._place = (stage, shard)
        self._first: dict[str, bytes] = {}

    def get(self, name: str) -> bytes | None:
        found = self._first.get(name)
        if found is None:
            found = self._blobs.get(name)
        if found is None and name == HEAD:
            for first, blob in initial_blobs(self._folder, *self._place):
                self.put(first, blob)
                self._first[first] = blob
            found = self._first[HEAD]
        return found

    def put(self, name: str, blob: bytes) -> None:
        self._first.pop(name, None)
        self._blobs.put(name, blob)

    def remove(self, name: str) -> None:
        self._first.pop(name, None)
        self._blobs.remove(name)


@cache
def _adapter() -> TypeAdapter[InitialStateIndex]:
    return TypeAdapter(InitialStateIndex)
