"""A small shop with every kind of state in several versions, and savepoints of it without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from streamcore.aggregates import Count, Sum
from streamcore.app import App
from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.cuts.cut_clock import CutClock
from streamcore.keyed import MapState, ProcessContext, ProcessFunction, Row, ValueState
from streamcore.offsets import StreamOffsets
from streamcore.operators.base import MAIN
from streamcore.savepoint import RestoreDecisions, Savepoint, SavepointRepository
from streamcore.savepoint.app_description import check_app_compatibility
from streamcore.savepoint.create import SavepointPosition, write_manifest
from streamcore.savepoint.initial_state import initial_blobs
from streamcore.savepoint.restore import restore_checkpoint
from streamcore.savepoint.state_files import save_shard
from streamcore.schema import StreamSchema
from streamcore.state.blob_store import BlobStore, MemoryBlobs
from streamcore.storage import LocalObjectStore, open_object_store
from streamcore.topology.simulation import Simulation
from streamcore.topology.stream import Stream, source
from streamcore.topology.topology import Topology
from streamcore.watermark import bounded_out_of_orderness
from streamcore.windowing import Session, Tumbling

ORDERS = StreamSchema.parse(
    {
        "name": "orders",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string not null", "n": "long not null"},
    }
)
VIEWS = StreamSchema.parse(
    {
        "name": "views",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string not null", "page": "string not null"},
    }
)
#: Lanes that every version has.
LANES = ("windows", "running", "digits")


class Cents(ProcessFunction):
    """The sum of a user's orders so far, and how often each amount was seen."""

    outputs = {MAIN: {"text": pl.String}}  # noqa: RUF012
    cents = ValueState(int, default=0)
    seen = MapState(int, int, most=50)

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        self.cents += event.n
        self.seen[event.n] = self.seen.get(event.n, 0) + 1
        yield {"text": f"{event.user} {Decimal(self.cents) / 100:.2f} {self.seen[event.n]}"}


def _to_euros(row: Row) -> Row:
    cents, seen = row.get("cents", 0), row.get("seen", {})
    assert isinstance(cents, int)
    assert isinstance(seen, dict)
    return {"euros": Decimal(cents) / 100, "counts": {str(n): count for n, count in seen.items()}}


class Euros(ProcessFunction):
    """The same, in other types and under other names."""

    outputs = {MAIN: {"text": pl.String}}  # noqa: RUF012
    version = 2
    migrations = {1: _to_euros}  # noqa: RUF012
    euros = ValueState(pl.Decimal(18, 2), default=Decimal(0))
    counts = MapState(str, int, most=50)

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        self.euros += Decimal(event.n) / 100
        self.counts[str(event.n)] = self.counts.get(str(event.n), 0) + 1
        yield {"text": f"{event.user} {self.euros:.2f} {self.counts[str(event.n)]}"}


class Forgetful(Euros):
    """A version that does not say how it reads the one before."""

    migrations = {}  # noqa: RUF012


@dataclass(frozen=True)
class Version:
    """A version of the shop. ``rewritten``: other code that says the same."""

    function: Callable[[], ProcessFunction] = Cents
    joined: bool = True
    visits: bool = False
    rewritten: bool = False

    @property
    def lanes(self) -> tuple[str, ...]:
        return (*LANES, *(["pairs"] if self.joined else []), *(["visits"] if self.visits else []))

    @cache  # noqa: B019 - there are few versions
    def topology(self, name: str) -> Topology:
        orders, views = source(ORDERS, bounded_out_of_orderness(2_000)), source(VIEWS, bounded_out_of_orderness(2_000))
        if self.rewritten:
            orders = orders.filter(pl.lit(value=True)).map(n=pl.col("n") + 0)
        by_user = orders.key_by("user")
        sums = by_user.window(Tumbling(5_000)).aggregate("sums", total=Sum("n"), orders=Count())
        digits = sums.map(digit=pl.col("total").cast(pl.String).str.slice(0, 1)).key_by("digit")
        running = by_user.process(self.function(), name="running")
        sinks = [
            sums.sink("windows", key="user"),
            running.select("text").sink("running"),
            digits.window(Tumbling(20_000)).aggregate("digits", sums=Count()).sink("digits", key="digit"),
        ]
        if self.joined:
            sinks.append(self._pairs(orders, views).sink("pairs", key="user"))
        if self.visits:
            visits = views.key_by("user").window(Session("200ms")).aggregate("visits", views=Count())
            sinks.append(visits.sink("visits", key="user"))
        return Topology(name, *sinks)

    @staticmethod
    def _pairs(orders: Stream, views: Stream) -> Stream:
        seen = views.select(pl.col("user").alias("viewer"), "page").key_by("viewer")
        return orders.select("user", "n").key_by("user").join(seen).within(-2_000, 1_000, name="join")


def rows(cut: int) -> dict[str, pl.DataFrame]:
    """Return events of a cut: 30 orders and 30 views of nine users, some out of order."""
    times = [cut * 3_000 + (i * 997) % 4_000 for i in range(30)]
    orders = {
        "ts": times,
        "user": [f"u{(cut + i * i) % 9}" for i in range(30)],
        "n": [(i * 7 + cut) % 13 for i in range(30)],
    }
    views = {
        "ts": times,
        "user": [f"u{(cut * 2 + i) % 9}" for i in range(30)],
        "page": [f"p{i % 4}" for i in range(30)],
    }
    as_time = pl.col("ts").cast(pl.Datetime("ms", "UTC"))
    return {"orders": pl.DataFrame(orders).with_columns(as_time), "views": pl.DataFrame(views).with_columns(as_time)}


@cache
def simulated(version: Version, shards: int) -> Simulation:
    """Return the shop after three cuts. Tests share it, so they may not run further cuts."""
    simulation = Simulation(version.topology("shop"), shards=shards)
    for cut in range(3):
        simulation.cut(rows(cut), clock_ms=cut)
    return simulation


# --- savepoints in this process -------------------------------------------------------------------------------------


def save(
    app: App,
    blobs: Mapping[tuple[int, int], BlobStore],
    folder: Path,
    moment: SavepointPosition,
    name: str = "one",
) -> Savepoint:
    """Write a savepoint of a local app."""
    savepoints = SavepointRepository(LocalObjectStore(folder), app.name)
    to = savepoints.create(name)
    receipts = [save_shard(to, app, stage, shard, kept) for (stage, shard), kept in blobs.items()]
    write_manifest(to, name, app, moment, receipts)
    return savepoints.get(name)


def moment(batch: int = 7, epoch: int = 1) -> SavepointPosition:
    return SavepointPosition(epoch, batch, StreamOffsets(CutClock.at(1), {}), 0)


def restore(
    savepoint: Savepoint, app: App, checkpoint: Path, decisions: RestoreDecisions | None = None
) -> dict[tuple[int, int], MemoryBlobs]:
    """Restore a savepoint; return the initial state of a local app."""
    root, manifest = CheckpointRoot(checkpoint), savepoint.manifest
    restore_checkpoint(savepoint, app, check_app_compatibility(manifest, app, decisions), root, manifest.epoch + 1)
    return initial_of(checkpoint, app)


def initial_of(checkpoint: Path, app: App) -> dict[tuple[int, int], MemoryBlobs]:
    """Return the initial state of the shards of a checkpoint that was made from a savepoint."""
    root = CheckpointRoot(checkpoint)
    folder = open_object_store(root.initial)
    places = [(stage, shard) for stage in range(len(app.stages)) for shard in range(app.shards)]
    return {place: MemoryBlobs(dict(initial_blobs(folder, app, *place))) for place in places}
