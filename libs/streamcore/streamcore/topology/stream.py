"""The interface for writing a topology: streams, keyed streams and steps. A step returns a new stream.

::

    orders = source(schema, bounded(5_000))
    revenue = (
        orders.filter(pl.col("quantity") > 0)
        .map(amount=pl.col("price") * pl.col("quantity"))
        .key_by("country")
        .window(Tumbling("1h"))
        .aggregate(revenue=Sum("amount"), orders=Count())
    )
    topology = Topology("revenue", revenue.sink("revenue", key="country"))

A step that cannot work raises ``ConfigError`` where it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, overload

import polars as pl

from streamcore.app import EventTime
from streamcore.arguments import check_type
from streamcore.decode.formats import JSON, InputFormat
from streamcore.durations import Duration
from streamcore.enrich.spec import Enrichment
from streamcore.errors import ConfigError
from streamcore.operators.base import LATE, MAIN, CutTime
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.topology.checks.expression_check import check_expression
from streamcore.topology.control_rows import SCHEMA as CONTROL
from streamcore.topology.labels import format_duration
from streamcore.topology.nodes import (
    TIME,
    DeadLetterNode,
    EnrichmentNode,
    KeyedInput,
    KeylessNode,
    OutputPort,
    Schema,
    SinkNode,
    SourceNode,
    StatefulNode,
    StatelessNode,
    TimestampsNode,
    Transform,
    UnionNode,
    empty_rows,
)
from streamcore.topology.times.time_columns import reject_changed_time
from streamcore.topology.transforms import FilterRows, MapColumns, SelectColumns, schema_after
from streamcore.watermark import NO_WATERMARK, WatermarkStrategy
from streamcore.wire.lanes import DEAD_LETTERS

if TYPE_CHECKING:
    from streamcore.aggregates.base import Aggregate
    from streamcore.keyed import ProcessFunction
    from streamcore.keyed.keyed_store import KeyedLimits
    from streamcore.limits import PatternLimits
    from streamcore.operators.base import Operator
    from streamcore.operators.deduplication.operator import WhenFull
    from streamcore.operators.rolling.totals import RollingSpan
    from streamcore.patterns.pattern import Pattern
    from streamcore.topology.connected.streams import CoKeyedStream, ConnectedStream
    from streamcore.topology.joined_stream import JoinedStream
    from streamcore.topology.patterns.pattern_stream import PatternStream
    from streamcore.topology.windowed_stream import WindowedStream
    from streamcore.windowing import Assigner


_schemas: ContextVar[Mapping[str, StreamSchema]] = ContextVar("schemas")


@contextmanager
def use_schemas(schemas: Iterable[StreamSchema]) -> Iterator[None]:
    """Let ``source`` take these schemas in place of others of the same names: those that were published later."""
    token = _schemas.set({schema.name: schema for schema in schemas})
    try:
        yield
    finally:
        _schemas.reset(token)


def source(
    schema: StreamSchema,
    watermark: WatermarkStrategy | None = None,
    *,
    time: EventTime = EventTime.FIELD,
    format: InputFormat = JSON,
    raw: bool = False,
) -> Stream:
    """Return the stream of the events of a source. ``time``: what their event time is. ``format``: of the records.

    With ``EventTime.PROCESSING`` the clock of the cut is the watermark, so that windows and sessions fire by the clock;
    of ``watermark`` only ``end`` has an effect then.

    ``raw``: every row carries the bytes of its record (columns ``streamcore.wire.raw.ORIGIN``), so that a dead letter
    contains the original record, whichever step failed. Lanes omit these columns.
    """
    check_type("source", schema, StreamSchema, "write source(StreamSchema.parse({...}))")
    schema = _schemas.get({}).get(schema.name, schema)
    strategy = watermark or WatermarkStrategy()
    check_type("source: watermark", strategy, WatermarkStrategy, "write such as bounded_out_of_orderness('5s')")
    check_type("source: time", time, EventTime, "write such as EventTime.INGESTION")
    return Stream(OutputPort(SourceNode(schema.name, schema, strategy, time, format, raw)))


@dataclass(frozen=True, eq=False)
class Stream:
    """A stream of rows that are not partitioned by a key."""

    port: OutputPort

    @property
    def schema(self) -> Schema:
        """The columns of the rows, without ``EVENT_MS``."""
        return self.port.schema

    def map(self, **columns: pl.Expr) -> Stream:
        """Add columns, or replace those of the same name. Each is a Polars expression over one row.

        ``ConfigError`` for an expression over several rows, such as ``cum_sum``: its result would depend on the cut.
        The event time of a row is that of its source, or what ``assign_timestamps`` has set; the column that holds it
        cannot be replaced.
        """
        for name, expression in columns.items():
            check_expression(f"map: column {name}", expression)
        reject_changed_time("map", self.port, columns)
        return self._add_stateless_step("map", MapColumns(columns), changes=frozenset(columns))

    def select(self, *columns: str | pl.Expr) -> Stream:
        """Keep these columns and no others."""
        exprs = tuple(pl.col(c) if isinstance(c, str) else c for c in columns)
        for number, expression in enumerate(exprs, 1):
            check_expression(f"select: expression {number}", expression)
        unchanged = {c for c in columns if isinstance(c, str)}
        computed = {e.meta.output_name(raise_if_undetermined=False) for e in exprs if not e.meta.is_column()}
        reject_changed_time("select", self.port, {name for name in computed if name is not None})
        return self._add_stateless_step("select", SelectColumns(exprs), changes=frozenset(set(self.schema) - unchanged))

    def filter(self, condition: pl.Expr) -> Stream:
        """Keep the rows for which the condition, a Polars expression over one row, is true."""
        check_expression("filter", condition)
        return self._add_stateless_step("filter", FilterRows(condition), changes=frozenset())

    def flat_map(self, function: Transform) -> Stream:
        """Replace each row with the rows that the function returns for it: none, one or several.

        The function takes a frame and returns a frame. What it returns for a row must not depend on other rows, and it
        must keep the columns that begin with two underscores. It is called immediately, with an empty frame
        and with a few made-up rows; an error for the latter has no effect.
        """
        return self._add_stateless_step("flat_map", function, changes=None)

    def process(self, function: ProcessFunction, *, name: str = "", failed_to: str = DEAD_LETTERS) -> Stream:
        """Call a function without state for each row (``streamcore.operators.process.keyless``).

        It runs where the rows are, before the first ``key_by`` in stage 1. ``failed_to``: the lane of rows for which a
        call failed, with the reason.
        """
        from streamcore.operators.failures import FAILED

        node = KeylessNode(name, self.port, function, {FAILED: failed_to})
        _ = node.ports  # a function that cannot work fails here
        return Stream(OutputPort(node))

    def assign_timestamps(self, column: str, watermark: WatermarkStrategy | None = None, *, name: str = "") -> Stream:
        """Set the event time of the rows to a column of times: windows, joins and timers after it use the new time.

        ``watermark``: how it follows from the new times, for each source partition; its fields ``punctuation`` and
        ``end`` name columns of this stream. Only possible before the first ``key_by``. A row without a time, or with
        one that is too far ahead of the clock (``Limits.max_future_ms``), is a dead letter.
        """
        strategy = watermark or WatermarkStrategy()
        check_type("assign_timestamps: watermark", strategy, WatermarkStrategy, "write bounded_out_of_orderness(5_000)")
        if strategy.max_drift_ms is not None:
            raise ConfigError("assign_timestamps: partitions of a topic wait, so write with_alignment at the source")
        for field, kinds in (
            (column, (TIME,)),
            (strategy.punctuation, (pl.Boolean(), TIME)),
            (strategy.end, (pl.Boolean(),)),
        ):
            if field is not None and self.schema.get(field) not in kinds:
                raise ConfigError(
                    f"assign_timestamps: column {field} is {self.schema.get(field, 'missing')}; it must be "
                    f"{' or '.join(map(str, kinds))}"
                )
        return Stream(OutputPort(TimestampsNode(name, self.port, column, strategy)))

    def enrich(self, enrichment: Enrichment, *, failed_to: str = DEAD_LETTERS) -> Stream:
        """Add columns from a store outside the app (``streamcore.enrich``), before or after a key.

        ``failed_to``: the lane of rows whose lookup failed, with the reason. They are also the side output ``failed``.
        """
        check_type("enrich", enrichment, Enrichment, "write such as Enrichment('products', ProductClient, ...)")
        return Stream(OutputPort(EnrichmentNode(enrichment.name, self.port, enrichment, failed_to)))

    def union(self, *others: Stream) -> Stream:
        """Merge the rows of all streams."""
        for other in others:
            check_type("union", other, Stream, "unite streams before key_by, sink and table")
            if dict(other.schema) != dict(self.schema):
                raise ConfigError(f"union: the columns differ: {dict(self.schema)} and {dict(other.schema)}")
        return Stream(OutputPort(UnionNode("", (self.port, *(other.port for other in others)))))

    def key_by(self, *columns: str) -> KeyedStream:
        """Partition the rows by key columns; without columns, all rows have one key, on one shard."""
        for column in columns:
            if column.startswith("__"):
                raise ConfigError(f"key_by: the stream has no column {column!r}")
        return KeyedStream(KeyedInput(self.port, columns))

    def rebalance(self, *, parallelism: int | None = None) -> Stream:
        """Divide the rows evenly among all shards, so that the steps after it run on all of them in parallel.

        For costly steps without a key behind a topic of few partitions: stage 1 reads a partition in one task. It costs
        a shuffle. The rows of a partition are no longer in order. ``parallelism``: most shards that get rows, so that
        no more tasks run the steps after it at a time, such as calls to a server that bears only a few clients.
        """
        return _send(KeyedInput(self.port, (PARTITION, OFFSET), parallelism=parallelism), "rebalance")

    def partition_by(self, *columns: str, parallelism: int | None = None) -> Stream:
        """Send rows with equal values in the columns to one shard, without a key for state; without columns, all rows.

        The shard follows from a hash of the values: a shard has no number that a program could choose, because the
        number of shards may change. (In Flink: ``partitionCustom`` and ``global``.) ``parallelism``: as for
        ``rebalance``.
        """
        if nested := [name for name in columns if name in self.schema and self.schema[name].is_nested()]:
            raise ConfigError(
                f"partition_by: columns {nested} are lists or structs; map them to text or numbers before"
            )
        return _send(KeyedInput(self.port, columns, parallelism=parallelism), "partition")

    def broadcast(self) -> BroadcastStream:
        """Send all rows to every shard: for small data that every shard needs, such as rules or rates."""
        return BroadcastStream(KeyedInput(self.port, (), broadcast=True))

    def side(self, name: str) -> Stream:
        """Return a side output of the step that returned this stream; ``ConfigError`` if it has none of that name."""
        ports = self.port.node.ports
        if name not in ports or name == MAIN:
            known = sorted(set(ports) - {MAIN})
            raise ConfigError(f"{self.port.node.kind} has no side output {name!r}; it has {known or 'none'}")
        return Stream(OutputPort(self.port.node, name))

    def sink(self, lane: str, *, key: str | tuple[str, ...] = ()) -> SinkNode:
        """Write the rows to a lane as records. ``key``: the columns of a record's key."""
        return SinkNode("", self.port, lane, (key,) if isinstance(key, str) else key)

    def table(self, lane: str) -> SinkNode:
        """Write the rows to a lane for a sink with columns (``streamcore.sinks``), not as records."""
        return SinkNode("", self.port, lane, whole=True)

    def dead_letters(self, code: str, reason: str) -> SinkNode:
        """Write the rows to the lane ``deadletters``. ``code``, ``reason``: names of text columns with the reason.

        ``code`` is for machines, ``reason`` for people.
        """
        return DeadLetterNode("", self.port, DEAD_LETTERS, code=code, reason=reason)

    def _add_stateless_step(self, kind: str, function: Transform, *, changes: frozenset[str] | None) -> Stream:
        schema = schema_after(kind, function, self.schema)
        return Stream(OutputPort(StatelessNode("", self.port, kind, function, schema, changes)))


