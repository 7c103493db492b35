"""Writes each cut to Delta tables exactly once, even if the process is killed at any point: one commit per table and
cut.

A commit of a Delta table creates the next file of its log, whose name no other writer may have created before. The file
lists data files, and application ids with versions. The sink uses three ids per lane. The ledger,
``<app>.<epoch>.<sink>.<lane>``, has the last written batch as its version, and the same id with ``.digest`` the digest
of that cut. The fence, ``<app>.epoch.<sink>.<lane>``, has the epoch that owns the lane. *Every* commit of the sink
names the fence, and the library rejects a commit if any commit since its base version names one of its ids. So a commit
succeeds only if no writer of this app, sink and lane, of any epoch, has committed since the table was read.

The protocol, for each lane:

1. Read the table. Create it if it does not exist, and reject it if the lane's columns do not fit.
2. If its fence shows a later epoch, raise ``Fenced``. If it shows an earlier one or none, commit this epoch's fence.
   From then on, every commit that an earlier epoch based on an older version is rejected.
3. Add the missing columns, if the table's settings allow it.
4. Read the last written cut from the ledger. This comes after the fence, because an earlier process could otherwise
   commit after the read.
5. Skip the cut that the ledger shows: it is written. Raise ``Fenced`` for an earlier cut, or for the same batch with
   another digest. Otherwise write its data files, and commit them with ledger
   and fence in one commit.

The state that a crash just after each step leaves:

- 1 (``CREATED``), 2 (``FENCED``), 3 and 4 (``LEDGER_READ``): a table without rows of the cut. The next process begins
  at step 1.
- 5 before the commit (``BEFORE_COMMIT``, or anywhere inside the library): data files that no version lists. No reader
  sees them and the next vacuum deletes them. The cut is written again, to other files.
- 5 after the commit (``COMMITTED``): the cut, its batch number and digest. Spark replays the cut and step 5 skips it.

**Unknown outcomes and conflicts.** After any failure of step 5 the sink runs steps 1 to 4 again, and the ledger then
shows whether the cut is written. So a commit whose response was lost is not repeated; and if two processes of one
epoch write a cut at the same time, one commit is rejected, and its process reads the ledger and skips the cut.

**The reach of the fence.** A commit of an earlier epoch's owner is rejected, however late it comes, and the owner gets
``Fenced`` at its next attempt. This depends on storage that creates a file only if it does not exist: file systems by a
hard link, object stores by a conditional PUT. A cut that an earlier epoch committed before the fence stays. Each lane
has a table and commits of its own: a reader may see a cut in one table and not yet in another.

**After a power failure** data that the operating system had not yet written may be lost, because the library does not
sync its files. An object store keeps every write that it confirmed.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pyarrow as pa

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError, Fenced, Retryable
from streamcore.sinks.delta.maintenance import TableMaintenance
from streamcore.sinks.delta.schema import in_delta
from streamcore.sinks.delta.settings import DeltaSettings, DeltaTableSpec
from streamcore.sinks.delta.table import OpenTable
from streamcore.sinks.lake.columns import check_partitions, missing_columns
from streamcore.sinks.lake.lanes import newest_cut, write_lanes
from streamcore.sinks.lake.rows import partitions, shape_rows
from streamcore.sinks.retrying import nothing, retry
from streamcore.sinks.sink import Guarantee, SinkHooks, WriteOutcome, WriteResult, check_same_cut, sink_dependency
from streamcore.storage.checked_json import DIGEST_DIGITS

T = TypeVar("T")


class DeltaStep(enum.StrEnum):
    """The steps of the protocol, as reported to ``SinkHooks.on_step``."""

    CREATED = "created"
    FENCED = "fenced"
    LEDGER_READ = "ledger-read"
    BEFORE_COMMIT = "before-commit"
    COMMITTED = "committed"


@dataclass(slots=True)
class _Lane:
    """A lane's table as it was last read. ``last``: the last cut that this epoch wrote to it, or None."""

    table: OpenTable
    last: CutId | None


