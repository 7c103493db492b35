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

from collections.abc import Mapping, Sequence

import pyarrow as pa

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError, Fenced
from streamcore.sinks.delta.maintenance import TableMaintenance
from streamcore.sinks.delta.schema import in_delta
from streamcore.sinks.delta.settings import DeltaSettings, DeltaTableSpec
from streamcore.sinks.delta.table import OpenTable
from streamcore.sinks.lake.rows import partitions
from streamcore.sinks.lake.table_sink import OpenLane, TableSink
from streamcore.sinks.sink import SinkHooks
from streamcore.storage.checked_json import DIGEST_DIGITS


class DeltaSink(TableSink[DeltaTableSpec, OpenTable]):
    """Writes some lanes to Delta tables. ``columns``: the schema of each lane's rows."""

    kind = "delta"

    def __init__(
        self, settings: DeltaSettings, columns: Mapping[str, pa.Schema], hooks: SinkHooks | None = None
    ) -> None:
        in_table = {lane: in_delta(lane, schema) for lane, schema in columns.items()}
        super().__init__(settings.name, settings.tables, in_table, settings.patience, hooks)
        self._settings = settings
        self._storage: Mapping[str, str] = {}
        self._maintenance: TableMaintenance | None = None

    def open(self, owner: WriterId) -> CutId | None:
        """Run steps 1 to 4 for each lane. Return the last cut that this epoch has written to any of them, or None.

        Raises the errors of ``Sink.open``, and ``Retryable``.
        """
        self._storage = self._settings.storage.read()
        last = super().open(owner)
        self._maintenance = TableMaintenance(self._storage, self._hooks.on_step)
        for lane, state in self._lanes.items():
            self._maintenance.begin(lane, state.table.version)
        return last

    def close(self) -> None:
        """Drop the open tables. Wait up to some seconds for running maintenance."""
        if self._maintenance is not None:
            self._maintenance.close()
        self._maintenance = None
        super().close()

    def _system_name(self) -> str:
        return "The storage"

    def _table_name(self, spec: DeltaTableSpec) -> str:
        return spec.uri

    def _load(self, spec: DeltaTableSpec) -> OpenTable | None:
        return OpenTable.load(spec, self._storage)

    def _create(self, spec: DeltaTableSpec, columns: pa.Schema) -> None:
        OpenTable.create(spec, self._storage, columns)

    def _explain_missing(self, _spec: DeltaTableSpec, _missing: Sequence[pa.Field]) -> str:
        return "add them"

    def _check(self, lane: str, table: OpenTable) -> list[pa.Field]:
        if table.constraints:
            raise ConfigError(
                f"lane {lane}: table {table.spec.uri} has {table.constraints[0]}; drop it: rows would be rejected"
            )
        return super()._check(lane, table)

    def _fence(self, lane: str, table: OpenTable) -> None:
        assert self._owner is not None, "opened with an owner"
        mark = self._fence_mark(lane)
        [(name, epoch)] = mark.items()
        recorded = table.transaction(name)
        if recorded is not None and recorded > epoch:
            raise Fenced(f"delta table {table.spec.uri}: epoch {recorded} owns lane {lane}; this is epoch {epoch}")
        if recorded != epoch:
            table.write_marks(mark)

    def _steps_3_and_4(self, lane: str, table: OpenTable, missing: list[pa.Field]) -> OpenLane[OpenTable]:
        if missing:
            table.add_columns(missing, self._fence_mark(lane))
            table = self._load(table.spec) or table
        batch, digest = (table.transaction(name) for name in self._ledger_ids(lane))
        return OpenLane(table, None if batch is None else CutId(batch, f"{digest or 0:0{DIGEST_DIGITS}x}"))

    def _commit(self, lane: str, table: OpenTable, cut: CutId, rows: pa.Table) -> None:
        table.append(rows, self._marks(lane, cut))

    def _after_commit(self, lane: str, table: OpenTable, rows: pa.Table) -> None:
        """Report the partitions of the committed rows to the maintenance."""
        assert self._maintenance is not None, "open creates it"
        written = partitions(rows, table.spec.partition_by).to_pylist() if table.spec.partition_by else []
        self._maintenance.note(lane, table.spec, table.version, [tuple(partition.values()) for partition in written])

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
