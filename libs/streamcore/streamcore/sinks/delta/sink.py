"""Writes a cut's rows to Delta tables exactly once, whatever dies in between: one commit of a table for each cut.

A commit of a Delta table is one file of its log, made under a name that no other writer may have made before; it lists
data files, and application ids with versions. Two ids are ours: ``<app>.<epoch>.<sink>.<lane>``, the ledger, whose
version is the last cut; and ``<app>.epoch.<sink>.<lane>``, the fence, whose version is the epoch that owns the lane.
*Every* commit of the sink names the fence, and the library refuses a commit if a commit since its base version names
the same id. So a commit goes in only if no writer of this app, sink and lane, of any epoch, committed since the last
look.

The protocol, for each lane:

1. Read the table; make it if there is none, and refuse it if the lane's columns do not fit.
2. If its fence is of a later epoch, ``Fenced``. If it is of an earlier one or there is none, commit ours. From now on
   whatever an earlier epoch prepared, from a version before this, is refused.
3. Add the columns that are missing, if the table's settings say so.
4. Read the ledger: the last cut that is there. Only now, after the fence.
5. A cut that is not above it has been written: skip it. Otherwise write its data files and commit them with the
   ledger and the fence, in one commit.

The state that a crash just after each step leaves:

- 1 (``CREATED``), 2 (``FENCED``), 3 and 4 (``LEDGER_READ``): a table without rows of the cut. Done again next time.
- 5 before its commit (``BEFORE_COMMIT``, or anywhere inside the library): data files that no version lists, which no
  reader sees and the next vacuum deletes. The cut is written again, to other files.
- 5 after it (``COMMITTED``): the cut and its number. Spark replays the cut and step 5 skips it.

**Unknown outcome, and lost races.** After any failure of step 5 nothing is guessed: steps 1 to 4 are done again, after
which the ledger answers. So a commit that got through while its answer was lost is not repeated, and two processes of
one epoch that write the same cut at the same time get it in once: the second is refused, reads the ledger, and skips.

**The reach of the fence.** An owner of an earlier epoch that is about to commit loses, however late it
wakes. One that had not yet noticed gets ``Fenced`` at its next cut. That rests on the storage making a file only if it
is not there: local and network file systems by a hard link, object stores by a conditional put. A cut that an earlier
epoch committed before the fence stays, as with every fence. Two lanes are two tables with a commit each: a reader may
see a cut in one and not yet in the other.

**A power cut** may take the data that the operating system had not written yet: the library does not ask it to. A local
table is as durable as its file system makes files within some seconds; an object store keeps every write that it
confirmed.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pyarrow as pa

from streamcore.errors import ConfigError, Fenced, Retryable
from streamcore.sinks.delta.maintenance import TableMaintenance
from streamcore.sinks.delta.rows import partitions, shape_rows
from streamcore.sinks.delta.schema import check_partitions, in_delta, missing_columns
from streamcore.sinks.delta.settings import DeltaSettings, DeltaTableSpec
from streamcore.sinks.delta.table import OpenTable
from streamcore.sinks.sink import Guarantee, SinkHooks, WriteOutcome, WriteResult
from streamcore.writer_id import WriterId

T = TypeVar("T")


def _nothing() -> None:
    return None


class DeltaStep(enum.StrEnum):
    """Points of the protocol, for ``SinkHooks.reached``."""

    CREATED = "created"
    FENCED = "fenced"
    LEDGER_READ = "ledger-read"
    BEFORE_COMMIT = "before-commit"
    COMMITTED = "committed"


@dataclass(slots=True)
class _Lane:
    """A lane's table as it was last read. ``done``: the last cut that is in it, None without one in this epoch."""

    table: OpenTable
    done: int | None