@dataclass(frozen=True, eq=False)
class KeyedStream:
    """A stream whose rows are partitioned by key."""

    keyed: KeyedInput

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return self.keyed.key

    @property
    def schema(self) -> Schema:
        """The columns of the rows, without ``EVENT_MS``."""
        return self.keyed.port.schema

    def window(self, assigner: Assigner) -> WindowedStream:
        """Assign the rows of each key to windows."""
        from streamcore.topology.windowed_stream import WindowedStream

        return WindowedStream(self.keyed, assigner)

    def pattern(self, pattern: Pattern, *, limits: PatternLimits | None = None) -> PatternStream:
        """Find a pattern in the events of each key (``streamcore.patterns``)."""
        from streamcore.limits import PatternLimits
        from streamcore.topology.patterns.pattern_stream import PatternStream

        return PatternStream(self.keyed, pattern, limits or PatternLimits())

    def rolling(
        self,
        *spans: RollingSpan,
        name: str = "",
        max_entries: int = 5_000_000,
        late_to: str = DEAD_LETTERS,
        **aggregates: Aggregate,
    ) -> Stream:
        """Emit a key's totals over each of the last ``spans`` whenever they change (``streamcore.operators.rolling``).

        An output row has the key and one column ``<aggregate>_<span>`` per aggregate and span. ``name``: of the step.
        ``late_to``: the lane of rows that are too old for every span. A row, or the total of a key, on which an
        accumulator of the user fails is a dead letter.
        """
        from streamcore.operators.failures import FAILED, FAILED_PANE
        from streamcore.operators.rolling.operator import Rolling, RollingSpec
        from streamcore.operators.rolling.totals import RollingSpan

        for span in spans:
            check_type("rolling", span, RollingSpan, "write such as sc.RollingSpan('1h', '1h', '1m')")
        spec = RollingSpec(self.key, spans, aggregates, max_entries)
        create_operator = partial(Rolling, spec, dict(self.schema))
        about = ", ".join(f"{span.name} in {format_duration(span.step_ms)}" for span in spans)
        lanes = {LATE: late_to}
        if any(aggregate.calls_user_code for aggregate in aggregates.values()):
            lanes |= {FAILED: DEAD_LETTERS, FAILED_PANE: DEAD_LETTERS}
        return operate([self], "rolling", create_operator, name=name, about=about, side_lanes=lanes)

    @overload
    def connect(self, other: KeyedStream) -> CoKeyedStream: ...
    @overload
    def connect(self, other: BroadcastStream) -> ConnectedStream: ...
    def connect(self, other: KeyedStream | BroadcastStream) -> CoKeyedStream | ConnectedStream:
        """Connect another stream, for one function that processes both with the same state.

        ``other``: a stream with a key of the same types, or a broadcast stream.
        """
        from streamcore.topology.connected.streams import CoKeyedStream, ConnectedStream

        if isinstance(other, KeyedStream):
            return CoKeyedStream(self, other)
        check_type(
            "connect",
            other,
            BroadcastStream,
            "write other.key_by('id'), or other.broadcast() for small data that every shard needs",
        )
        return ConnectedStream(self, other)

    def process(
        self,
        function: ProcessFunction,
        *,
        name: str = "",
        limits: KeyedLimits | None = None,
        failed_to: str = DEAD_LETTERS,
        keeps_key: bool = False,
    ) -> Stream:
        """Call a keyed function with state and timers for each event (``streamcore.operators.process``).

        ``failed_to``: the lane of events for which a call failed, with the reason. ``keeps_key``: output rows have the
        key columns with the key of their call, so that a step with the same key after it needs no shuffle; a call that
        emits another key fails. (In Flink: ``reinterpretAsKeyedStream``, where nothing checks it.)
        """
        from streamcore.operators.failures import FAILED
        from streamcore.topology.connected.streams import process

        return process(self, function, None, None, name, limits, {FAILED: failed_to}, keeps_key=keeps_key)

    def join(self, right: KeyedStream) -> JoinedStream:
        """Join another stream or a changing table by key; a method of the result selects the kind of join."""
        from streamcore.topology.joined_stream import JoinedStream

        check_type("join", right, KeyedStream, "write such as right.key_by('id')")
        return JoinedStream(self.keyed, right.keyed)

    def deduplicate(
        self,
        horizon_ms: Duration,
        *,
        name: str = "",
        max_ids: int = 10_000_000,
        when_full: WhenFull | None = None,
        duplicates_to: str | None = None,
        keep_duplicates: bool = False,
        late_to: str = DEAD_LETTERS,
    ) -> Stream:
        """Keep the first row of each key within ``horizon_ms`` of event time (``streamcore.operators.deduplication``).

        ``duplicates_to``: the lane of the other rows; without a lane they are only counted. ``keep_duplicates``: they
        are also the side output ``duplicates``. ``late_to``: the lane of rows too late to be checked.
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
        create_operator = partial(Deduplicate, spec, {**self.schema, EVENT_MS: pl.Int64()})
        about = f"within {format_duration(spec.horizon_ms)}"
        return operate([self], "deduplicate", create_operator, name=name, about=about, side_lanes=lanes)


@dataclass(frozen=True, eq=False)
class BroadcastStream:
    """Rows that every shard receives. ``keyed`` is None for the control records of the app."""

    keyed: KeyedInput | None


def control_stream() -> BroadcastStream:
    """Return the records of the app's control topic, with text columns ``key`` and ``value`` (null: revoked)."""
    return BroadcastStream(None)


