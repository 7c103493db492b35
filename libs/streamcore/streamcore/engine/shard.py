"""A keyed stage: one shard's share of a cut, from shuffle blocks to output, with its state before and after.

The shard unpacks its blocks, moves the watermarks, hands the cut to the kernel, commits the kernel's tables and packs
the output for the next stage. It is the same code under Spark and in-process; only the blob store differs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from streamcore.app import App
from streamcore.engine.block_kind import BlockKind
from streamcore.engine.shuffle import (
    ShardInput,
    ShardMetrics,
    ShuffleBlock,
    pack_control,
    pack_metrics,
    pack_partitions,
    pack_progress,
    pack_records,
    pack_rows,
    unpack_blocks,
)
from streamcore.errors import CorruptState
from streamcore.kernel import COLD, COLD_MOVES, Cut, Kernel, KernelOutput, PagingKernel, StreamReads
from streamcore.keyed.runtime_context import close
from streamcore.offsets import source_index, source_partitions
from streamcore.operators.base import CutTime
from streamcore.schema import OFFSET, PARTITION
from streamcore.schema.published_document import PublishedDocument
from streamcore.state.blob_store import BlobStore
from streamcore.state.cold.cold_state import ColdState
from streamcore.state.log_copies import copies_for
from streamcore.state.state_log import HEAD, StateLog
from streamcore.watermark import NO_WATERMARK, PartitionTime, Progress, WatermarkState
from streamcore.wire.arrow_ipc import to_table
from streamcore.wire.lane_rows import LaneRows
from streamcore.wire.lanes import Record

#: The stage whose input ``App.event_filter`` filters.
_FILTERED_STAGE = 1


@dataclass(frozen=True, slots=True)
class ShardOutput:
    """The output of one shard in one cut, with its metrics.

    ``records`` and ``lanes`` are for the sinks, ``blocks`` for the shards of the next stage. ``metrics`` are those of
    this shard plus those that it received from shards of earlier stages. ``partitions``: the time of each source
    partition that has begun; every shard knows all of them, so they are the same in all; so are ``streams``, the
    published documents that the app has from the next cut on. ``reads``: as in ``KernelOutput``.
    """

    shard: int
    stage: int
    records: list[Record]
    lanes: Sequence[LaneRows]
    blocks: list[ShuffleBlock]
    events: int
    watermark_ms: int
    partitions: Mapping[int, PartitionTime]
    clock_ms: int
    metrics: ShardMetrics
    streams: Sequence[PublishedDocument] = ()
    reads: Mapping[str, StreamReads] | None = None

    def all_records(self) -> list[Record]:
        """Return the records of all lanes, in the order in which the sinks get them."""
        return [*self.records, *(record for rows in self.lanes for record in rows.records())]

    def forward(self) -> list[ShuffleBlock]:
        """Return the blocks for the next stage: rows, metrics and output, so that the last stage reports for all."""
        blocks = [*self.blocks, ShuffleBlock(self.shard, BlockKind.METRICS, self.clock_ms, pack_metrics(self.metrics))]
        if self.records or self.lanes:
            blob = pack_records(self.records, (self.shard, self.stage), [rows.batch() for rows in self.lanes])
            blocks.append(ShuffleBlock(self.shard, BlockKind.RECORDS, self.clock_ms, blob))
        return blocks


class Shard:
    """One shard of a stage in this process. Its memory is a cache: ``step`` reads it anew when the head differs."""

    def __init__(self, app: App, number: int, stage: int = 0, *, copies_logs: bool = True) -> None:
        """``copies_logs``: whether local copies of the latest log blobs save time (``streamcore.state.log_copies``)."""
        self.app = app
        self.copies_logs = copies_logs
        self.number = number
        self.stage = stage
        self.last = stage + 1 == len(app.stages)
        self.event_filter = app.event_filter() if app.event_filter is not None and stage == _FILTERED_STAGE else None
        self._reset()

    def close(self) -> None:
        """Close the functions of the kernel, when the process drops this shard."""
        close(self.kernel)

    def _reset(self) -> None:
        if hasattr(self, "kernel"):
            self.close()
        self.kernel: Kernel = self.app.stages[self.stage]()
        self.log = StateLog(
            self.app.state,
            page_kernel(self.app, self.stage, self.number, self.kernel),
            copies_for(f"{self.app.name}-{self.stage}-{self.number}") if self.copies_logs else None,
        )
        self.times = [WatermarkState() for _ in self.app.watermark_groups]
        self.clean = True

    def step(self, blocks: Iterable[ShuffleBlock], blobs: BlobStore) -> ShardOutput:
        """Process this shard's blocks of one cut and write its state to ``blobs``."""
        if self.log.cold is not None:
            self.log.cold.begin(blobs)
        loaded = self._load(blobs)
        contents = unpack_blocks(blocks, self.app.exchanges, self.stage, last=self.last)
        before = [self._register_partitions(group, time, contents) for group, time in self._watermark_groups()]
        after = [
            self._advance(group, time, contents) for group, time in zip(self.app.watermark_groups, before, strict=True)
        ]
        self.clean = False
        cut, refused = self._filter(self._cut(contents, before, after))
        output = self.kernel.step(cut)
        self.times = after
        written = self.log.commit(blobs, self.kernel.tables(), {"watermark_groups": [to_cells(time) for time in after]})
        self.clean = True
        return ShardOutput(
            shard=self.number,
            stage=self.stage,
            records=[*contents.records, *refused, *output.records],
            lanes=output.lanes,
            blocks=[]
            if self.last
            else [*self._broadcast_blocks(contents), *contents.forward, *self._exchange_blocks(output, contents)],
            events=sum(p.events for p in contents.progress),
            watermark_ms=after[0].watermark_ms,
            partitions={
                n: one
                for time in after
                for n, one in time.partitions.items()
                if one.has_begun and source_index(n) < len(self.app.sources)
            },
            clock_ms=contents.clock_ms,
            metrics=sum(contents.metrics, ShardMetrics(written, int(loaded), self._counters(output))),
            streams=output.streams,
            reads=output.reads,
        )

    def _filter(self, cut: Cut) -> tuple[Cut, Sequence[Record]]:
        """Take out the events that an earlier stage does not let pass; return records for some of them too."""
        return (cut, ()) if self.event_filter is None else self.event_filter.step(cut)

    def _counters(self, output: KernelOutput) -> Mapping[str, int]:
        """Return the counters of the kernel and, if keys may be cold, those of the cold state."""
        cold = self.log.cold
        if cold is None or not cold.is_active:
            return output.counters
        sizes, moves = cold.sizes(), cold.take_moves()
        counted = {f"{COLD}.{name}": size for name, size in sizes.items()}
        return {**output.counters, **counted, **{f"{COLD_MOVES}.{name}": count for name, count in moves.items()}}

    # --- time ---------------------------------------------------------------------------------------------------

    def _watermark_groups(self) -> Iterator[tuple[Collection[int], WatermarkState]]:
        return zip(self.app.watermark_groups, self.times, strict=True)

    def _register_partitions(
        self, group: Collection[int], time: WatermarkState, contents: ShardInput
    ) -> WatermarkState:
        partitions = self.app.with_derived(contents.partitions)
        return time.expect([n for n in partitions if source_index(n) in group], contents.elapsed_ms)

    def _advance(self, group: Collection[int], time: WatermarkState, contents: ShardInput) -> WatermarkState:
        progress = [p for p in contents.progress if source_index(p.partition) in group]
        known = {*time.partitions, *(p.partition for p in progress)}
        clock_ms = contents.clock_ms
        progress += [Progress(n, NO_WATERMARK, 0, clock_ms) for n in sorted(known) if self.app.follows_clock(n)]
        return time.advance(progress, contents.elapsed_ms, self.app.idle_timeout_ms)

    def _cut(self, contents: ShardInput, before: Sequence[WatermarkState], after: Sequence[WatermarkState]) -> Cut:
        return Cut(
            shard=self.number,
            events=contents.rows,
            tables=contents.tables,
            control=contents.control,
            clock_ms=contents.clock_ms,
            watermark_ms=before[0].watermark_ms,
            next_watermark_ms=after[0].watermark_ms,
            latest_event_ms={
                schema.name: before[0].latest_event_ms(source_partitions(self.app.first_source(source)))
                for source, schema in enumerate(self.app.schemas)
            },
            watermark_times=[
                CutTime(one.watermark_ms, other.watermark_ms, contents.clock_ms)
                for one, other in zip(before, after, strict=True)
            ],
            start_offsets=contents.partitions,
            key_space=self.app.key_space,
        )

    # --- the next stage -----------------------------------------------------------------------------------------

    def _broadcast_blocks(self, contents: ShardInput) -> Iterator[ShuffleBlock]:
        """Yield the blocks that every shard gets in every stage: progress, partitions and control records."""
        yield self._parcel(BlockKind.PROGRESS, contents, pack_progress(contents.progress, contents.elapsed_ms))
        if contents.partitions:
            yield self._parcel(BlockKind.PARTITIONS, contents, pack_partitions(contents.partitions))
        if contents.control:
            yield self._parcel(BlockKind.CONTROL, contents, pack_control(contents.control))

    def _parcel(self, kind: BlockKind, contents: ShardInput, blob: bytes) -> ShuffleBlock:
        return ShuffleBlock(self.number, kind, contents.clock_ms, blob)

    def _exchange_blocks(self, output: KernelOutput, contents: ShardInput) -> Iterator[ShuffleBlock]:
        """Yield the blocks of the kernel's rows for the exchanges of later stages.

        Rows that still have the partition and the offset of their event keep them; others are numbered by this shard.
        """
        for index, exchange in enumerate(self.app.exchanges):
            rows = output.rows.get(exchange.rows)
            if rows is not None and len(rows):
                kind = BlockKind.ROWS + index
                yield from pack_rows(exchange, kind, self._numbered(rows), self.app.key_space, contents.clock_ms)

    def _numbered(self, rows: pl.DataFrame | pa.Table) -> pa.Table:
        if isinstance(rows, pa.Table):
            return rows
        if OFFSET in rows.columns:
            return to_table(rows)
        return to_table(
            rows.with_columns(
                pl.lit(self.number, pl.Int32).alias(PARTITION),
                pl.int_range(pl.len(), dtype=pl.Int64).alias(OFFSET),
            )
        )

    # --- state --------------------------------------------------------------------------------------------------

    def _load(self, blobs: BlobStore) -> bool:
        """Bring tables and watermarks to the state that is stored. Return True if blobs were read, because the process
        is new, the shard moved to it, or an attempt was not committed."""
        head = blobs.get(HEAD)
        if self.clean and self.log.holds(head):
            return False
        if not (self.clean and head and self.log.catch_up(head, blobs, self.kernel.table)):
            self._reset()
            if self.log.cold is not None:
                self.log.cold.begin(blobs)
            self.log.load(head, blobs, self.kernel.table, self.kernel.tables())
        self.kernel.on_state_loaded()
        cells = self.log.head.cells.get("watermark_groups")
        if isinstance(cells, list):
            if len(cells) != len(self.times):
                raise CorruptState(
                    f"app {self.app.name}: the state has {len(cells)} groups of sources with one watermark, the app "
                    f"{len(self.times)}; continue with the program that wrote it, or from a savepoint"
                )
            self.times = [from_cells(cell) for cell in cells]
        return True


def page_kernel(app: App, stage: int, shard: int, kernel: Kernel, *, local: bool = True) -> ColdState | None:
    """Let the operators of a kernel page; None if none can. ``local``: whether cold rows are read from local files."""
    if not isinstance(kernel, PagingKernel):
        return None
    states = kernel.paged_states()
    if not states:
        return None
    kernel.cold = ColdState(app.state, states, f"{app.name}-{stage}-{shard}", local=local)
    return kernel.cold


def to_cells(time: WatermarkState) -> dict[str, object]:
    """Convert to the JSON-able value that a shard stores."""
    partitions = {str(n): [t.max_event_ms, t.active_ms, t.watermark_ms] for n, t in sorted(time.partitions.items())}
    return {"watermark_ms": time.watermark_ms, "partitions": partitions}


def from_cells(cells: Mapping[str, Any]) -> WatermarkState:
    """Parse the value that ``to_cells`` returned."""
    partitions = {int(n): PartitionTime(*t) for n, t in cells["partitions"].items()}
    time = WatermarkState(cells["watermark_ms"], partitions)
    assert time.watermark_ms >= NO_WATERMARK, "a watermark is never below the first"
    return time
