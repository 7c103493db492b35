"""The protocol of a sink of lake tables, whatever their format: one commit of a table for each cut.

A format adds how a table is read, fenced and committed (``TableSink``'s abstract methods); its module says why its
commits hold the promise. For each lane:

1. Read the table. Create it if it does not exist, and reject it if the lane's columns do not fit.
2. Fence processes of earlier epochs, or raise ``Fenced`` if a later one owns the lane.
3. Add the missing columns, if the table's settings allow it.
4. Read the last written cut from the ledger.
5. Skip the cut that the ledger shows. Raise ``Fenced`` for an earlier cut, or for the same batch with another digest.
   Otherwise write its files, and commit them with ledger and fence in one commit.

After any failure of step 5, steps 1 to 4 run again, and the ledger then shows whether the cut is written.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Generic, Protocol, TypeVar

import pyarrow as pa

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError, Retryable
from streamcore.sinks.lake.columns import check_partitions, missing_columns
from streamcore.sinks.lake.lanes import newest_cut, write_lanes
from streamcore.sinks.lake.rows import shape_rows
from streamcore.sinks.retrying import nothing, retry
from streamcore.sinks.sink import (
    Guarantee,
    RetryPolicy,
    SinkHooks,
    WriteOutcome,
    WriteResult,
    check_same_cut,
    sink_dependency,
)


class TableStep(enum.StrEnum):
    """The steps of the protocol, as reported to ``SinkHooks.on_step``."""

    CREATED = "created"
    FENCED = "fenced"
    LEDGER_READ = "ledger-read"
    BEFORE_COMMIT = "before-commit"
    COMMITTED = "committed"


class LakeTable(Protocol):
    """One version of a table, and commits based on it."""

    @property
    def columns(self) -> pa.Schema:
        """The table's columns."""
        ...

    @property
    def partition_by(self) -> Sequence[str]:
        """The table's partition columns."""
        ...


class LakeTableSpec(Protocol):
    """The settings of a lane's table."""

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns of a new table."""
        ...

    @property
    def merge_schema(self) -> bool:
        """Whether missing columns are added."""
        ...


T = TypeVar("T")
TableT = TypeVar("TableT", bound=LakeTable)
SpecT = TypeVar("SpecT", bound=LakeTableSpec)


@dataclass(slots=True)
class OpenLane(Generic[TableT]):
    """A lane's table as it was last read. ``last``: the last cut that this epoch wrote to it, or None."""

    table: TableT
    last: CutId | None


