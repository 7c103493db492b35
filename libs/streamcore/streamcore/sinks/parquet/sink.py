"""Writes each cut to folders of Parquet files exactly once, even if the process is killed at any point.

The files of a cut have names of app, lane, epoch, batch and the cut's digest, and are written whole: a cut that is
written again replaces them by equal ones. A file counts for a reader if a note of the folder names it; the notes are a
log of numbered documents, each created only if no other writer has created its number (``notes``). The protocol, for
each lane:

1. Read the last note. Reject the folder if it has another app, lane or partition columns, or a column of another type.
2. If the note shows a later epoch, raise ``Fenced``. If it shows an earlier one, or there is none, create the next note
   with this epoch and no files. From then on a writer of an earlier epoch, which read an earlier note, creates no note.
3. Read the last written cut from the note. Skip a cut that it shows; raise ``Fenced`` for an earlier one, or for the
   same batch with another digest. Otherwise write the files, and create the next note with them.

The state that a crash just after each step leaves:

- 2 (``FENCED``): a note without files.
- 3 before the note (``FILE_WRITTEN``, ``BEFORE_COMMIT``): files that no note names. The cut is written again, to the
  same names.
- 3 after the note (``COMMITTED``): the cut. It is replayed, and skipped.

After any failure of step 3, steps 1 and 2 run again, and the last note shows whether the cut is written.

Files that no note names stay if an epoch ends within a cut, because a savepoint is restored then: a reader that lists
the folder sees them, one that reads the notes does not.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError, Fenced, Retryable
from streamcore.sinks.lake.columns import check_partitions
from streamcore.sinks.lake.lanes import newest_cut, write_lanes
from streamcore.sinks.lake.rows import shape_rows
from streamcore.sinks.parquet.files import encode_files, in_parquet
from streamcore.sinks.parquet.notes import FolderLog, FolderNote
from streamcore.sinks.parquet.settings import ParquetSettings
from streamcore.sinks.retrying import nothing, retry
from streamcore.sinks.sink import Guarantee, SinkHooks, WriteOutcome, WriteResult, check_same_cut, sink_dependency
from streamcore.storage import ObjectStore, open_object_store

T = TypeVar("T")

#: Files that are written side by side: in a bucket each is a request.
_THREADS: Final = 8


class ParquetStep(enum.StrEnum):
    """The steps of the protocol, as reported to ``SinkHooks.on_step``."""

    FENCED = "fenced"
    FILE_WRITTEN = "file-written"
    BEFORE_COMMIT = "before-commit"
    COMMITTED = "committed"


@dataclass(slots=True)
class _Folder:
    """A lane's folder with its last note."""

    store: ObjectStore
    log: FolderLog
    number: int
    note: FolderNote


