"""Writes each cut to Iceberg tables exactly once, even if the process is killed at any point: one snapshot per table
and cut.

A commit of an Iceberg table names the snapshot that it follows, and the catalogue rejects it if the table has another
one by then. *Every* commit of the sink makes a snapshot, also the fence, so it succeeds only if nobody has committed
rows since the table was read. The ledger, ``headgate.<app>.<sink>.<lane>`` with ``.epoch``, ``.batch`` and ``.digest``,
is in the properties of the table, which the same commit sets: it outlives snapshots, which may be expired. The summary
of each snapshot has the cut too, for people (``headgate.batch``).

The protocol, for each lane:

1. Read the table. Create it if it does not exist, and reject it if the lane's columns do not fit.
2. If its ledger shows a later epoch, raise ``Fenced``. If it shows an earlier one or none, commit this epoch with an
   empty snapshot. From then on, every commit that an earlier epoch based on an older version is rejected.
3. Add the missing columns, if the table's settings allow it.
4. Read the last written cut from the ledger.
5. Skip the cut that the ledger shows: it is written. Raise ``Fenced`` for an earlier cut, or for the same batch with
   another digest. Otherwise write its data files, and commit them with the ledger in one commit.

A crash before the commit of step 5 leaves files that no snapshot has, which the removal of orphan files of any Iceberg
engine deletes; the cut is written again, to other files. After the commit, the cut is replayed and skipped. After any
failure of step 5, steps 1 to 4 run again, and the ledger then shows whether the cut is written: so a commit whose
answer was lost is not repeated.

The library itself would repeat a rejected commit on top of the newer snapshot, past the fence; ``table`` switches that
off.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError, Fenced, Retryable
from streamcore.sinks.iceberg.schema import add_columns_sql, in_iceberg
from streamcore.sinks.iceberg.settings import IcebergSettings
from streamcore.sinks.iceberg.table import OpenIcebergTable, open_catalog
from streamcore.sinks.lake.columns import check_partitions, missing_columns
from streamcore.sinks.lake.lanes import newest_cut, write_lanes
from streamcore.sinks.lake.rows import shape_rows
from streamcore.sinks.retrying import nothing, retry
from streamcore.sinks.sink import Guarantee, SinkHooks, WriteOutcome, WriteResult, check_same_cut, sink_dependency

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

T = TypeVar("T")


class IcebergStep(enum.StrEnum):
    """The steps of the protocol, as reported to ``SinkHooks.on_step``."""

    CREATED = "created"
    FENCED = "fenced"
    LEDGER_READ = "ledger-read"
    BEFORE_COMMIT = "before-commit"
    COMMITTED = "committed"


@dataclass(slots=True)
class _Lane:
    """A lane's table as it was last read. ``last``: the last cut that this epoch wrote to it, or None."""

    table: OpenIcebergTable
    last: CutId | None