class DeltaSink:
    """The tables of some lanes. ``columns``: lane -> the form of its rows."""

    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(
        self, settings: DeltaSettings, columns: Mapping[str, pa.Schema], hooks: SinkHooks | None = None
    ) -> None:
        if unlike := settings.tables.keys() ^ columns.keys():
            raise ConfigError(f"delta sink {settings.name}: lane {min(unlike)!r} needs both a table and columns")
        self._settings = settings
        self._hooks = hooks or SinkHooks()
        self._columns = {lane: in_delta(lane, schema) for lane, schema in columns.items()}
        for lane, spec in settings.tables.items():
            check_partitions(lane, self._columns[lane], spec.partition_by)
        self._storage: Mapping[str, str] = {}
        self._owner: WriterId | None = None
        self._lanes: dict[str, _Lane] = {}
        self._upkeep: TableMaintenance | None = None

    @property
    def name(self) -> str:
        """Part of the ledger's key."""
        return self._settings.name

    @property
    def lanes(self) -> frozenset[str]:
        """Those with a table."""
        return frozenset(self._settings.tables)

    def open(self, owner: WriterId) -> int | None:
        """Run steps 1 to 4 for each lane; return the last batch that any of them has."""
        self._owner = owner
        self._storage = self._settings.storage.read()
        self._upkeep = TableMaintenance(self._storage, self._hooks.on_step)
        for lane in sorted(self._settings.tables):
            self._retry(partial(self._steps_1_to_4, lane), f"open of lane {lane}")
            self._upkeep.begin(lane, self._lanes[lane].table.version)
        return max((lane.done for lane in self._lanes.values() if lane.done is not None), default=None)

    def write(self, batch: int, rows: Mapping[str, pa.Table]) -> WriteResult:
        """Step 5 for each lane with rows, and 1 to 4 again while the outcome is unknown."""
        parts = [self._write_lane(batch, lane, rows[lane]) for lane in sorted(rows) if rows[lane].num_rows]
        results = {part.outcome for part in parts}
        result = next((r for r in (WriteOutcome.COMMITTED, WriteOutcome.SKIPPED) if r in results), WriteOutcome.EMPTY)
        return WriteResult(result, sum(p.rows for p in parts), [one for p in parts for one in p.rejected])

    def close(self) -> None:
        """Let go of the tables; upkeep that runs is given a moment."""
        if self._upkeep is not None:
            self._upkeep.close()
        self._upkeep = None
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
            raise Retryable(f"delta table {spec.uri}: is not there although it was made")
        missing = self._check(lane, table)
        # 2. Nobody of an earlier epoch commits after this.
        self._fence(lane, table)
        self._hooks.on_step(DeltaStep.FENCED)
        # 3. Rows that are there have null in new columns.
        if missing:
            table.add_columns(missing, self._fence_mark(lane))
            table = OpenTable.load(spec, self._storage) or table
        # 4. What is there now stays, and whoever adds to it makes our next commit fail.
        done = table.transaction(self._ledger(lane))
        self._hooks.on_step(DeltaStep.LEDGER_READ)
        self._lanes[lane] = _Lane(table, done)

    def _check(self, lane: str, table: OpenTable) -> list[pa.Field]:
        """Return the columns to add; raise ``ConfigError`` for values that the table cannot take or would not keep."""
        spec = self._settings.tables[lane]
        if table.partition_by != spec.partition_by:
            raise ConfigError(
                f"lane {lane}: table {spec.uri} is partitioned by {list(table.partition_by)}, the settings say "
                f"{list(spec.partition_by)}; change the settings, or write to another table"
            )
        if table.constraints:
            raise ConfigError(
                f"lane {lane}: table {spec.uri} has {table.constraints[0]}; drop it: rows would be refused"
            )
        missing = missing_columns(lane, self._columns[lane], table.columns)
        if missing and not spec.merge_schema:
            names = [column.name for column in missing]
            raise ConfigError(f"lane {lane}: table {spec.uri} lacks {names}; add them, or set merge_schema")
        return missing

    def _fence(self, lane: str, table: OpenTable) -> None:
        assert self._owner is not None, "opened with an owner"
        mark = self._fence_mark(lane)
        [(name, epoch)] = mark.items()
        recorded = table.transaction(name)
        if recorded is not None and recorded > epoch:
            raise Fenced(f"delta table {table.spec.uri}: epoch {recorded} owns lane {lane}; this is epoch {epoch}")
        if recorded != epoch:
            table.write_marks(mark)

    def _write_lane(self, batch: int, lane: str, rows: pa.Table) -> WriteResult:
        if self._owner is None or lane not in self._lanes:
            raise ConfigError(f"delta sink {self.name} is not open for lane {lane!r}; call open() before write()")
        write, settle = partial(self._step_5, batch, lane, rows), partial(self._steps_1_to_4, lane)
        return self._retry(write, f"cut {batch} of lane {lane}", settle)

    def _step_5(self, batch: int, lane: str, rows: pa.Table) -> WriteResult:
        state, spec = self._lanes[lane], self._settings.tables[lane]
        good = shape_rows(lane, rows, state.table.columns, spec.partition_by)
        count = good.rows.num_rows
        # 5. Skip what is there; otherwise files, ledger and fence in one commit.
        if state.done is not None and batch <= state.done:
            return WriteResult(WriteOutcome.SKIPPED, count, good.rejected)
        if not count:
            return WriteResult(WriteOutcome.EMPTY, 0, good.rejected)
        self._hooks.on_step(DeltaStep.BEFORE_COMMIT)
        state.table.append(good.rows, self._marks(lane, batch))
        state.done = batch
        self._hooks.on_step(DeltaStep.COMMITTED)
        self._tend(lane, spec, state.table, good.rows)
        return WriteResult(WriteOutcome.COMMITTED, count, good.rejected)

    def _tend(self, lane: str, spec: DeltaTableSpec, table: OpenTable, rows: pa.Table) -> None:
        assert self._upkeep is not None, "open makes it"
        written = partitions(rows, spec.partition_by).to_pylist() if spec.partition_by else []
        self._upkeep.note(lane, spec, table.version, [tuple(one.values()) for one in written])

    def _marks(self, lane: str, batch: int) -> Mapping[str, int]:
        """Return the entries that the commit of a cut records beside its files."""
        return {self._ledger(lane): batch, **self._fence_mark(lane)}

    def _fence_mark(self, lane: str) -> Mapping[str, int]:
        assert self._owner is not None, "opened with an owner"
        return {f"{self._owner.app}.epoch.{self.name}.{lane}": self._owner.epoch}

    def _ledger(self, lane: str) -> str:
        assert self._owner is not None, "opened with an owner"
        return f"{self._owner.app}.{self._owner.epoch}.{self.name}.{lane}"

    def _retry(self, action: Callable[[], T], what: str, settle: Callable[[], None] = _nothing) -> T:
        """Run until it goes through; ``settle`` comes first each time that it was tried before."""
        patience = self._settings.patience
        attempts, pause_ms, deadline = 1, patience.pause_ms, 0.0
        while True:
            try:
                if attempts > 1:
                    settle()
                return action()
            except Retryable as error:
                deadline = deadline or time.monotonic() + patience.recovery_ms / 1000
                if time.monotonic() + pause_ms / 1000 > deadline:
                    raise Retryable(f"{what} did not go through in {attempts} attempts: {error}") from error
            time.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, patience.pause_max_ms)
            attempts += 1
            self._hooks.still_owner()
