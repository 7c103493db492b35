"""What the shards of a checkpoint that was made from a savepoint begin with.

A folder: the savepoint's files that somebody takes, as they are, and one that says which stage takes which of their
tables (``Given``). A shard that has no head yet reads its own files there, in the process that runs it: shards are read
side by side, and what crosses to the state store crosses once. Promises: the same folder gives a shard the same blobs
whenever it asks, so an attempt that was not committed is repeated as it was; a file that is not what was written is
``CorruptState``. Refuses to know where the blobs are kept.
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
from streamcore.savepoint.folder import Savepoint, content_of
from streamcore.savepoint.manifest import StateFile
from streamcore.savepoint.parts import read_parts
from streamcore.savepoint.plan import RestorePlan
from streamcore.state.blobs import BlobStore
from streamcore.state.log import HEAD, fresh_log
from streamcore.storage import Folder

_GIVEN = "given.json"
#: Files that are copied at once: each is in memory meanwhile.
_COPIES = 4


@dataclass(frozen=True, slots=True)
class Taken:
    """A table as it is stored, and the stage that takes it."""

    stored_stage: int
    table: str
    stage: int


@dataclass(frozen=True, slots=True)
class Given:
    """``files`` of the savepoint, and what is ``taken`` from them. ``cells``: of every shard, also of one without rows.
    ``buckets``: of the logs that are made of them."""

    files: tuple[StateFile, ...]
    taken: tuple[Taken, ...]
    cells: Mapping[str, object]
    buckets: int

    def write(self, folder: Folder) -> None:
        """Keep it."""
        folder.write(_GIVEN, _adapter().dump_json(self))

    @classmethod
    def read(cls, folder: Folder) -> Given:
        """``CorruptState`` when it is not there, or is none."""
        content = folder.read(_GIVEN)
        try:
            return _adapter().validate_json(content or b"")
        except ValidationError as error:
            raise CorruptState(
                f"{folder.url}/{_GIVEN}: {error.errors()[0]['msg']}; restore the savepoint to a new checkpoint"
            ) from error

    def tables(self, stored_stage: int, stage: int) -> frozenset[str]:
        """What a stage takes from a file of that stage."""
        return frozenset(t.table for t in self.taken if (t.stored_stage, t.stage) == (stored_stage, stage))


def fill(folder: Folder, savepoint: Savepoint, plan: RestorePlan, cells: Mapping[str, object], buckets: int) -> None:
    """Put into a folder what shards begin with."""
    taken = tuple(Taken(stored, table, stage) for (stored, table), stage in sorted(plan.stages.items()))
    wanted = {one.stored_stage for one in taken}
    files = tuple(file for file in savepoint.manifest.files if file.stage in wanted)
    with ThreadPoolExecutor(_COPIES) as copies:
        for done in [copies.submit(_copy, savepoint, file, folder) for file in files]:
            done.result()
    Given(files, taken, cells, buckets).write(folder)


def _copy(savepoint: Savepoint, file: StateFile, folder: Folder) -> None:
    folder.write(file.path, savepoint.content(file))


def first_blobs(folder: Folder, stage: int, shard: int) -> Iterator[tuple[str, bytes]]:
    """Name and content of the blobs that a shard begins with; the head comes last."""
    given = Given.read(folder)
    yield from fresh_log(_rows(folder, given, stage, shard), given.buckets, given.cells)


def _rows(folder: Folder, given: Given, stage: int, shard: int) -> dict[str, pl.DataFrame]:
    """What a shard of a stage takes, by table."""
    found: dict[str, list[pl.DataFrame]] = defaultdict(list)
    for file in given.files:
        wanted = given.tables(file.stage, stage) if file.shard == shard else ()
        if wanted:
            for part in read_parts(content_of(folder, file, f"checkpoint {folder.url}"), file.path):
                if part.table in wanted:
                    found[part.table].append(part.frame)
    return {name: pl.concat(frames) for name, frames in found.items()}


class FirstBlobs:
    """One shard's blobs in one cut, which may be its first: when it asks for its head and there is none, those that it
    begins with are written.

    They are then read from memory: Spark's store takes longer to give a blob than to take it.
    """

    def __init__(self, blobs: BlobStore, folder: Folder, stage: int, shard: int) -> None:
        self._blobs, self._folder = blobs, folder
        self._place = (stage, shard)
        self._first: dict[str, bytes] = {}

    def get(self, name: str) -> bytes | None:
        found = self._first.get(name)
        if found is None:
            found = self._blobs.get(name)
        if found is None and name == HEAD:
            for first, blob in first_blobs(self._folder, *self._place):
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
def _adapter() -> TypeAdapter[Given]:
    return TypeAdapter(Given)