class IcebergSink:
    """Writes some lanes to Iceberg tables. ``columns``: the schema of each lane's rows."""

    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(
        self, settings: IcebergSettings, columns: Mapping[str, pa.Schema], hooks: SinkHooks | None = None
    ) -> None:
        if unlike := settings.tables.keys() ^ columns.keys():
            raise ConfigError(f"iceberg sink {settings.name}: lane {min(unlike)!r} needs both a table and columns")
        self._settings = settings
        self._hooks = hooks or SinkHooks()
        self._system = sink_dependency(f"The catalogue or the storage of sink {settings.name}")
        self._columns = {lane: in_iceberg(lane, schema) for lane, schema in columns.items()}
        for lane, spec in settings.tables.items():
            check_partitions(lane, self._columns[lane], spec.partition_by)
        self._catalog: Catalog | None = None
        self._owner: WriterId | None = None
        self._lanes: dict[str, _Lane] = {}

    @property
    def name(self) -> str:
        """The sink's name, part of the ledger's names."""
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
        for lane in sorted(self._settings.tables):
            self._retry(partial(self._steps_1_to_4, owner, lane), f"open of lane {lane}")
        return newest_cut(lane.last for lane in self._lanes.values())

    def write(self, cut: CutId, rows: Mapping[str, pa.Table]) -> WriteResult:
        """Run step 5 for each lane with rows, and steps 1 to 5 again while the outcome is unknown."""
        return write_lanes(partial(self._write_lane, cut), rows)

    def close(self) -> None:
        """Drop the open tables and the connection to the catalogue."""
        if self._catalog is not None:
            self._catalog.close()
        self._catalog = None
        self._lanes.clear()

    def _steps_1_to_4(self, owner: WriterId, lane: str) -> None:
        spec = self._settings.tables[lane]
        if self._catalog is None:
            self._catalog = open_catalog(self._settings.catalog.read())
        # 1. A table that fits.
        table = OpenIcebergTable.load(spec, self._catalog)
        if table is None:
            OpenIcebergTable.create(spec, self._catalog, self._columns[lane])
            self._hooks.on_step(IcebergStep.CREATED)
            table = OpenIcebergTable.load(spec, self._catalog)
        if table is None:
            raise Retryable(f"iceberg table {spec.table}: does not exist although it was created")
        missing = self._check(lane, table)
        # 2. No process of an earlier epoch commits after this.
        self._fence(owner, lane, table)
        self._hooks.on_step(IcebergStep.FENCED)
        # 3. Existing rows have null in new columns.
        if missing:
            table.add_columns(missing)
        # 4. Any later commit of rows makes this process's next commit fail.
        table = OpenIcebergTable.load(spec, self._catalog) or table
        epoch, last = self._read_ledger(table, lane)
        if epoch != owner.epoch:
            raise Retryable(f"iceberg table {spec.table}: epoch {epoch} took lane {lane} meanwhile")
        self._hooks.on_step(IcebergStep.LEDGER_READ)
        self._lanes[lane] = _Lane(table, last)

    def _check(self, lane: str, table: OpenIcebergTable) -> list[pa.Field]:
        """Return the columns to add. Raise ``ConfigError`` if the table could reject or change values of the lane."""
        spec = self._settings.tables[lane]
        if table.partition_by != spec.partition_by:
            raise ConfigError(
                f"lane {lane}: table {spec.table} is partitioned by {list(table.partition_by)}, the settings have "
                f"{list(spec.partition_by)}; change the settings, or write to another table (partitions are values of "
                "columns here: for days, derive a column of text)"
            )
        missing = missing_columns(lane, self._columns[lane], table.columns)
        if missing and not spec.merge_schema:
            raise ConfigError(
                f"lane {lane}: table {spec.table} lacks {[column.name for column in missing]}; run "
                f"{add_columns_sql(spec.table, missing)}, or set merge_schema"
            )
        return missing

    def _fence(self, owner: WriterId, lane: str, table: OpenIcebergTable) -> None:
        """Commit this epoch, unless the table has it. Raise ``Fenced`` if a later epoch owns the lane."""
        epoch, _ = self._read_ledger(table, lane)
        if epoch is not None and epoch > owner.epoch:
            raise Fenced(f"iceberg table {table.spec.table}: epoch {epoch} owns lane {lane}; this is {owner.epoch}")
        if epoch != owner.epoch:
            table.append(table.columns.empty_table(), *self._entries(lane, None))

    def _read_ledger(self, table: OpenIcebergTable, lane: str) -> tuple[int | None, CutId | None]:
        """Return the last epoch in the table, and the last cut of that epoch."""
        ledger = self._ledger_name(lane)
        epoch, batch, digest = (table.properties.get(f"{ledger}.{part}", "") for part in ("epoch", "batch", "digest"))
        return int(epoch) if epoch else None, CutId(int(batch), digest) if batch else None

    def _ledger_name(self, lane: str) -> str:
        assert self._owner is not None, "opened with an owner"
        return f"headgate.{self._owner.app}.{self.name}.{lane}"

    def _entries(self, lane: str, cut: CutId | None) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return the ledger after a commit, and the entries of its snapshot's summary. ``cut``: None for a fence."""
        assert self._owner is not None, "opened with an owner"
        state = {
            "epoch": str(self._owner.epoch),
            "batch": "" if cut is None else str(cut.batch),
            "digest": "" if cut is None else cut.digest,
        }
        ledger = {f"{self._ledger_name(lane)}.{part}": value for part, value in state.items()}
        where = {"app": self._owner.app, "sink": self.name, "lane": lane}
        return ledger, {f"headgate.{part}": value for part, value in (where | state).items()}

    def _write_lane(self, cut: CutId, lane: str, rows: pa.Table) -> WriteResult:
        if self._owner is None or lane not in self._lanes:
            raise ConfigError(f"iceberg sink {self.name} is not open for lane {lane!r}; call open() before write()")
        before_retry = partial(self._steps_1_to_4, self._owner, lane)
        return self._retry(partial(self._step_5, cut, lane, rows), f"{cut} of lane {lane}", before_retry)

    def _step_5(self, cut: CutId, lane: str, rows: pa.Table) -> WriteResult:
        state, spec = self._lanes[lane], self._settings.tables[lane]
        shaped = shape_rows(lane, rows, state.table.columns, spec.partition_by, empty_is_null=False)
        count = shaped.rows.num_rows
        # 5. Skip a written cut; otherwise commit files and ledger in one commit.
        if state.last is not None:
            check_same_cut(cut, state.last, f"iceberg table {spec.table}")
        if state.last == cut:
            return WriteResult(WriteOutcome.SKIPPED, count, shaped.rejected)
        if not count:
            return WriteResult(WriteOutcome.EMPTY, 0, shaped.rejected)
        self._hooks.on_step(IcebergStep.BEFORE_COMMIT)
        state.table.append(shaped.rows, *self._entries(lane, cut))
        state.last = cut
        self._hooks.on_step(IcebergStep.COMMITTED)
        if spec.keep_snapshots:
            state.table.expire_snapshots(spec.keep_snapshots)
        return WriteResult(WriteOutcome.COMMITTED, count, shaped.rejected)

    def _retry(self, action: Callable[[], T], action_name: str, before_retry: Callable[[], None] = nothing) -> T:
        return retry(action, action_name, self._system, self._hooks, self._settings.patience, before_retry)
