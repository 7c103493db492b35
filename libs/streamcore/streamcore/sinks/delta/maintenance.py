"""Keeps a table's files few: compaction, vacuum, checkpoints of its log, beside the cuts and never in their way.

A thread of its own does it, one table at a time; a cut neither waits for it nor fails with it. Every N commits of a
table (``DeltaTableSpec``) it is that table's turn:

1. Compaction: a closed partition (none of the cuts since the last turn wrote to it) with two or more small files, and
   an open one with as many small files as there are commits between two turns, becomes files of the target size
   (``compaction``). Appends go on meanwhile.
2. Vacuum: files that the table no longer needs, orphans of cuts that died among them, are deleted once they are older
   than the retention. What a cut is writing now is younger.
3. Checkpoint: the log up to now in one file, the ledger in it. Older log files are deleted by the table's own
   ``delta.logRetentionDuration``.

A crash after or inside any of them leaves a table that reads the same: each ends in one atomic commit or none, and what
was written before that is an orphan for the next vacuum. A failure is logged and it is tried again next turn.
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
    """What is to be done for a table. ``open``: partitions that cuts wrote to since the last turn."""

    spec: DeltaTableSpec
    compact: bool
    checkpoint: bool
    open: frozenset[Partition] = frozenset()


@dataclass(slots=True)
class _Due:
    """Since when a table waits: its versions at the last turns, and the partitions written since."""

    compacted: int
    checkpointed: int
    open: set[Partition] = field(default_factory=set)


class TableMaintenance:
    """Of one sink. ``note`` after each commit; ``close`` lets a turn that runs come to its end for a while."""

    def __init__(self, storage: Mapping[str, str], reached: Callable[[str], None]) -> None:
        self._storage = dict(storage)
        self._reached = reached
        self._due: dict[str, _Due] = {}
        self._thread: threading.Thread | None = None

    def begin(self, lane: str, version: int) -> None:
        """Set the version of the table when the epoch begins."""
        self._due[lane] = _Due(version, version)

    def note(self, lane: str, spec: DeltaTableSpec, version: int, written: Iterable[Partition]) -> None:
        """Record a committed cut, and start the table's maintenance when it is due and none runs."""
        due = self._due[lane]
        due.open.update(written)
        # Multiples of N, not N since the start: an app that keeps crashing has its turns too.
        compact = version // spec.compact_every > due.compacted // spec.compact_every
        checkpoint = version // spec.checkpoint_every > due.checkpointed // spec.checkpoint_every
        if not (compact or checkpoint) or (self._thread is not None and self._thread.is_alive()):
            return
        turn = MaintenanceRun(spec, compact, checkpoint, frozenset(due.open))
        if compact:
            due.compacted, due.open = version, set()
        if checkpoint:
            due.checkpointed = version
        self._thread = threading.Thread(target=self._take, args=(turn,), name=f"delta-upkeep-{lane}", daemon=True)
        self._thread.start()

    def close(self, wait_s: float = 10.0) -> None:
        """Wait for running maintenance; the rest ends with the process, which is safe."""
        if self._thread is not None:
            self._thread.join(wait_s)

    def _take(self, turn: MaintenanceRun) -> None:
        try:
            run_maintenance(turn, self._storage, self._reached)
        except (DeltaError, OSError, ValueError) as error:
            _LOG.warning("delta table %s: upkeep failed, tried again later: %s", turn.spec.uri, error)


def run_maintenance(turn: MaintenanceRun, storage: Mapping[str, str], reached: Callable[[str], None]) -> None:
    """Maintain a table in this thread."""
    table = DeltaTable(turn.spec.uri, storage_options=dict(storage))
    if turn.compact:
        # 1. Few files instead of many.
        for files in _compactable_files(table, turn):
            compact(table, files)
            reached("compacted")
        # 2. Files that nobody needs.
        table.vacuum(
            retention_hours=turn.spec.vacuum_retention_hours,
            dry_run=False,
            enforce_retention_duration=False,
            post_commithook_properties=NOTHING_AFTER,
            full=True,
        )
        reached("vacuumed")
    if turn.checkpoint:
        # 3. A log that reads fast.
        table.update_incremental()
        table.create_checkpoint()
        reached("checkpointed")
        table.cleanup_metadata()


def _compactable_files(table: DeltaTable, turn: MaintenanceRun) -> Iterator[list[DataFile]]:
    """Files to put together."""
    target = turn.spec.target_file_bytes
    for partition, files in small_files(table, target).items():
        is_open = partition in turn.open or not partition
        if len(files) >= (max(2, turn.spec.compact_every) if is_open else 2):
            yield from pack_bins(files, target)
