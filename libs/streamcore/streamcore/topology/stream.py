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

What cannot work is refused where it is written, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from streamcore.app import EventTime
from streamcore.decode import JSON, InputFormat
from streamcore.errors import ConfigError
from streamcore.lanes import DEAD_LETTERS
from streamcore.operators.operator import LATE, MAIN, StepTime
from streamcore.schema import EVENT_MS, StreamSchema
from streamcore.topology.control import SCHEMA as CONTROL
from streamcore.topology.nodes import (
    DeadLetters,
    Enriching,
    Keyed,
    Operation,
    Port,
    Schema,
    Sink,
    Source,
    Stateless,
    Transform,
    Union,
    empty,
)
from streamcore.topology.transforms import Filtered, Mapped, Selected, schema_after
from streamcore.topology.words import span
from streamcore.watermark import NO_WATERMARK, WatermarkStrategy

if TYPE_CHECKING:
    from streamcore.aggregates.aggregate import Aggregate
    from streamcore.enrich import Enrichment
    from streamcore.keyed import ProcessFunction
    from streamcore.keyed.store import KeyedLimits
    from streamcore.operators.deduplicate import WhenFull
    from streamcore.operators.operator import Operator
    from streamcore.operators.rolling_totals import Span
    from streamcore.topology.joined import JoinedStream
    from streamcore.topology.windowed import WindowedStream
    from streamcore.windowing import Assigner


def source(
    schema: StreamSchema,
    watermark: WatermarkStrategy | None = None,
    *,
    time: EventTime = EventTime.FIELD,
    format: InputFormat = JSON,
    raw: bool = False,
) -> Stream:
    """The events of a stream. ``time``: where their time comes from. ``format``: what their records are written in.

    ``raw``: each brings the bytes of its record along (columns ``streamcore.raw.ORIGIN``), so that a dead letter holds
    them wherever its row failed; lanes leave them out.
    """
    return Stream(Port(Source(schema.name, schema, watermark or WatermarkStrategy(), time, format, raw)))


@dataclass(frozen=True, eq=False)
class Stream:
    """Rows that are on no particular shard."""

    port: Port

    @property
    def schema(self) -> Schema:
        """Its columns."""
        return self.port.schema

    def map(self, **columns: pl.Expr) -> Stream:
        """Adds columns, or replaces those of the same name. Each is a Polars expression over one row."""
        return self._then("map", Mapped(columns), changes=frozenset(columns))

    def select(self, *columns: str | pl.Expr) -> Stream:
        """These columns and no others."""
        exprs = tuple(pl.col(c) if isinstance(c, str) else c for c in columns)
        plain = {c for c in columns if isinstance(c, str)}
        return self._then("select", Selected(exprs), changes=frozenset(set(self.schema) - plain))

    def filter(self, condition: pl.Expr) -> Stream:
        """The rows for which the condition is true."""
        return self._then("filter", Filtered(condition), changes=frozenset())

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
        return Stream(Port(Enriching(enrichment.name, self.port, enrichment, failed_to)))

    def union(self, *others: Stream) -> Stream:
        """The rows of all."""
        for other in others:
            if dict(other.schema) != dict(self.schema):
                raise ConfigError(f"union: the columns differ: {dict(self.schema)} and {dict(other.schema)}")
        return Stream(Port(Union("", (self.port, *(other.port for other in others)))))

    def key_by(self, *columns: str) -> KeyedStream:
        """Brings the rows of a key together; without columns, all rows."""
        return KeyedStream(Keyed(self.port, columns))

    def broadcast(self) -> Broadcast:
        """All rows to every shard: for what is small and everybody needs, such as rules or rates."""
        return Broadcast(Keyed(self.port, (), broadcast=True))

    def side(self, name: str) -> Stream:
        """A side output of the operator that this stream comes from."""
        ports = self.port.node.ports
        if name not in ports or name == MAIN:
            known = sorted(set(ports) - {MAIN})
            raise ConfigError(f"{self.port.node.kind} has no side output {name!r}; it has {known or 'none'}")
        return Stream(Port(self.port.node, name))

    def sink(self, lane: str, *, key: str | tuple[str, ...] = ()) -> Sink:
        """Ends in a lane. ``key``: the columns that make a record's key."""
        return Sink("", self.port, lane, (key,) if isinstance(key, str) else key)

    def table(self, lane: str) -> Sink:
        """Ends in a lane whose rows stay rows, for a sink with columns (``streamcore.sinks``)."""
        return Sink("", self.port, lane, whole=True)

    def dead_letters(self, code: str, reason: str) -> Sink:
        """Ends among the dead letters. ``code``, ``reason``: text columns that say why, for machines and for people."""
        return DeadLetters("", self.port, DEAD_LETTERS, code=code, reason=reason)

    def _then(self, what: str, function: Transform, *, changes: frozenset[str] | None) -> Stream:
        schema = schema_after(what, function, self.schema)
        return Stream(Port(Stateless("", self.port, what, function, schema, changes)))


