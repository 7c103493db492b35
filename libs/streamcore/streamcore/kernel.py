"""The contract of a kernel: the code of an app between its input and its output, on one shard of the key space.

A kernel is a plain object over Polars frames. It sees a cut (events, control records, the clock, the watermark before
and after) and its own tables, and gives records back. It knows no Spark, no Kafka, no wall clock, no random number
and no environment; the same object runs under Spark, in-process and in a back-test. That makes every output a pure
function of the cut and of the state before it, which is what replay after a crash rests on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from streamcore.key_space import KeySpace

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from streamcore.operators.base import CutTime
    from streamcore.schema.published_document import PublishedDocument
    from streamcore.state.cold.cold_state import ColdState
    from streamcore.state.cold.paged_state import PagedState
    from streamcore.state.scope import TableScope
    from streamcore.state.table import StateTable
    from streamcore.watermark import Progress
    from streamcore.wire.lane_rows import LaneRows
    from streamcore.wire.lanes import Record

#: Counters of a kernel that are metrics of their own, by the part of their name before the first dot: sizes of state
#: by its kind, and rules that exceed a budget of state by the kind of budget.
STATE_ENTRIES, STATE_BYTES, BUDGET_REACHED = "state_entries", "state_bytes", "budget_reached"
#: The sizes of paged tables in memory and on disk, and how many keys moved (``streamcore.state.cold``), likewise.
COLD, COLD_MOVES = "cold", "cold_moves"
#: Counts of the deduplication of a stream and sizes of its state, likewise, with the stream and what is counted.
DEDUPLICATION = "deduplication"
#: The last part of the name of such a count: of the shards to which events of after the watermark may be late.
FLOOR_AHEAD = "floor_ahead"
#: The same, with the name of a step: microseconds in which it ran. And with the number of a source partition: the
#: broker's timestamp of the first record that the cut reads of it.
BUSY_US, FIRST_RECORD_MS = "busy_us", "first_record_ms"


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """One record of the control topic. ``value`` None deletes the value under ``key``."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class StreamKey:
    """Identifies the events of one stream, sharded by one of its keys (``StreamSchema.keys[route]``)."""

    stream: str
    route: int


#: Computes the columns of a key that are no fields of an event, from events of one source. It can be pickled.
KeyColumns = Callable[["pa.Table"], "pl.DataFrame"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """An input of a keyed stage: its rows go to the shard that owns their ``key`` columns, or with ``broadcast`` to
    every shard. ``stage``: number of the keyed stage, from 0. ``parallelism``: most shards that get rows; None: all.
    ``as_table``: the kernel gets the rows as an Arrow table in any order, which is cheaper if it passes most on.
    ``hashed``: ``key`` is one column, which has the hash of the key. ``direct``: all rows come from stage 1, and go
    around the stages before theirs. ``columns``: computes the columns of ``key``, which the rows do not have then."""

    rows: StreamKey
    key: tuple[str, ...]
    stage: int = 0
    broadcast: bool = False
    parallelism: int | None = None
    as_table: bool = False
    hashed: bool = False
    direct: bool = False
    columns: KeyColumns | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of one cut that a shard processes.

    ``events``: for each exchange, the rows that this shard owns, in order of partition and offset; events of a
    source have the columns of ``StreamSchema.arrow``, but only the fields of ``KernelOutput.reads``, and late events
    all of them; only the exchanges that it names have rows. ``control``: all control records, in order of offset;
    every shard gets all of them. ``start_offsets``: the offset where the cut begins, by source partition
    (``offsets.source_partitions``). ``watermark_ms``: the watermark at the start of the cut; ``next_watermark_ms``:
    at its end. ``watermark_times``: both, for each watermark group of the app. ``latest_event_ms``: for each
    stream, the latest event time before the cut. Output of which an app has one per cut is emitted by ``shard`` 0.
    ``key_space``: decides which shard owns a key. ``tables``: the rows of exchanges ``as_table``.
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
    key_space: KeySpace = field(default_factory=KeySpace)
    tables: Mapping[StreamKey, pa.Table] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamReads:
    """A kernel's reads of a stream: the names of fields, and the routes of exchanges (``StreamKey.route``).

    Route 0 has the late events in any case.
    """

    fields: frozenset[str]
    routes: frozenset[int]


@dataclass(frozen=True, slots=True)
class KernelOutput:
    """The output of a step: records and rows for lanes, and ``rows`` for the exchanges of later stages.

    ``counters``: numbers of occurrences by name, for the metrics. ``progress``: of derived partitions
    (``app.DerivedSource``), from the stateless stage. ``streams``: published documents that the app has from the next
    cut on (``App.with_streams``), equal in all shards; from the last keyed stage. ``reads``: of each stream, what the
    kernel reads in the next cut if it has no control records; None for all.
    """

    records: Sequence[Record] = ()
    lanes: Sequence[LaneRows] = ()
    rows: Mapping[StreamKey, pl.DataFrame | pa.Table] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    progress: Sequence[Progress] = ()
    streams: Sequence[PublishedDocument] = ()
    reads: Mapping[str, StreamReads] | None = None


class Kernel(Protocol):
    """The code of an app on one shard, with its tables in memory."""

    def step(self, cut: Cut) -> KernelOutput:
        """Process a cut. Only bugs raise; bad data becomes a record on a lane."""
        ...

    def tables(self) -> Mapping[str, StateTable]:
        """Return the tables that hold all of this kernel's state, by name."""
        ...

    def table(self, name: str) -> StateTable:
        """Return the table of that name, into which stored rows are loaded; create it if it does not exist."""
        ...

    def scope(self, name: str) -> TableScope:
        """Return the scope of the table of that name. Replicated tables are loaded before it is asked for others."""
        ...

    def on_state_loaded(self) -> None:
        """Rebuild what is derived from the tables, each time stored rows were loaded."""
        ...


@runtime_checkable
class PagingKernel(Protocol):
    """A kernel some of whose keys can be cold. ``cold``: set by the shard; before the kernel uses rows of a key, it
    lets it recall the key."""

    cold: ColdState | None

    def paged_states(self) -> Mapping[str, PagedState]:
        """Return the states that can be moved to disk, by operator: their tables are named ``<operator>/<table>``."""
        ...


class EventFilter(Protocol):
    """Takes events out of the input of a kernel, as an earlier stage has decided. It has no state."""

    def step(self, cut: Cut) -> tuple[Cut, Sequence[Record]]:
        """Return the cut without these events, and records for some of them."""
        ...


class EventFilterFactory(Protocol):
    """Creates the event filter of a shard. It is pickled for the workers, as a kernel's factory is."""

    def __call__(self) -> EventFilter: ...


class KernelFactory(Protocol):
    """Creates the kernel of a shard. It is pickled for the workers, so it holds settings and schemas only."""

    def __call__(self) -> Kernel: ...


class StatelessStage(Protocol):
    """The part of an app that runs in stage 1, without key and state: turns decoded events into rows for the shards."""

    def step(self, source: int, events: pa.Table, clock_ms: int) -> KernelOutput:
        """Process some events of one source (``StreamSchema.arrow``), in order of offset within a partition.

        Rows for an exchange keep the columns ``PARTITION`` and ``OFFSET`` of the event that they stem from.
        """
        ...


class StatelessStageFactory(Protocol):
    """Creates the stateless stage of a task. It is pickled for the workers, as a kernel's factory is."""

    def __call__(self) -> StatelessStage: ...
