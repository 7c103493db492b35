"""Keeps a table's files few: compaction, vacuum, checkpoints of its log, beside the cuts and never in their way.

A thread of its own does it, one table at a time; a cut neither waits for it nor fails with it. Every N commits of a
table (``DeltaTableSpec``) it is that table's turn:

1. Compaction: a closed partition (none of the cuts since the last turn wrote to it) with two or more small files, and
   an open one with as many small files as there are commits between two turns, becomes files of the target size. One
   commit a partition, without application versions: it changes no contents, so it needs no fence, and the ledger
   stays what it was. Appends and compactions do not conflict; two compactions do, and the second gives up.
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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streamcore.sinks.delta.settings import DeltaTableSpec
from streamcore.sinks.delta.table import NOTHING_AFTER, writer_properties

_LOG = logging.getLogger(__name__)
_HOUR_MS = 3_600_000

#: Values of a partition's columns, in their order.
Partition = tuple[str | int | bool | None, ...]


@dataclass(frozen=True, slots=True)
class Turn:
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


class Upkeep:
    """Of one sink. ``note`` after each commit; ``close`` lets a turn that runs come to its end for a while."""

    def __init__(self, storage: Mapping[str, str], reached: Callable[[str], None]) -> None:
        self._storage = dict(storage)
        self._reached = reached
        self._due: dict[str, _Due] = {}
        self._thread: threading.Thread | None = None

    def begin(self, lane: str, version: int) -> None:
        """The table is at this version."""
        self._due[lane] = _Due(version, version)

    def note(self, lane: str, spec: DeltaTableSpec, version: int, written: Iterable[Partition]) -> None:
        """A cut is in. Starts the table's turn when it has come and no other one runs."""
        due = self._due[lane]
        due.open.update(written)
        # Multiples of N, not N since the start: an app that keeps crashing has its turns too.
        compact = version // spec.compact_every > due.compacted // spec.compact_every
        checkpoint = version // spec.checkpoint_every > due.checkpointed // spec.checkpoint_every
        if not (compact or checkpoint) or (self._thread is not None and self._thread.is_alive()):
            return
        turn = Turn(spec, compact, checkpoint, frozenset(due.open))
        if compact:
            due.compacted, due.open = version, set()
        if checkpoint:
            due.checkpointed = version
        self._thread = threading.Thread(target=self._take, args=(turn,), name=f"delta-upkeep-{lane}", daemon=True)
        self._thread.start()

    def close(self, wait_s: float = 10.0) -> None:
        """What has not ended by then ends with the process, which is safe."""
        if self._thread is not None:
            self._thread.join(wait_s)

    def _take(self, turn: Turn) -> None:
        try:
            take(turn, self._storage, self._reached)
        except (DeltaError, OSError, ValueError) as error:
            _LOG.warning("delta table %s: upkeep failed, tried again later: %s", turn.spec.uri, error)


def take(turn: Turn, storage: Mapping[str, str], reached: Callable[[str], None]) -> None:
    """A table's turn, here and now."""
    table = DeltaTable(turn.spec.uri, storage_options=dict(storage))
    if turn.compact:
        # 1. Few files instead of many.
        for partition in _crowded(table, turn):
            _compact(table, turn.spec, partition)
            reached("compacted")
        # 2. Files that nobody needs.
        table.vacuum(
            retention_hours=turn.spec.vacuum_retention_ms // _HOUR_MS,
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


def _crowded(table: DeltaTable, turn: Turn) -> list[Partition]:
    """Partitions with files to put together."""
    columns = table.metadata().partition_columns
    files = pa.table(table.get_add_actions(flatten=True))
    small = files.filter(pc.less(files.column("size_bytes"), turn.spec.target_file_bytes))
    if not columns:
        return [()] if small.num_rows >= turn.spec.compact_every else []
    names = [f"partition.{name}" for name in columns]
    counts = small.group_by(names).aggregate([([], "count_all")])
    values = zip(*(counts.column(name).to_pylist() for name in [*names, "count_all"]), strict=True)
    return [p for *p_, n in values if n >= _enough(p := tuple(p_), turn)]


def _enough(partition: Partition, turn: Turn) -> int:
    return max(2, turn.spec.compact_every) if partition in turn.open else 2


def _compact(table: DeltaTable, spec: DeltaTableSpec, partition: Partition) -> None:
    columns = table.metadata().partition_columns
    table.optimize.compact(
        partition_filters=[(n, "=", _spelt(v)) for n, v in zip(columns, partition, strict=True)] or None,
        target_size=spec.target_file_bytes,
        max_concurrent_tasks=1,
        writer_properties=writer_properties(pa.schema(table.schema().to_arrow())),
        post_commithook_properties=NOTHING_AFTER,
    )


def _spelt(value: str | int | bool | None) -> str:
    """A partition's value in the words of the log."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