@dataclass(frozen=True, eq=False)
class KeyedStream:
    """Rows with those of the same key."""

    keyed: Keyed

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
        from streamcore.topology.windowed import WindowedStream

        return WindowedStream(self.keyed, assigner)

    def rolling(
        self,
        *spans: Span,
        name: str = "",
        max_entries: int = 5_000_000,
        late_to: str = DEAD_LETTERS,
        **aggregates: Aggregate,
    ) -> Stream:
        """What the rows of a key within the last spans add up to, whenever it changes (``operators.rolling``).

        A row has the key and a column ``<aggregate>_<span>`` for all of them. ``late_to``: the lane of rows that are
        too old for every span.
        """
        from streamcore.operators.rolling import Rolling, RollingSpec

        spec = RollingSpec(self.key, spans, aggregates, max_entries)
        make = partial(Rolling, spec, dict(self.schema))
        about = ", ".join(f"{one.name} in {span(one.step_ms)}" for one in spans)
        return operate([self], "rolling", make, name=name, about=about, side_lanes={LATE: late_to})

    def connect(self, broadcast: Broadcast) -> ConnectedStream:
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
        """A function over one key at a time, with state and timers (``streamcore.operators.process``).

        ``failed_to``: the lane of events on which it failed, with the reason.
        """
        return _process(self, None, function, name, limits, failed_to)

    def join(self, right: KeyedStream) -> JoinedStream:
        """With another stream, or with a table that changes; how, the result is asked."""
        from streamcore.topology.joined import JoinedStream

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
        output ``duplicates``, for further steps. ``late_to``: the lane of rows so late that nobody can say.
        """
        from streamcore.operators.deduplicate import DUPLICATES, Deduplicate, Deduplication, Duplicates, WhenFull

        spec = Deduplication(
            self.key,
            horizon_ms,
            max_ids,
            when_full or WhenFull.PASS,
            Duplicates.PORT if duplicates_to or keep_duplicates else Duplicates.COUNT,
        )
        lanes = {LATE: late_to} | ({DUPLICATES: duplicates_to} if duplicates_to else {})
        make = partial(Deduplicate, spec, {**self.schema, EVENT_MS: pl.Int64()})
        about = f"within {span(horizon_ms)}"
        return operate([self], "deduplicate", make, name=name, about=about, side_lanes=lanes)


@dataclass(frozen=True, eq=False)
class Broadcast:
    """Rows that every shard gets. ``keyed`` None: the control records of the app."""

    keyed: Keyed | None


def control() -> Broadcast:
    """The records of the app's control topic, with columns ``key`` and ``value`` (text; null: taken back)."""
    return Broadcast(None)


@dataclass(frozen=True, eq=False)
class ConnectedStream:
    """A keyed stream with a broadcast one."""

    stream: KeyedStream
    heard: Broadcast

    def process(
        self,
        function: ProcessFunction,
        *,
        name: str = "",
        limits: KeyedLimits | None = None,
        failed_to: str = DEAD_LETTERS,
    ) -> Stream:
        """As on a keyed stream; what is broadcast comes to ``process_control``, and before the events of its cut."""
        return _process(self.stream, self.heard, function, name, limits, failed_to)


def _process(
    stream: KeyedStream,
    heard: Broadcast | None,
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
    """An operator over keyed inputs (``nodes.Operation``): what all keyed steps are written with, and yours too.

    ``make``: makes the operator, on each shard; a class, a ``functools.partial`` or anything else that can be pickled.
    """
    keyed = tuple(one.keyed for one in inputs)
    one = make()
    ports = _ports(one, [*(k.schema for k in keyed), *([CONTROL] if heard else [])])
    sides = dict(side_lanes or {})
    if unknown := set(sides) - set(ports):
        raise ConfigError(f"{what}: it has no port {min(unknown)!r}; it has {sorted(ports)}")
    delay_ms = one.output_delay_ms
    return Stream(Port(Operation(name, what, keyed, make, ports, about, heard, keeps_key, delay_ms, sides)))


def _ports(operator: Operator, inputs: Sequence[Schema]) -> dict[str, Schema]:
    """What an operator gives, seen from what it makes of nothing."""
    nothing = operator.step([empty(schema) for schema in inputs], StepTime(NO_WATERMARK, NO_WATERMARK, 0))
    return {port: {n: t for n, t in rows.schema.items() if n != EVENT_MS} for port, rows in nothing.items()}
