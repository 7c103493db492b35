"""How a topology is written: streams, keyed streams, windows; each step gives a new value and changes nothing.

::

    orders = source(schema, bounded(5_000))
    revenue = (
        orders.filter(pl.col("quantity") > 0)
        .map(amount=pl.col("price") * pl.col("quantity"))
        .key_by("country")
        .window(Tumbling(3_600_000))
        .aggregate(revenue=Sum("amount"), orders=Count())
    )
    topology = Topology("revenue", revenue.sink("revenue", key="country"))

A step that cannot work is refused where it is written, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from streamcore.app import EventTime
from streamcore.decode.formats import JSON, InputFormat
from streamcore.errors import ConfigError
from streamcore.operators.base import LATE, MAIN, CutTime
from streamcore.schema import EVENT_MS, StreamSchema
from streamcore.topology.control_rows import SCHEMA as CONTROL
from streamcore.topology.labels import format_duration
from streamcore.topology.nodes import (
    DeadLetterNode,
    EnrichmentNode,
    KeyedInput,
    OutputPort,
    Schema,
    SinkNode,
    SourceNode,
    StatefulNode,
    StatelessNode,
    Transform,
    UnionNode,
    empty_rows,
)
from streamcore.topology.transforms import FilterRows, MapColumns, SelectColumns, schema_after
from streamcore.watermark import NO_WATERMARK, WatermarkStrategy
from streamcore.wire.lanes import DEAD_LETTERS

if TYPE_CHECKING:
    from streamcore.aggregates.base import Aggregate
    from streamcore.enrich import Enrichment
    from streamcore.keyed import ProcessFunction
    from streamcore.keyed.keyed_store import KeyedLimits
    from streamcore.operators.base import Operator
    from streamcore.operators.deduplication.operator import WhenFull
    from streamcore.operators.rolling.totals import RollingSpan
    from streamcore.topology.joined_stream import JoinedStream
    from streamcore.topology.windowed_stream import WindowedStream
    from streamcore.windowing import Assigner


def source(
    schema: StreamSchema,
    watermark: WatermarkStrategy | None = None,
    *,
    time: EventTime = EventTime.FIELD,
    format: InputFormat = JSON,
    raw: bool = False,
) -> Stream:
    """Read the events of a stream. ``time``: where their time comes from. ``format``: the format of their records.

    ``raw``: each brings the bytes of its record along (columns ``streamcore.wire.raw.ORIGIN``), so that a rejected
    record holds them wherever its row failed; lanes leave them out.
    """
    return Stream(OutputPort(SourceNode(schema.name, schema, watermark or WatermarkStrategy(), time, format, raw)))


@dataclass(frozen=True, eq=False)
class Stream:
    """Rows that are on no particular shard."""

    port: OutputPort

    @property
    def schema(self) -> Schema:
        """Its columns."""
        return self.port.schema

    def map(self, **columns: pl.Expr) -> Stream:
        """Add columns, or replace those of the same name. Each is a Polars expression over one row."""
        return self._then("map", MapColumns(columns), changes=frozenset(columns))

    def select(self, *columns: str | pl.Expr) -> Stream:
        """Keep these columns and no others."""
        exprs = tuple(pl.col(c) if isinstance(c, str) else c for c in columns)
        plain = {c for c in columns if isinstance(c, str)}
        return self._then("select", SelectColumns(exprs), changes=frozenset(set(self.schema) - plain))

    def filter(self, condition: pl.Expr) -> Stream:
        """Keep the rows for which the condition is true."""
        return self._then("filter", FilterRows(condition), changes=frozenset())

    def flat_map(self, function: Transform) -> Stream:
        """Whatever the function makes of each row: none, one or several rows.

        It gets a frame and gives a frame, row by row; columns that begin with two underscores must stay. It is tried
        on a frame without rows at once.
        """
        return self._then("flat_map", function, changes=None)

    def enrich(self, enrichment: Enrichment, *, failed_to: str = DEAD_LETTERS) -> Stream:
        """Columns from a store outside, by asynchronous look-ups (``streamcore.enrich``). Only before the first key.

        ``failed_to``: the lane of rows whose look-up failed, with the reason; they are the side output ``failed`` too.
        """
        return Stream(OutputPort(EnrichmentNode(enrichment.name, self.port, enrichment, failed_to)))

    def union(self, *others: Stream) -> Stream:
        """Merge the rows of all streams."""
        for other in others:
            if dict(other.schema) != dict(self.schema):
                raise ConfigError(f"union: the columns differ: {dict(self.schema)} and {dict(other.schema)}")
        return Stream(OutputPort(UnionNode("", (self.port, *(other.port for other in others)))))

    def key_by(self, *columns: str) -> KeyedStream:
        """Brings the rows of a key together; without columns, all rows."""
        return KeyedStream(KeyedInput(self.port, columns))

    def broadcast(self) -> BroadcastStream:
        """All rows to every shard: for small data that every shard needs, such as rules or rates."""
        return BroadcastStream(KeyedInput(self.port, (), broadcast=True))

    def side(self, name: str) -> Stream:
        """Return a side output of the operator that this stream comes from."""
        ports = self.port.node.ports
        if name not in ports or name == MAIN:
            known = sorted(set(ports) - {MAIN})
            raise ConfigError(f"{self.port.node.kind} has no side output {name!r}; it has {known or 'none'}")
        return Stream(OutputPort(self.port.node, name))

    def sink(self, lane: str, *, key: str | tuple[str, ...] = ()) -> SinkNode:
        """End in a lane. ``key``: the columns that make a record's key."""
        return SinkNode("", self.port, lane, (key,) if isinstance(key, str) else key)

    def table(self, lane: str) -> SinkNode:
        """End in a lane whose rows stay rows, for a sink with columns (``streamcore.sinks``)."""
        return SinkNode("", self.port, lane, whole=True)

    def dead_letters(self, code: str, reason: str) -> SinkNode:
        """End on the lane ``deadletters``. ``code``, ``reason``: text columns with the reason, for machines and for
        people."""
        return DeadLetterNode("", self.port, DEAD_LETTERS, code=code, reason=reason)

    def _then(self, what: str, function: Transform, *, changes: frozenset[str] | None) -> Stream:
        schema = schema_after(what, function, self.schema)
        return Stream(OutputPort(StatelessNode("", self.port, what, function, schema, changes)))