class DeltaSink:
    """Writes some lanes to Delta tables. ``columns``: the schema of each lane's rows."""

    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(
        self, settings: DeltaSettings, columns: Mapping[str, pa.Schema], hooks: SinkHooks | None = None
    ) -> None:
        if unlike := settings.tables.keys() ^ columns.keys():
            raise ConfigError(f"delta sink {settings.name}: lane {min(unlike)!r} needs both a table and columns")
        self._settings = settings
        self._hooks = hooks or SinkHooks()
        self._store = sink_dependency(f"The storage of sink {settings.name}")
        self._columns = {lane: in_delta(lane, schema) for lane, schema in columns.items()}
        for lane, spec in settings.tables.items():
            check_partitions(lane, self._columns[lane], spec.partition_by)
        self._storage: Mapping[str, str] = {}
        self._owner: WriterId | None = None
        self._lanes: dict[str, _Lane] = {}
        self._maintenance: TableMaintenance | None = None

    @property
    def name(self) -> str:
        """The sink's name, part of the ledger's id."""
        return self._settings.name

    @property
    def lanes(self) -> frozenset[str]:
        """The lanes that have a table."""
        return frozenset(self._settings.tables)

    def open(self, owner: WriterId) -> CutId | None:
        """Run steps 1 to 4 for each lane. Return the last cut that this epoch has written to any of them, or None.

        Raises the errors of ``Sink.open``, and ``Retryable``.
        """
        self._owner = owner
        self._storage = self._settings.storage.read()
        self._maintenance = TableMaintenance(self._storage, self._hooks.on_step)
        for lane in sorted(self._settings.tables):
            self._retry(partial(self._steps_1_to_4, lane), f"open of lane {lane}")
            self._maintenance.begin(lane, self._lanes[lane].table.version)
        return newest_cut(lane.last for lane in self._lanes.values())

    def write(self, cut: CutId, rows: Mapping[str, pa.Table]) -> WriteResult:
        """Run step 5 for each lane with rows, and steps 1 to 5 again while the outcome is unknown."""
        return write_lanes(partial(self._write_lane, cut), rows)

    def close(self) -> None:
        """Drop the open tables. Wait up to some seconds for running maintenance."""
        if self._maintenance is not None:
            self._maintenance.close()
        self._maintenance = None
        self._lanes.clear()

    def _steps_1_to_4(self, lane: str) -> None:
        spec = self._settings.tables[lane]
        # 1. A table that fits.
        table = OpenTable.load(spec, self._storage)
        if table is None:
            OpenTable.create(spec, self._storage, self._columns[lane])
            self._hooks.on_step(DeltaStep.CREATED)
            table = OpenTable.load(spec, self._storage)
        if table is None:
            raise Retryable(f"delta table {spec.uri}: does not exist although it was created")
        missing = self._check(lane, table)
        # 2. No process of an earlier epoch commits after this.
        self._fence(lane, table)
        self._hooks.on_step(DeltaStep.FENCED)
        # 3. Existing rows have null in new columns.
        if missing:
            table.add_columns(missing, self._fence_mark(lane))
            table = OpenTable.load(spec, self._storage) or table
        # 4. Any later commit of another process of this app, sink and lane makes this process's next commit fail.
        batch, digest = (table.transaction(name) for name in self._ledger_ids(lane))
        self._hooks.on_step(DeltaStep.LEDGER_READ)
        self._lanes[lane] = _Lane(table, None if batch is None else CutId(batch, f"{digest or 0:0{DIGEST_DIGITS}x}"))

    def _check(self, lane: str, table: OpenTable) -> list[pa.Field]:
        """Return the columns to add. Raise ``ConfigError`` if the table could reject or change values of the lane."""
        spec = self._settings.tables[lane]
        if table.partition_by != spec.partition_by:
            raise ConfigError(
                f"lane {lane}: table {spec.uri} is partitioned by {list(table.partition_by)}, the settings have "
                f"{list(spec.partition_by)}; change the settings, or write to another table"
            )
        if table.constraints:
            raise ConfigError(
                f"lane {lane}: table {spec.uri} has {table.constraints[0]}; drop it: rows would be rejected"
            )
        missing = missing_columns(lane, self._columns[lane], table.columns)
        if missing and not spec.merge_schema:
            names = [column.name for column in missing]
            raise ConfigError(f"lane {lane}: table {spec.uri} lacks {names}; add them, or set merge_schema")
        return missing

    def _fence(self, lane: str, table: OpenTable) -> None:
        """Commit this epoch's fence, unless the table has it. Raise ``Fenced`` if a later epoch owns the lane."""
        assert self._owner is not None, "opened with an owner"
        mark = self._fence_mark(lane)
        [(name, epoch)] = mark.items()
        recorded = table.transaction(name)
        if recorded is not None and recorded > epoch:
            raise Fenced(f"delta table {table.spec.uri}: epoch {recorded} owns lane {lane}; this is epoch {epoch}")
        if recorded != epoch:
            table.write_marks(mark)

    def _write_lane(self, cut: CutId, lane: str, rows: pa.Table) -> WriteResult:
        if self._owner is None or lane not in self._lanes:
            raise ConfigError(f"delta sink {self.name} is not open for lane {lane!r}; call open() before write()")
        write, before_retry = partial(self._step_5, cut, lane, rows), partial(self._steps_1_to_4, lane)
        return self._retry(write, f"{cut} of lane {lane}", before_retry)

    def _step_5(self, cut: CutId, lane: str, rows: pa.Table) -> WriteResult:
        state, spec = self._lanes[lane], self._settings.tables[lane]
        shaped = shape_rows(lane, rows, state.table.columns, spec.partition_by)
        count = shaped.rows.num_rows
        # 5. Skip a written cut; otherwise commit files, ledger and fence in one commit.
        if state.last is not None:
            check_same_cut(cut, state.last, f"delta table {spec.uri}")
        if state.last == cut:
            return WriteResult(WriteOutcome.SKIPPED, count, shaped.rejected)
        if not count:
            return WriteResult(WriteOutcome.EMPTY, 0, shaped.rejected)
        self._hooks.on_step(DeltaStep.BEFORE_COMMIT)
        state.table.append(shaped.rows, self._marks(lane, cut))
        state.last = cut
        self._hooks.on_step(DeltaStep.COMMITTED)
        self._note_maintenance(lane, spec, state.table, shaped.rows)
        return WriteResult(WriteOutcome.COMMITTED, count, shaped.rejected)

    def _note_maintenance(self, lane: str, spec: DeltaTableSpec, table: OpenTable, rows: pa.Table) -> None:
        """Report the partitions of the committed rows to the maintenance."""
        assert self._maintenance is not None, "open creates it"
        written = partitions(rows, spec.partition_by).to_pylist() if spec.partition_by else []
        self._maintenance.note(lane, spec, table.version, [tuple(partition.values()) for partition in written])

    def _marks(self, lane: str, cut: CutId) -> Mapping[str, int]:
        """Return the application versions that the commit of a cut records: ledger and fence."""
        batch_id, digest_id = self._ledger_ids(lane)
        return {batch_id: cut.batch, digest_id: int(cut.digest, 16), **self._fence_mark(lane)}

    def _fence_mark(self, lane: str) -> Mapping[str, int]:
        """Return the fence's application id with this epoch as its version."""
        assert self._owner is not None, "opened with an owner"
        return {f"{self._owner.app}.epoch.{self.name}.{lane}": self._owner.epoch}

    def _ledger_ids(self, lane: str) -> tuple[str, str]:
        """Return the ledger's application ids in this epoch, of the batch and of the digest of the last cut."""
        assert self._owner is not None, "opened with an owner"
        ledger = f"{self._owner.app}.{self._owner.epoch}.{self.name}.{lane}"
        return ledger, f"{ledger}.digest"

    def _retry(self, action: Callable[[], T], action_name: str, before_retry: Callable[[], None] = nothing) -> T:
        return retry(action, action_name, self._store, self._hooks, self._settings.patience, before_retry)