def _send(rows: KeyedInput, kind: str) -> Stream:
    """Add a step that sends rows to other shards."""
    from streamcore.operators.pass_on import PassOn

    if rows.parallelism is not None and rows.parallelism < 1:
        raise ConfigError(
            f"{kind}: parallelism {rows.parallelism} must be at least 1, the number of shards that get rows"
        )
    by = ", ".join(name for name in rows.key if name in rows.schema)
    about = [*([f"by {by}"] if by else []), *([f"on {rows.parallelism} shards"] if rows.parallelism else [])]
    keeps_key = bool(by) and rows.parallelism is None
    return operate([KeyedStream(rows)], kind, PassOn, about=", ".join(about), keeps_key=keeps_key)


def operate(  # noqa: PLR0913 - an operator has that many properties
    inputs: Sequence[KeyedStream],
    kind: str,
    create_operator: Callable[[], Operator],
    *,
    name: str = "",
    about: str = "",
    control_input: bool = False,
    keeps_key: bool = True,
    side_lanes: Mapping[str, str] | None = None,
    unkeyed_ports: frozenset[str] = frozenset(),
) -> Stream:
    """Add an operator over keyed inputs: the base of all keyed steps, also of operators outside this package.

    ``kind``, ``about``: the operator in pictures. ``create_operator``: called on each shard; a class, a
    ``functools.partial`` or another picklable callable. ``control_input``: the operator also receives the app's control
    records, as its last input. ``keeps_key``: the output has the key columns unchanged, except that of
    ``unkeyed_ports``. ``side_lanes``: lanes by port.
    """
    for stream in inputs:
        check_type(kind, stream, KeyedStream, "write such as stream.key_by('id')")
    keyed = tuple(stream.keyed for stream in inputs)
    operator = create_operator()
    ports = _output_schemas(operator, [*(k.schema for k in keyed), *([CONTROL] if control_input else [])])
    side_lanes_by_port = dict(side_lanes or {})
    if unknown := set(side_lanes_by_port) - set(ports):
        raise ConfigError(f"{kind}: it has no port {min(unknown)!r}; it has {sorted(ports)}")
    delay_ms = operator.output_delay_ms
    node = StatefulNode(
        name,
        kind,
        keyed,
        create_operator,
        ports,
        about,
        control_input,
        keeps_key,
        delay_ms,
        side_lanes_by_port,
        unkeyed_ports,
    )
    return Stream(OutputPort(node))


def _output_schemas(operator: Operator, inputs: Sequence[Schema]) -> dict[str, Schema]:
    """Return the columns of an operator's ports, from its output for empty inputs."""
    empty_output = operator.step([empty_rows(schema) for schema in inputs], CutTime(NO_WATERMARK, NO_WATERMARK, 0))
    return {port: {n: t for n, t in rows.schema.items() if n != EVENT_MS} for port, rows in empty_output.items()}