@dataclass(frozen=True, eq=False)
class KeyedStream:
    """Rows with those of the same key."""

    keyed: KeyedInput

    @property
    def key(self) -> tuple[str, ...]:
        """The key's columns."""
        return self.keyed.key

    @property
    def schema(self) -> Schema:
        """Its columns."""
        return self.keyed.port.schema

    def window(self, assigner: Assigner) -> WindowedStream:
        """Cut into windows."""
        from streamcore.topology.windowed_stream import WindowedStream

        return WindowedStream(self.keyed, assigner)

    def rolling(
        self,
        *spans: RollingSpan,
        name: str = "",
        max_entries: int = 5_000_000,
        late_to: str = DEAD_LETTERS,
        **aggregates: Aggregate,
    ) -> Stream:
        """Emit the totals of a key's rows within the last spans whenever they change (``operators.rolling``).

        A row has the key and a column ``<aggregate>_<span>`` for all of them. ``late_to``: the lane of rows that are
        too old for every span.
        """
        from streamcore.operators.rolling.operator import Rolling, RollingSpec

        spec = RollingSpec(self.key, spans, aggregates, max_entries)
        make = partial(Rolling, spec, dict(self.schema))
        about = ", ".join(f"{one.name} in {format_duration(one.step_ms)}" for one in spans)
        return operate([self], "rolling", make, name=name, about=about, side_lanes={LATE: late_to})

    def connect(self, broadcast: BroadcastStream) -> ConnectedStream:
        """With rows that every shard gets, for a function that hears both."""
        return ConnectedStream(self, broadcast)

    def process(
        self,
        function: ProcessFunction,
        *,
        name: str = "",
        limits: KeyedLimits | None = None,
        failed_to: str = DEAD_LETTERS,
    ) -> Stream:
        """Apply a function to one key at a time, with state and timers (``streamcore.operators.process``).

        ``failed_to``: the lane of events on which it failed, with the reason.
        """
        return _process(self, None, function, name, limits, failed_to)

    def join(self, right: KeyedStream) -> JoinedStream:
        """With another stream, or with a table that changes; how, the result is asked."""
        from streamcore.topology.joined_stream import JoinedStream

        return JoinedStream(self.keyed, right.keyed)

    def deduplicate(
        self,
        horizon_ms: int,
        *,
        name: str = "",
        max_ids: int = 10_000_000,
        when_full: WhenFull | None = None,
        duplicates_to: str | None = None,
        keep_duplicates: bool = False,
        late_to: str = DEAD_LETTERS,
    ) -> Stream:
        """Of the rows with one key, the first within ``horizon_ms`` of event time (see ``operators.deduplicate``).

        ``duplicates_to``: the lane of the others; without it they are counted. ``keep_duplicates``: they are the side
        output ``duplicates``, for further steps. ``late_to``: the lane of rows too late for any answer.
        """
        from streamcore.operators.deduplication.operator import (
            DUPLICATES,
            Deduplicate,
            Deduplication,
            Duplicates,
            WhenFull,
        )

        spec = Deduplication(
            self.key,
            horizon_ms,
            max_ids,
            when_full or WhenFull.PASS,
            Duplicates.PORT if duplicates_to or keep_duplicates else Duplicates.COUNT,
        )
        lanes = {LATE: late_to} | ({DUPLICATES: duplicates_to} if duplicates_to else {})
        make = partial(Deduplicate, spec, {**self.schema, EVENT_MS: pl.Int64()})
        about = f"within {format_duration(horizon_ms)}"
        return operate([self], "deduplicate", make, name=name, about=about, side_lanes=lanes)


