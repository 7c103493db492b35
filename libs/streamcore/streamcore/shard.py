"""Stage 2: one shard's share of a cut, from parcels to output, with its state before and after.

The shard opens its parcels, moves the watermark, hands the cut to the kernel and commits the kernel's tables. It is
the same code under Spark and in-process; only the blob store differs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from streamcore.app import App, partitions_of
from streamcore.kernel import Cut, Kernel
from streamcore.lanes import Record
from streamcore.packing import Parcel, open_parcels
from streamcore.state.blobs import BlobStore
from streamcore.state.log import HEAD, StateLog
from streamcore.watermark import NO_WATERMARK, PartitionTime, WatermarkState


@dataclass(frozen=True, slots=True)
class ShardOutput:
    """What one shard gives out in one cut, with figures for the metrics."""

    shard: int
    records: list[Record]
    events: int
    watermark_ms: int
    clock_ms: int
    state_bytes: int
    loaded: bool


class Shard:
    """One shard in this process. Its memory is a cache: ``step`` reads it anew when the stored head differs."""

    def __init__(self, app: App, number: int) -> None:
        self.app = app
        self.number = number
        self._forget()

    def _forget(self) -> None:
        self.log = StateLog(self.app.state)
        self.kernel: Kernel = self.app.kernel()
        self.time = WatermarkState()
        self.clean = True

    def step(self, parcels: Iterable[Parcel], blobs: BlobStore) -> ShardOutput:
        """Process this shard's parcels of one cut and write its state to ``blobs``."""
        loaded = self._load(blobs)
        contents = open_parcels(parcels, self.app.schemas)
        before = self.time.expect(contents.partitions, contents.clock_ms)
        after = before.advance(contents.progress, contents.clock_ms, self.app.watermark)
        cut = Cut(
            shard=self.number,
            events=contents.events,
            control=contents.control,
            clock_ms=contents.clock_ms,
            watermark_ms=before.watermark_ms,
            next_watermark_ms=after.watermark_ms,
            latest_event_ms={
                schema.name: before.latest_event_ms(partitions_of(source))
                for source, schema in enumerate(self.app.schemas)
            },
        )
        self.clean = False
        records = contents.dead + self.kernel.step(cut)
        self.time = after
        written = self.log.commit(blobs, self.kernel.tables(), _to_cells(after))
        self.clean = True
        events = sum(p.events for p in contents.progress)
        return ShardOutput(self.number, records, events, after.watermark_ms, contents.clock_ms, written, loaded)

    def _load(self, blobs: BlobStore) -> bool:
        """True when something had to be read: a new process, a moved shard, an attempt that was not committed."""
        head = blobs.get(HEAD)
        if self.clean and self.log.holds(head):
            return False
        if not (self.clean and head and self.log.catch_up(head, blobs, self.kernel.table)):
            self._forget()
            self.log.load(head, blobs, self.kernel.table)
        self.kernel.loaded()
        self.time = _from_cells(self.log.head.cells)
        return True


def _to_cells(time: WatermarkState) -> dict[str, object]:
    partitions = {str(n): [t.max_event_ms, t.active_ms] for n, t in sorted(time.partitions.items())}
    return {"watermark_ms": time.watermark_ms, "partitions": partitions}


def _from_cells(cells: object) -> WatermarkState:
    if not isinstance(cells, dict) or not cells:
        return WatermarkState()
    partitions = {int(n): PartitionTime(*t) for n, t in cells["partitions"].items()}
    time = WatermarkState(cells["watermark_ms"], partitions)
    assert time.watermark_ms >= NO_WATERMARK, "a watermark is never below the first"
    return time
