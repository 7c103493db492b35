"""Maintains Delta tables in the background: compaction, vacuum and checkpoints of the table's log.

It runs in a thread, for one table at a time. Cuts neither wait for it nor fail with it. Every N commits of a table
(``DeltaTableSpec``) it runs these steps:

1. Compaction: rewrite small files into files of the target size (``compaction``), while cuts append. A closed partition
   (no cut has written to it since the last compaction) is compacted if it has two or more small files, an open one if
   it has ``compact_every`` small files.
2. Vacuum: delete files that the table no longer needs, if they are older than the retention. Files of cuts that
   crashed are among them; files that a cut is writing now are younger.
3. Checkpoint: write the log up to now, with the sink's ledger, as one file. Older log files are deleted by the
   table's own ``delta.logRetentionDuration``.

A crash after or within a step does not change the contents of the table: a step commits once or not at all, and the
next vacuum deletes the files of an unfinished one. A failure is logged; the next run tries again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streamcore.sinks.delta.compaction import DataFile, Partition, compact, pack_bins, small_files
from streamcore.sinks.delta.settings import DeltaTableSpec
from streamcore.sinks.delta.table import NOTHING_AFTER

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MaintenanceRun:
    """The work of one run on one table. ``open``: partitions that cuts have written to since the last compaction."""

    spec: DeltaTableSpec
    compact: bool
    checkpoint: bool
    open: frozenset[Partition] = frozenset()


@dataclass(slots=True)
class _LastMaintained:
    """When a table was last maintained: its versions at the last compaction and the last checkpoint, and the partitions
    written since that compaction."""

    compacted: int
    checkpointed: int
    open: set[Partition] = field(default_factory=set)


class TableMaintenance:
    """The maintenance of one sink's tables. The sink calls ``note`` after each commit.

    ``storage``: the options for the tables' storage. ``on_step``: called after each step, for tests.
    """

    def __init__(self, storage: Mapping[str, str], on_step: Callable[[str], None]) -> None:
        self._storage = dict(storage)
        self._on_step = on_step
        self._last_maintained: dict[str, _LastMaintained] = {}
        self._thread: threading.Thread | None = None

    def begin(self, lane: str, version: int) -> None:
        """Start counting the commits of a lane's table. ``version``: the table's version when the epoch begins."""
        self._last_maintained[lane] = _LastMaintained(version, version)

    def note(self, lane: str, spec: DeltaTableSpec, version: int, written: Iterable[Partition]) -> None:
        """Record a committed cut, and start a run if one is due and no other runs."""
        last = self._last_maintained[lane]
        last.open.update(written)
        # At multiples of N, not N commits after the start, so that an app that keeps crashing is maintained too.
        compact = version // spec.compact_every > last.compacted // spec.compact_every
        checkpoint = version // spec.checkpoint_every > last.checkpointed // spec.checkpoint_every
        if not (compact or checkpoint) or (self._thread is not None and self._thread.is_alive()):
            return
        run = MaintenanceRun(spec, compact, checkpoint, frozenset(last.open))
        if compact:
            last.compacted, last.open = version, set()
        if checkpoint:
            last.checkpointed = version
        self._thread = threading.Thread(target=self._run, args=(run,), name=f"delta-upkeep-{lane}", daemon=True)
        self._thread.start()

    def close(self, wait_s: float = 10.0) -> None:
        """Wait at most ``wait_s`` seconds for a run. An unfinished one ends with the process, which is safe."""
        if self._thread is not None:
            self._thread.join(wait_s)

    def _run(self, run: MaintenanceRun) -> None:
        """Run the steps, and log an error."""
        try:
            run_maintenance(run, self._storage, self._on_step)
        except (DeltaError, OSError, ValueError) as error:
            _LOG.warning("delta table %s: upkeep failed, tried again later: %s", run.spec.uri, error)


def run_maintenance(run: MaintenanceRun, storage: Mapping[str, str], on_step: Callable[[str], None]) -> None:
    """Run the steps of the module's docstring in this thread."""
    table = DeltaTable(run.spec.uri, storage_options=dict(storage))
    if run.compact:
        # 1. Compaction.
        for files in _compactable_files(table, run):
            compact(table, files)
            on_step("compacted")
        # 2. Vacuum.
        table.vacuum(
            retention_hours=run.spec.vacuum_retention_hours,
            dry_run=False,
            enforce_retention_duration=False,
            post_commithook_properties=NOTHING_AFTER,
            full=True,
        )
        on_step("vacuumed")
    if run.checkpoint:
        # 3. Checkpoint.
        table.update_incremental()
        table.create_checkpoint()
        on_step("checkpointed")
        table.cleanup_metadata()


def _compactable_files(table: DeltaTable, run: MaintenanceRun) -> Iterator[list[DataFile]]:
    """Yield groups of small files of one partition, each to be rewritten as one file."""
    target = run.spec.target_file_bytes
    for partition, files in small_files(table, target).items():
        is_open = partition in run.open or not partition
        if len(files) >= (max(2, run.spec.compact_every) if is_open else 2):
            yield from pack_bins(files, target)