class TableSink(ABC, Generic[SpecT, TableT]):
    """Writes some lanes to tables. ``columns``: the schema of each lane's rows, as the format has it."""

    guarantee = Guarantee.EXACTLY_ONCE
    #: The format's name, for messages.
    kind: ClassVar[str]
    #: Whether folders name partition values, so that an empty text is written as null.
    empty_is_null: ClassVar[bool] = True
    #: What a message about other partition columns adds.
    partition_hint: ClassVar[str] = ""

    def __init__(
        self,
        name: str,
        tables: Mapping[str, SpecT],
        columns: Mapping[str, pa.Schema],
        patience: RetryPolicy,
        hooks: SinkHooks | None,
    ) -> None:
        if unlike := tables.keys() ^ columns.keys():
            raise ConfigError(f"{self.kind} sink {name}: lane {min(unlike)!r} needs both a table and columns")
        for lane, spec in tables.items():
            check_partitions(lane, columns[lane], spec.partition_by)
        self._name = name
        self._tables = tables
        self._columns = columns
        self._patience = patience
        self._hooks = hooks or SinkHooks()
        self._system = sink_dependency(f"{self._system_name()} of sink {name}")
        self._owner: WriterId | None = None
        self._lanes: dict[str, OpenLane[TableT]] = {}

    @property
    def name(self) -> str:
        """The sink's name, part of the ledger's names."""
        return self._name

    @property
    def lanes(self) -> frozenset[str]:
        """The lanes that have a table."""
        return frozenset(self._tables)

    def open(self, owner: WriterId) -> CutId | None:
        """Run steps 1 to 4 for each lane. Return the last cut that this epoch has written to any of them, or None.

        Raises the errors of ``Sink.open``, and ``Retryable``.
        """
        self._owner = owner
        for lane in sorted(self._tables):
            self._retry(partial(self._steps_1_to_4, lane), f"open of lane {lane}")
        return newest_cut(lane.last for lane in self._lanes.values())

    def write(self, cut: CutId, rows: Mapping[str, pa.Table]) -> WriteResult:
        """Run step 5 for each lane with rows, and steps 1 to 5 again while the outcome is unknown."""
        return write_lanes(partial(self._write_lane, cut), rows)

    def close(self) -> None:
        """Drop the open tables."""
        self._lanes.clear()

    # --- what a format adds -------------------------------------------------------------------------------------

    @abstractmethod
    def _system_name(self) -> str:
        """Return the name of the server, for messages."""

    @abstractmethod
    def _table_name(self, spec: SpecT) -> str:
        """Return the name of a table, for messages."""

    @abstractmethod
    def _load(self, spec: SpecT) -> TableT | None:
        """Return the newest version of a table; None if it does not exist."""

    @abstractmethod
    def _create(self, spec: SpecT, columns: pa.Schema) -> None:
        """Create an empty table. Raise ``Retryable`` if another writer created it first."""

    @abstractmethod
    def _explain_missing(self, spec: SpecT, missing: Sequence[pa.Field]) -> str:
        """Return how an operator adds these columns."""

    @abstractmethod
    def _fence(self, lane: str, table: TableT) -> None:
        """Commit this epoch, unless the table has it. Raise ``Fenced`` if a later epoch owns the lane."""

    @abstractmethod
    def _steps_3_and_4(self, lane: str, table: TableT, missing: list[pa.Field]) -> OpenLane[TableT]:
        """Add the columns; return the table as it is then, with the last cut of this epoch."""

    @abstractmethod
    def _commit(self, lane: str, table: TableT, cut: CutId, rows: pa.Table) -> None:
        """Write the rows to new files and commit them with ledger and fence, atomically."""

    def _after_commit(self, lane: str, table: TableT, rows: pa.Table) -> None:
        """Do the upkeep of a table."""

    # --- the protocol -------------------------------------------------------------------------------------------

    def _steps_1_to_4(self, lane: str) -> None:
        spec = self._tables[lane]
        # 1. A table that fits.
        table = self._load(spec)
        if table is None:
            self._create(spec, self._columns[lane])
            self._hooks.on_step(TableStep.CREATED)
            table = self._load(spec)
        if table is None:
            raise Retryable(f"{self.kind} table {self._table_name(spec)}: does not exist although it was created")
        missing = self._check(lane, table)
        # 2. No process of an earlier epoch commits after this.
        self._fence(lane, table)
        self._hooks.on_step(TableStep.FENCED)
        # 3. Existing rows have null in new columns.
        # 4. Any later commit of another process of this app, sink and lane makes this process's next commit fail.
        found = self._steps_3_and_4(lane, table, missing)
        self._hooks.on_step(TableStep.LEDGER_READ)
        self._lanes[lane] = found

    def _check(self, lane: str, table: TableT) -> list[pa.Field]:
        """Return the columns to add. Raise ``ConfigError`` if the table could reject or change values of the lane."""
        spec, name = self._tables[lane], self._table_name(self._tables[lane])
        if tuple(table.partition_by) != spec.partition_by:
            raise ConfigError(
                f"lane {lane}: table {name} is partitioned by {list(table.partition_by)}, the settings have "
                f"{list(spec.partition_by)}; change the settings, or write to another table{self.partition_hint}"
            )
        missing = missing_columns(lane, self._columns[lane], table.columns)
        if missing and not spec.merge_schema:
            names = [column.name for column in missing]
            how = self._explain_missing(spec, missing)
            raise ConfigError(f"lane {lane}: table {name} lacks {names}; {how}, or set merge_schema")
        return missing

    def _write_lane(self, cut: CutId, lane: str, rows: pa.Table) -> WriteResult:
        if self._owner is None or lane not in self._lanes:
            raise ConfigError(f"{self.kind} sink {self.name} is not open for lane {lane!r}; call open() before write()")
        write, before_retry = partial(self._step_5, cut, lane, rows), partial(self._steps_1_to_4, lane)
        return self._retry(write, f"{cut} of lane {lane}", before_retry)

    def _step_5(self, cut: CutId, lane: str, rows: pa.Table) -> WriteResult:
        state, spec = self._lanes[lane], self._tables[lane]
        shaped = shape_rows(lane, rows, state.table.columns, spec.partition_by, empty_is_null=self.empty_is_null)
        count = shaped.rows.num_rows
        # 5. Skip a written cut; otherwise commit files, ledger and fence in one commit.
        if state.last is not None:
            check_same_cut(cut, state.last, f"{self.kind} table {self._table_name(spec)}")
        if state.last == cut:
            return WriteResult(WriteOutcome.SKIPPED, count, shaped.rejected)
        if not count:
            return WriteResult(WriteOutcome.EMPTY, 0, shaped.rejected)
        self._hooks.on_step(TableStep.BEFORE_COMMIT)
        self._commit(lane, state.table, cut, shaped.rows)
        state.last = cut
        self._hooks.on_step(TableStep.COMMITTED)
        self._after_commit(lane, state.table, shaped.rows)
        return WriteResult(WriteOutcome.COMMITTED, count, shaped.rejected)

    def _retry(self, action: Callable[[], T], action_name: str, before_retry: Callable[[], None] = nothing) -> T:
        return retry(action, action_name, self._system, self._hooks, self._patience, before_retry)
