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

The library itself would repeat a rejected commit on top of the newer snapshot, past the fence; ``catalog`` has
transactions that do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from streamcore.cuts.cut_id import CutId
from streamcore.errors import Fenced, Retryable
from streamcore.sinks.iceberg.schema import add_columns_sql, in_iceberg
from streamcore.sinks.iceberg.settings import IcebergSettings, IcebergTableSpec
from streamcore.sinks.iceberg.table import OpenIcebergTable, open_catalog
from streamcore.sinks.lake.table_sink import OpenLane, TableSink
from streamcore.sinks.sink import SinkHooks

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


class IcebergSink(TableSink[IcebergTableSpec, OpenIcebergTable]):
    """Writes some lanes to Iceberg tables. ``columns``: the schema of each lane's rows."""

    kind = "iceberg"
    empty_is_null = False
    partition_hint = " (partitions are values of columns here: for days, derive a column of text)"

    def __init__(
        self, settings: IcebergSettings, columns: Mapping[str, pa.Schema], hooks: SinkHooks | None = None
    ) -> None:
        in_table = {lane: in_iceberg(lane, schema) for lane, schema in columns.items()}
        super().__init__(settings.name, settings.tables, in_table, settings.patience, hooks)
        self._settings = settings
        self._connected: Catalog | None = None

    def close(self) -> None:
        """Drop the open tables and the connection to the catalogue."""
        if self._connected is not None:
            self._connected.close()
        self._connected = None
        super().close()

    @property
    def _catalog(self) -> Catalog:
        if self._connected is None:
            self._connected = open_catalog(self._settings.catalog.read())
        return self._connected

    def _system_name(self) -> str:
        return "The catalogue or the storage"

    def _table_name(self, spec: IcebergTableSpec) -> str:
        return spec.table

    def _load(self, spec: IcebergTableSpec) -> OpenIcebergTable | None:
        return OpenIcebergTable.load(spec, self._catalog)

    def _create(self, spec: IcebergTableSpec, columns: pa.Schema) -> None:
        OpenIcebergTable.create(spec, self._catalog, columns)

    def _explain_missing(self, spec: IcebergTableSpec, missing: Sequence[pa.Field]) -> str:
        return f"run {add_columns_sql(spec.table, missing)}"

    def _fence(self, lane: str, table: OpenIcebergTable) -> None:
        assert self._owner is not None, "opened with an owner"
        epoch, _ = self._read_ledger(table, lane)
        mine = self._owner.epoch
        if epoch is not None and epoch > mine:
            raise Fenced(f"iceberg table {table.spec.table}: epoch {epoch} owns lane {lane}; this is {mine}")
        if epoch != mine:
            table.append(table.columns.empty_table(), *self._entries(lane, None))

    def _steps_3_and_4(self, lane: str, table: OpenIcebergTable, missing: list[pa.Field]) -> OpenLane[OpenIcebergTable]:
        assert self._owner is not None, "opened with an owner"
        if missing:
            table.add_columns(missing)
        table = self._load(table.spec) or table
        epoch, last = self._read_ledger(table, lane)
        if epoch != self._owner.epoch:
            raise Retryable(f"iceberg table {table.spec.table}: epoch {epoch} took lane {lane} meanwhile")
        return OpenLane(table, last)

    def _commit(self, lane: str, table: OpenIcebergTable, cut: CutId, rows: pa.Table) -> None:
        table.append(rows, *self._entries(lane, cut))

    def _after_commit(self, _lane: str, table: OpenIcebergTable, _rows: pa.Table) -> None:
        """Expire old snapshots."""
        if table.spec.keep_snapshots:
            table.expire_snapshots(table.spec.keep_snapshots)

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
