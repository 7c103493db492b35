"""Runs the deduplication: the stateless stage in front of it, and the kernel of its keyed stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import polars as pl
import pyarrow as pa

from streamcore.engine.deduplication.stream import DeduplicatedStream
from streamcore.errors import CorruptState
from streamcore.hashing import hash_columns
from streamcore.kernel import DEDUPLICATION, Cut, KernelOutput, StatelessStage, StreamKey
from streamcore.keyed.runtime_context import close
from streamcore.operators.base import CutTime
from streamcore.operators.deduplication.events import EventDeduplication
from streamcore.state.cold.cold_state import ColdState
from streamcore.state.cold.paged_state import PagedState
from streamcore.state.scope import TableScope, get_scope
from streamcore.state.table import StateTable
from streamcore.wire.lanes import Record


class EventRouter:
    """The stateless stage in front of the deduplication."""

    def __init__(self, rows: Mapping[int, StreamKey], head: StatelessStage) -> None:
        self._rows = rows
        self._head = head

    def close(self) -> None:
        """Close the functions of the app's own stage."""
        close(self._head)

    def step(self, source: int, events: pa.Table, clock_ms: int) -> KernelOutput:
        """Process decoded events of one source."""
        rows = self._rows.get(source)
        return self._head.step(source, events, clock_ms) if rows is None else KernelOutput(rows={rows: events})


class DeduplicationKernel:
    """The kernel of the stage on one shard."""

    def __init__(
        self,
        streams: Sequence[DeduplicatedStream],
        max_ids: int,
        head: StatelessStage,
        write_late: Callable[[int, pl.DataFrame, int], Sequence[Record]],
    ) -> None:
        self._head = head
        self._write_late = write_late
        self._operators = {stream: EventDeduplication(stream.schema, max_ids=max_ids) for stream in streams}
        self.cold: ColdState | None = None

    def close(self) -> None:
        """Close the functions of the app's own stateless stage."""
        close(self._head)

    # --- state --------------------------------------------------------------------------------------------------

    def paged_states(self) -> Mapping[str, PagedState]:
        return {stream.operator: one.operator.paged_state for stream, one in self._operators.items()}

    def tables(self) -> Mapping[str, StateTable]:
        return {
            f"{stream.operator}/{name}": table
            for stream, one in self._operators.items()
            for name, table in one.operator.tables().items()
        }

    def table(self, name: str) -> StateTable:
        table = self.tables().get(name)
        if table is None:
            raise CorruptState(f"no stream with deduplicate has the stored state {name!r}")
        return table

    def scope(self, name: str) -> TableScope:
        return get_scope(self.table(name))

    def on_state_loaded(self) -> None:
        """Do nothing: nothing is derived from the tables."""

    # --- a cut --------------------------------------------------------------------------------------------------

    def step(self, cut: Cut) -> KernelOutput:
        outputs = [output for stream in self._operators for output in self._deduplicate(stream, cut)]
        counters: Counter[str] = Counter()
        for output in outputs:
            counters.update(output.counters)
        return KernelOutput(
            records=[record for output in outputs for record in output.records],
            lanes=[rows for output in outputs for rows in output.lanes],
            rows=_merge_rows([output.rows for output in outputs]),
            counters=counters,
        )

    def _deduplicate(self, stream: DeduplicatedStream, cut: Cut) -> Sequence[KernelOutput]:
        """Return the late events of a stream as records, and the output of the app's stateless stage on the others."""
        table, events, time = cut.tables.get(stream.rows), self._operators[stream], _time(stream, cut)
        if table is None:
            table = stream.schema.arrow.empty_table()
        elif self.cold is not None:
            hashes = hash_columns(pl.DataFrame(table.select(stream.key)).get_columns(), table.num_rows)
            self.cold.recall(stream.operator, hashes, time.next_watermark_ms, time.clock_ms)
        decided = events.decide(table, time)
        late: Sequence[Record] = ()
        if decided.late.height:
            late = self._write_late(stream.source, decided.late, time.watermark_ms)
        counted = KernelOutput(late, counters=_counters(stream, events))
        if not decided.used.num_rows:
            return [counted]
        return [counted, self._head.step(stream.source, decided.used, cut.clock_ms)]


def _time(stream: DeduplicatedStream, cut: Cut) -> CutTime:
    """Return the time of the cut with the watermark that is furthest behind of those that wait for the stream: an event
    is on time if it is for any later stage."""
    times = [cut.watermark_times[group] for group in stream.groups]
    return CutTime(
        min(time.watermark_ms for time in times), min(time.next_watermark_ms for time in times), cut.clock_ms, cut.shard
    )


def _counters(stream: DeduplicatedStream, events: EventDeduplication) -> Mapping[str, int]:
    counts = {**events.operator.metrics(), "bytes": events.operator.memory_bytes}
    return {f"{DEDUPLICATION}.{stream.schema.name}.{name}": count for name, count in counts.items()}


def _merge_rows(
    outputs: Sequence[Mapping[StreamKey, pl.DataFrame | pa.Table]],
) -> Mapping[StreamKey, pl.DataFrame | pa.Table]:
    """Return the rows of several streams by exchange; a union of streams sends the rows of each to one."""
    merged: dict[StreamKey, pl.DataFrame | pa.Table] = {}
    for rows in outputs:
        for name, more in rows.items():
            before = merged.get(name)
            if before is None:
                merged[name] = more
            else:
                assert isinstance(before, pl.DataFrame), "only a topology sends rows of two streams to one exchange"
                assert isinstance(more, pl.DataFrame)
                merged[name] = pl.concat([before, more.select(before.columns)])
    return merged