@dataclass(frozen=True, eq=False)
class BroadcastStream:
    """Rows that every shard gets. ``keyed`` None: the control records of the app."""

    keyed: KeyedInput | None


def control_stream() -> BroadcastStream:
    """Return the records of the app's control topic, with columns ``key`` and ``value`` (text; null: taken back)."""
    return BroadcastStream(None)


@dataclass(frozen=True, eq=False)
class ConnectedStream:
    """A keyed stream with a broadcast one."""

    stream: KeyedStream
    control_input: BroadcastStream

    def process(
        self,
        function: ProcessFunction,
        *,
        name: str = "",
        limits: KeyedLimits | None = None,
        failed_to: str = DEAD_LETTERS,
    ) -> Stream:
        """As on a keyed stream; broadcast rows come to ``process_control``, before the events of their cut."""
        return _process(self.stream, self.control_input, function, name, limits, failed_to)


def _process(
    stream: KeyedStream,
    heard: BroadcastStream | None,
    function: ProcessFunction,
    name: str,
    limits: KeyedLimits | None,
    failed_to: str,
) -> Stream:
    from streamcore.operators.process import FAILED, FAILED_CONTROL, ProcessOperator

    inputs, records = [stream], None
    if heard is not None:
        records = CONTROL if heard.keyed is None else heard.keyed.schema
        inputs += [] if heard.keyed is None else [KeyedStream(heard.keyed)]
    make = partial(
        ProcessOperator, function, key=stream.key, events=dict(stream.schema), control=records, limits=limits
    )
    return operate(
        inputs,
        "process",
        make,
        name=name,
        about=type(function).__name__,
        heard=heard is not None and heard.keyed is None,
        keeps_key=False,
        side_lanes={FAILED: failed_to} | ({FAILED_CONTROL: failed_to} if heard is not None else {}),
    )


def operate(
    inputs: Sequence[KeyedStream],
    what: str,
    make: Callable[[], Operator],
    *,
    name: str = "",
    about: str = "",
    heard: bool = False,
    keeps_key: bool = True,
    side_lanes: Mapping[str, str] | None = None,
) -> Stream:
    """Add an operator over keyed inputs (``nodes.StatefulNode``): the base of all keyed steps, and of yours too.

    ``make``: makes the operator, on each shard; a class, a ``functools.partial`` or anything else that can be pickled.
    """
    keyed = tuple(one.keyed for one in inputs)
    one = make()
    ports = _ports(one, [*(k.schema for k in keyed), *([CONTROL] if heard else [])])
    sides = dict(side_lanes or {})
    if unknown := set(sides) - set(ports):
        raise ConfigError(f"{what}: it has no port {min(unknown)!r}; it has {sorted(ports)}")
    delay_ms = one.output_delay_ms
    return Stream(OutputPort(StatefulNode(name, what, keyed, make, ports, about, heard, keeps_key, delay_ms, sides)))


def _ports(operator: Operator, inputs: Sequence[Schema]) -> dict[str, Schema]:
    """Return the schemas of an operator's outputs, seen from its output for empty input."""
    nothing = operator.step([empty_rows(schema) for schema in inputs], CutTime(NO_WATERMARK, NO_WATERMARK, 0))
    return {port: {n: t for n, t in rows.schema.items() if n != EVENT_MS} for port, rows in nothing.items()}
