"""The contract of a kernel: the code of an app between its input and its output, on one shard of the key space.

A kernel is a plain object over Polars frames. It sees a cut (events, control records, the clock, the watermark before
and after) and its own tables, and gives records back. It knows no Spark, no Kafka, no wall clock, no random number
and no environment; the same object runs under Spark, in-process and in a back-test. That makes every output a pure
function of the cut and of the state before it, which is what replay after a crash rests on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from streamcore.operators.base import CutTime
    from streamcore.state.table import StateTable
    from streamcore.wire.lane_rows import LaneRows
    from streamcore.wire.lanes import Record


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """One record of the control topic. ``value`` None deletes the value under ``key``."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class StreamKey:
    """Names the events of one stream under one of its keys (``StreamSchema.keys[route]``)."""

    stream: str
    route: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """Rows that are sent to the shard that owns their ``key``, or all of them to every shard (``broadcast``), for the
    kernel of a stage. Keyed stages count from 0."""

    rows: StreamKey
    key: tuple[str, ...]
    stage: int = 0
    broadcast: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of one cut that a shard processes.

    ``events`` hold, for each exchange, the rows that this shard owns under its key, in order of partition and offset;
    of a source's events, all columns of ``StreamSchema.arrow``. ``control`` is the same on every shard, by offset.
    ``starts``: where the cut begins, by source partition (``app.source_partitions``). ``watermark_ms`` is the watermark
    at the start of the cut, ``next_watermark_ms`` the one at its end; ``watermark_times`` are those of each watermark
    group of the app. ``latest_event_ms`` is, for each stream, the latest event time seen before the cut. ``shard`` 0
    emits what the app emits once a cut.
    """

    shard: int
    events: Mapping[StreamKey, pl.DataFrame]
    control: Sequence[ControlRecord]
    clock_ms: int
    watermark_ms: int
    next_watermark_ms: int
    latest_event_ms: Mapping[str, int]
    watermark_times: Sequence[CutTime] = ()
    start_offsets: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KernelOutput:
    """The output of a step: records and rows for lanes, and rows for the exchanges of later stages.

    ``counters``: numbers of occurrences by name, for the metrics.
    """

    records: Sequence[Record] = ()
    lanes: Sequence[LaneRows] = ()
    rows: Mapping[StreamKey, pl.DataFrame | pa.Table] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)


class Kernel(Protocol):
    """One shard's code with its tables in memory."""

    def step(self, cut: Cut) -> KernelOutput:
        """Process a cut. May raise only for a broken program; bad data becomes a record on a lane."""
        ...

    def tables(self) -> Mapping[str, StateTable]:
        """Return the tables that hold all of this kernel's state, by name."""
        ...

    def table(self, name: str) -> StateTable:
        """Return the table of that name, made if need be: how stored rows find their way back."""
        ...

    def on_state_loaded(self) -> None:
        """Prepare for the first step, once, after the stored rows have been loaded."""
        ...


class KernelFactory(Protocol):
    """Makes a kernel for a shard. It travels to the workers, so it must be picklable: settings and schemas only."""

    def __call__(self) -> Kernel: ...


class StatelessStage(Protocol):
    """The part of an app that needs no key and no state, in stage 1: from decoded events to rows for the shards."""

    def step(self, source: int, events: pa.Table, clock_ms: int) -> KernelOutput:
        """Return some events of one source (``StreamSchema.arrow``), in order of offset within a partition.

        Whatever it gives to an exchange keeps the columns ``PARTITION`` and ``OFFSET`` of the event that it comes from.
        """
        ...


class StatelessStageFactory(Protocol):
    """Makes the stateless stage of a task. Picklable, as a kernel's factory."""

    def __call__(self) -> StatelessStage: ...
