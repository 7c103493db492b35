"""A keyed stage: one shard's share of a cut, from parcels to output, with its state before and after.

The shard opens its parcels, moves the watermarks, hands the cut to the kernel, commits the kernel's tables and packs
what the next stage gets. It is the same code under Spark and in-process; only the blob store differs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from streamcore.app import App
from streamcore.arrow import to_table
from streamcore.kernel import Cut, Kernel, Output
from streamcore.lane_rows import LaneRows
from streamcore.lanes import Record
from streamcore.operators.operator import StepTime
from streamcore.packing import (
    Contents,
    Figures,
    Parcel,
    ParcelKind,
    open_parcels,
    pack_control,
    pack_figures,
    pack_partitions,
    pack_progress,
    pack_records,
    pack_rows,
)
from streamcore.position import partitions_of, source_of
from streamcore.schema import OFFSET, PARTITION
from streamcore.state.blobs import BlobStore
from streamcore.state.log import HEAD, StateLog
from streamcore.watermark import NO_WATERMARK, PartitionTime, WatermarkState


@dataclass(frozen=True, slots=True)
class ShardOutput:
    """What one shard gives out in one cut, with figures for the metrics.

    ``records`` and ``lanes`` are for the sinks, ``parcels`` for the shards of the next stage. ``figures`` are those of
    this shard and of what it was told by shards before it. ``partitions``: the watermark of each source partition that
    has one; every shard knows all of them, so they are the same in all.
    """

    shard: int
    stage: int
    records: list[Record]
    lanes: Sequence[LaneRows]
    parcels: list[Parcel]
    events: int
    watermark_ms: int
    partitions: Mapping[int, int]
    clock_ms: int
    figures: Figures

    def all_records(self) -> list[Record]:
        """What the sinks get, in order."""
        return [*self.records, *(record for rows in self.lanes for record in rows.records())]

    def onward(self) -> list[Parcel]:
        """All that the next stage gets, so that in the end one stage speaks for all."""
        parcels = [*self.parcels, Parcel(self.shard, ParcelKind.FIGURES, self.clock_ms, pack_figures(self.figures))]
        if self.records or self.lanes:
            blob = pack_records(self.records, (self.shard, self.stage), [rows.batch() for rows in self.lanes])
            parcels.append(Parcel(self.shard, ParcelKind.RECORDS, self.clock_ms, blob))
        return parcels


class Shard:
    """One shard of a stage in this process. Its memory is a cache: ``step`` reads it anew when the head differs."""

    def __init__(self, app: App, number: int, stage: int = 0) -> None:
        self.app = app
        self.number = number
        self.stage = stage
        self.last = stage + 1 == len(app.stages)
        self._forget()

    def _forget(self) -> None:
        self.log = StateLog(self.app.state)
        self.kernel: Kernel = self.app.stages[self.stage]()
        self.times = [WatermarkState() for _ in self.app.domains]
        self.clean = True

    def step(self, parcels: Iterable[Parcel], blobs: BlobStore) -> ShardOutput:
        """Process this shard's parcels of one cut and write its state to ``blobs``."""
        loaded = self._load(blobs)
        contents = open_parcels(parcels, self.app.exchanges, self.stage, last=self.last)
        before = [self._expect(domain, time, contents) for domain, time in self._domains()]
        after = [self._advance(domain, time, contents) for domain, time in zip(self.app.domains, before, strict=True)]
        self.clean = False
        output = self.kernel.step(self._cut(contents, before, after))
        self.times = after
        written = self.log.commit(blobs, self.kernel.tables(), {"domains": [to_cells(time) for time in after]})
        self.clean = True
        return ShardOutput(
            shard=self.number,
            stage=self.stage,
            records=[*contents.records, *output.records],
            lanes=output.lanes,
            parcels=[] if self.last else [*self._copies(contents), *contents.onward, *self._sent(output, contents)],
            events=sum(p.events for p in contents.progress),
            watermark_ms=after[0].watermark_ms,
            partitions={n: one.watermark_ms for time in after for n, one in time.partitions.items() if one.has_begun},
            clock_ms=contents.clock_ms,
            figures=sum(contents.figures, Figures(written, int(loaded), output.counted)),
        )

    # --- time ---------------------------------------------------------------------------------------------------

    def _domains(self) -> Iterator[tuple[Collection[int], WatermarkState]]:
        return zip(self.app.domains, self.times, strict=True)

    @staticmethod
    def _expect(domain: Collection[int], time: WatermarkState, contents: Contents) -> WatermarkState:
        return time.expect([n for n in contents.partitions if source_of(n) in domain], contents.clock_ms)

    def _advance(self, domain: Collection[int], time: WatermarkState, contents: Contents) -> WatermarkState:
        progress = [p for p in contents.progress if source_of(p.partition) in domain]
        return time.advance(progress, contents.clock_ms, self.app.idle_ms)

    def _cut(self, contents: Contents, before: Sequence[WatermarkState], after: Sequence[WatermarkState]) -> Cut:
        return Cut(
            shard=self.number,
            events=contents.rows,
            control=contents.control,
            clock_ms=contents.clock_ms,
            watermark_ms=before[0].watermark_ms,
            next_watermark_ms=after[0].watermark_ms,
            latest_event_ms={
                schema.name: before[0].latest_event_ms(partitions_of(source))
                for source, schema in enumerate(self.app.schemas)
            },
            times=[
                StepTime(one.watermark_ms, other.watermark_ms, contents.clock_ms)
                for one, other in zip(before, after, strict=True)
            ],
            starts=contents.partitions,
        )

    # --- the next stage -----------------------------------------------------------------------------------------

    def _copies(self, contents: Contents) -> Iterator[Parcel]:
        """What every shard of this stage got is what every shard of the next one gets."""
        yield self._parcel(ParcelKind.PROGRESS, contents, pack_progress(contents.progress))
        if contents.partitions:
            yield self._parcel(ParcelKind.PARTITIONS, contents, pack_partitions(contents.partitions))
        if contents.control:
            yield self._parcel(ParcelKind.CONTROL, contents, pack_control(contents.control))

    def _parcel(self, kind: ParcelKind, contents: Contents, blob: bytes) -> Parcel:
        return Parcel(self.number, kind, contents.clock_ms, blob)

    def _sent(self, output: Output, contents: Contents) -> Iterator[Parcel]:
        for place, exchange in enumerate(self.app.exchanges):
            rows = output.rows.get(exchange.rows)
            if rows is not None and len(rows):
                assert isinstance(rows, pl.DataFrame), "a keyed stage gives frames"
                numbered = rows.with_columns(
                    pl.lit(self.number, pl.Int32).alias(PARTITION),
                    pl.int_range(pl.len(), dtype=pl.Int64).alias(OFFSET),
                )
                kind = ParcelKind.ROWS + place
                yield from pack_rows(exchange, kind, to_table(numbered), self.app.shards, contents.clock_ms)

    # --- state --------------------------------------------------------------------------------------------------

    def _load(self, blobs: BlobStore) -> bool:
        """True when something had to be read: a new process, a moved shard, an attempt that was not committed."""
        head = blobs.get(HEAD)
        if self.clean and self.log.holds(head):
            return False
        if not (self.clean and head and self.log.catch_up(head, blobs, self.kernel.table)):
            self._forget()
            self.log.load(head, blobs, self.kernel.table)
        self.kernel.loaded()
        cells = self.log.head.cells.get("domains")
        if isinstance(cells, list):
            assert len(cells) == len(self.times), "the app has the domains that it had"
            self.times = [from_cells(cell) for cell in cells]
        return True


def to_cells(time: WatermarkState) -> dict[str, object]:
    """As a shard keeps it, JSON-able."""
    partitions = {str(n): [t.max_event_ms, t.active_ms, t.watermark_ms] for n, t in sorted(time.partitions.items())}
    return {"watermark_ms": time.watermark_ms, "partitions": partitions}


def from_cells(cells: Mapping[str, Any]) -> WatermarkState:
    """What ``to_cells`` gave."""
    partitions = {int(n): PartitionTime(*t) for n, t in cells["partitions"].items()}
    time = WatermarkState(cells["watermark_ms"], partitions)
    assert time.watermark_ms >= NO_WATERMARK, "a watermark is never below the first"
    return time