class ParquetSink:
    """Writes some lanes to folders of Parquet files. ``columns``: the schema of each lane's rows."""

    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(
        self, settings: ParquetSettings, columns: Mapping[str, pa.Schema], hooks: SinkHooks | None = None
    ) -> None:
        if unlike := settings.tables.keys() ^ columns.keys():
            raise ConfigError(f"parquet sink {settings.name}: lane {min(unlike)!r} needs both a folder and columns")
        self._settings = settings
        self._hooks = hooks or SinkHooks()
        self._system = sink_dependency(f"The storage of sink {settings.name}")
        self._columns = {lane: in_parquet(lane, schema) for lane, schema in columns.items()}
        for lane, spec in settings.tables.items():
            check_partitions(lane, self._columns[lane], spec.partition_by)
        self._owner: WriterId | None = None
        self._folders: dict[str, _Folder] = {}

    @property
    def name(self) -> str:
        """The sink's name, part of each note."""
        return self._settings.name

    @property
    def lanes(self) -> frozenset[str]:
        """The lanes that have a folder."""
        return frozenset(self._settings.tables)

    def open(self, owner: WriterId) -> CutId | None:
        """Run steps 1 and 2 for each lane. Return the last cut that this epoch has written to any of them, or None.

        Raises the errors of ``Sink.open``, and ``Retryable``.
        """
        self._owner = owner
        for lane in sorted(self._settings.tables):
            self._retry(partial(self._steps_1_and_2, owner, lane), f"open of lane {lane}")
        return newest_cut(folder.note.last for folder in self._folders.values())

    def write(self, cut: CutId, rows: Mapping[str, pa.Table]) -> WriteResult:
        """Run step 3 for each lane with rows, and steps 1 to 3 again while the outcome is unknown."""
        return write_lanes(partial(self._write_lane, cut), rows)

    def close(self) -> None:
        """Forget the folders. No connection is open."""
        self._folders.clear()

    def _steps_1_and_2(self, owner: WriterId, lane: str) -> None:
        spec = self._settings.tables[lane]
        log = FolderLog(spec.uri)
        # 1. A folder that fits.
        number, last = log.read_last()
        mine = FolderNote(
            owner.app,
            self.name,
            lane,
            owner.epoch,
            None,
            None,
            0,
            [],
            list(spec.partition_by),
            self._merge_columns(lane, {} if last is None else last.columns),
        )
        if last is not None:
            self._check(lane, last, mine)
        # 2. No process of an earlier epoch creates a note after this.
        if last is not None and last.epoch > owner.epoch:
            raise Fenced(f"parquet folder {spec.uri}: epoch {last.epoch} owns lane {lane}; this is epoch {owner.epoch}")
        if last is None or last.epoch < owner.epoch:
            number, last = number + 1, mine
            if not log.create(number, mine):
                raise Retryable(f"parquet folder {spec.uri}: another process wrote note {number} first")
        self._hooks.on_step(ParquetStep.FENCED)
        note = replace(last, columns=mine.columns)
        self._folders[lane] = _Folder(open_object_store(spec.uri), log, number, note)

    def _check(self, lane: str, last: FolderNote, mine: FolderNote) -> None:
        """Raise ``ConfigError`` if the folder is another writer's, or has other partition columns."""
        uri = self._settings.tables[lane].uri
        if (last.app, last.sink, last.lane) != (mine.app, mine.sink, mine.lane):
            raise ConfigError(
                f"lane {lane}: parquet folder {uri} has the rows of app {last.app}, sink {last.sink}, lane {last.lane}"
                "; write to a folder of its own"
            )
        if list(last.partition_by) != list(mine.partition_by):
            raise ConfigError(
                f"lane {lane}: parquet folder {uri} is partitioned by {list(last.partition_by)}, the settings have "
                f"{list(mine.partition_by)}; change the settings, or write to another folder"
            )

    def _merge_columns(self, lane: str, stored: Mapping[str, str]) -> Mapping[str, str]:
        """Return the types of the columns in files so far and of the lane's. Raise ``ConfigError`` for a new type."""
        columns = {column.name: str(column.type) for column in self._columns[lane]}
        for name, there in stored.items():
            if columns.get(name, there) != there:
                raise ConfigError(
                    f"lane {lane}: column {name} is {columns[name]} here and {there} in the files of "
                    f"{self._settings.tables[lane].uri}; a column's type never changes: use another name, or another "
                    "folder"
                )
        return {**stored, **columns}

    def _write_lane(self, cut: CutId, lane: str, rows: pa.Table) -> WriteResult:
        if self._owner is None or lane not in self._folders:
            raise ConfigError(f"parquet sink {self.name} is not open for lane {lane!r}; call open() before write()")
        before_retry = partial(self._steps_1_and_2, self._owner, lane)
        return self._retry(partial(self._step_3, cut, lane, rows), f"{cut} of lane {lane}", before_retry)

    def _step_3(self, cut: CutId, lane: str, rows: pa.Table) -> WriteResult:
        folder, spec = self._folders[lane], self._settings.tables[lane]
        shaped = shape_rows(lane, rows, self._columns[lane], spec.partition_by)
        count = shaped.rows.num_rows
        # 3. Skip a written cut; otherwise write its files, then the note that makes them count.
        if folder.note.last is not None:
            check_same_cut(cut, folder.note.last, f"parquet folder {spec.uri}")
        if self._is_written(folder.note, cut):
            return WriteResult(WriteOutcome.SKIPPED, count, shaped.rejected)
        if not count:
            return WriteResult(WriteOutcome.EMPTY, 0, shaped.rejected)
        files = self._write_files(folder.store, cut, lane, shaped.rows)
        self._hooks.on_step(ParquetStep.BEFORE_COMMIT)
        note = replace(folder.note, batch=cut.batch, digest=cut.digest, rows=count, files=files)
        if not folder.log.create(folder.number + 1, note):
            raise Retryable(f"parquet folder {spec.uri}: another process wrote note {folder.number + 1} first")
        folder.number, folder.note = folder.number + 1, note
        self._hooks.on_step(ParquetStep.COMMITTED)
        return WriteResult(WriteOutcome.COMMITTED, count, shaped.rejected)

    def _is_written(self, note: FolderNote, cut: CutId) -> bool:
        return note.last == cut

    def _file_name(self, cut: CutId, lane: str) -> str:
        """Return the name of the cut's files, the same whenever the cut is written."""
        assert self._owner is not None, "opened with an owner"
        return f"{self._owner.app}-{lane}-{self._owner.epoch}-{cut.batch}-{cut.digest}.parquet"

    def _write_files(self, store: ObjectStore, cut: CutId, lane: str, rows: pa.Table) -> list[str]:
        """Write the files of a cut; return their paths."""

        def write(file: tuple[str, pa.Buffer]) -> str:
            path, content = file
            store.write(path, content.to_pybytes())
            self._hooks.on_step(ParquetStep.FILE_WRITTEN)
            return path

        files = encode_files(rows, self._settings.tables[lane].partition_by, self._file_name(cut, lane))
        if not self._settings.tables[lane].partition_by:
            return [*map(write, files)]
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="parquet") as pool:
            return [*pool.map(write, files)]

    def _retry(self, action: Callable[[], T], action_name: str, before_retry: Callable[[], None] = nothing) -> T:
        return retry(action, action_name, self._system, self._hooks, self._settings.patience, before_retry)
