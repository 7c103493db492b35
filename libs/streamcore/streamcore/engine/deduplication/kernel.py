"""Runs the deduplication: the stateless stage in front of it, its keyed stage, and the event filter behind it.

With an ``IdRouter`` the stage gets hashes of the events, and the events go around it. Each shard behind it gets all
verdicts, and takes out its rows of these events. With an ``EventRouter`` the events go through the stage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl
import pyarrow as pa

from streamcore.engine.deduplication.stream import DeduplicatedStream, WriteLate
from streamcore.engine.ingest import KeyRouter
from streamcore.errors import CorruptState
from streamcore.hashing import UInt64Array, hash_columns
from streamcore.kernel import DEDUPLICATION, FLOOR_AHEAD, Cut, KernelOutput, StatelessStage, StreamKey
from streamcore.keyed.runtime_context import close
from streamcore.operators.base import CutTime
from streamcore.operators.deduplication.events import EventDeduplication, identify_events, take_out
from streamcore.operators.deduplication.operator import with_lateness
from streamcore.state.cold.cold_state import ColdState
from streamcore.state.cold.paged_state import PagedState
from streamcore.state.scope import TableScope, get_scope
from streamcore.state.table import HASH, StateTable
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


class IdRouter:
    """The stateless stage of an app that has none of its own: it routes events by their keys, and hashes of those of
    these streams to the deduplication."""

    def __init__(self, routes: Sequence[Sequence[StreamKey]], streams: Sequence[DeduplicatedStream]) -> None:
        self._router = KeyRouter(routes)
        self._streams = {stream.source: stream for stream in streams}

    def step(self, source: int, events: pa.Table, clock_ms: int) -> KernelOutput:
        """Process decoded events of one source."""
        routed = self._router.step(source, events, clock_ms)
        stream = self._streams.get(source)
        if stream is None:
            return routed
        return KernelOutput(rows={**routed.rows, stream.rows: identify_events(stream.schema, events)})


class DuplicateFilter:
    """The event filter behind the deduplication: takes out the events that a verdict names.

    Each event is in the rows of every key of its stream; the late ones of the first key are written.
    """

    def __init__(self, streams: Sequence[DeduplicatedStream], write_late: WriteLate) -> None:
        self._streams = streams
        self._write_late = write_late

    def step(self, cut: Cut) -> tuple[Cut, Sequence[Record]]:
        events = dict(cut.events)
        records: list[Record] = []
        for stream in self._streams:
            verdicts = cut.tables.get(stream.verdicts)
            if verdicts is None:
                continue
            for key in stream.keys:
                if key not in events:
                    continue
                events[key], late = take_out(events[key], verdicts)
                if late.height and key == stream.keys[0]:
                    watermark_ms, schema = _time(stream, cut).watermark_ms, stream.schema
                    assert schema.deduplicate_ms is not None, "only for streams with deduplicate"
                    late = with_lateness(late, watermark_ms, schema.deduplicate_ms)
                    records += self._write_late(stream.source, late, watermark_ms)
        return replace(cut, events=events), records


class _StageKernel(ABC):
    """The kernel of the stage on one shard."""

    def __init__(self, streams: Sequence[DeduplicatedStream], max_ids: int) -> None:
        self._operators = {stream: EventDeduplication(stream.schema, max_ids=max_ids) for stream in streams}
        self.cold: ColdState | None = None

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

    def on_state_loaded(self) -> None:  # noqa: B027 - the contract has it
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

    @abstractmethod
    def _deduplicate(self, stream: DeduplicatedStream, cut: Cut) -> Sequence[KernelOutput]:
        """Process the rows of one stream."""

    def _recall(self, stream: DeduplicatedStream, hashes: UInt64Array, time: CutTime) -> None:
        """Load the cold ids with these hashes."""
        assert self.cold is not None, "asked before"
        self.cold.recall(stream.operator, hashes, time.next_watermark_ms, time.clock_ms)


class IdKernel(_StageKernel):
    """The kernel behind an ``IdRouter``: it sends its verdicts to all shards."""

    def _deduplicate(self, stream: DeduplicatedStream, cut: Cut) -> Sequence[KernelOutput]:
        table, events, time = cut.tables.get(stream.rows), self._operators[stream], _time(stream, cut)
        if table is None:
            table = identify_events(stream.schema, stream.schema.arrow.empty_table())
        elif self.cold is not None:
            self._recall(stream, table.column(HASH).to_numpy(), time)
        verdicts = events.decide_ids(table, time)
        is_ahead = events.operator.is_ahead(time.next_watermark_ms)
        counters = {**_counters(stream, events), _count_name(stream, FLOOR_AHEAD): int(is_ahead)}
        return [KernelOutput(rows={stream.verdicts: verdicts}, counters=counters)]


class DeduplicationKernel(_StageKernel):
    """The kernel behind an ``EventRouter``: it runs the stateless stage of the app on the events that are left."""

    def __init__(
        self, streams: Sequence[DeduplicatedStream], max_ids: int, head: StatelessStage, write_late: WriteLate
    ) -> None:
        super().__init__(streams, max_ids)
        self._head = head
        self._write_late = write_late

    def close(self) -> None:
        """Close the functions of the app's own stateless stage."""
        close(self._head)

    def _deduplicate(self, stream: DeduplicatedStream, cut: Cut) -> Sequence[KernelOutput]:
        """Return the late events of a stream as records, and the output of the app's stateless stage on the others."""
        table, events, time = cut.tables.get(stream.rows), self._operators[stream], _time(stream, cut)
        if table is None:
            table = stream.schema.arrow.empty_table()
        elif self.cold is not None:
            columns = pl.DataFrame(table.select(stream.key)).get_columns()
            self._recall(stream, hash_columns(columns, table.num_rows), time)
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
    return {_count_name(stream, name): count for name, count in counts.items()}


def _count_name(stream: DeduplicatedStream, name: str) -> str:
    return f"{DEDUPLICATION}.{stream.schema.name}.{name}"


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
