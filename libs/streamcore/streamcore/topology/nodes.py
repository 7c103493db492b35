"""The nodes of a topology: immutable descriptions of its sources, steps and sinks.

A node's inputs are output ports of other nodes, so a graph is everything that can be reached from its sinks, and has no
cycle. Nodes are compared by identity: an expression written twice is two nodes. Nodes are pickled and sent to the
workers. This module does not know stages and shards (``streamcore.topology.stages``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from streamcore.app import EventTime
from streamcore.decode.formats import JSON, InputFormat
from streamcore.enrich.spec import ATTEMPTS, REASON, Enrichment
from streamcore.errors import ConfigError
from streamcore.operators.base import MAIN
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, Kind, StreamSchema, Type
from streamcore.topology.labels import format_duration
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import DeadLetterCode
from streamcore.wire.map_entries import KEY, VALUE
from streamcore.wire.raw import ORIGIN

if TYPE_CHECKING:
    from streamcore.keyed.function import ProcessFunction
    from streamcore.operators.base import Operator
    from streamcore.operators.process.keyless import KeylessProcess

#: The port of rows for which an enrichment failed.
FAILED = DeadLetterCode.FAILED.value

#: Columns of a row as a user sees them. Every row also has ``EVENT_MS``.
Schema = Mapping[str, pl.DataType]
#: A function from rows to rows. What it returns for a row does not depend on the other rows.
Transform = Callable[[pl.DataFrame], pl.DataFrame]

TIME = pl.Datetime("ms", "UTC")
#: The columns of a source with ``raw=True``, which hold the record of each row.
ORIGIN_SCHEMA: Schema = dict(zip(ORIGIN, (pl.Binary(), pl.Binary(), pl.Int32(), pl.Int64()), strict=True))


@dataclass(frozen=True, eq=False)
class TopologyNode:
    """A node. ``name``: used in errors, pictures and for an operator's state. Empty: chosen by the topology."""

    name: str

    @property
    def inputs(self) -> tuple[OutputPort, ...]:
        """The ports that the node reads."""
        return ()

    @property
    def ports(self) -> Mapping[str, Schema]:
        """The columns of each output port."""
        return {}

    @property
    def kind(self) -> str:
        """The kind of the node in pictures, in a word or two."""
        return type(self).__name__.removesuffix("Node").lower()

    @property
    def detail(self) -> str:
        """Further details of the node in pictures."""
        return ""

    def keeps(self, columns: Sequence[str]) -> bool:  # noqa: ARG002 - the default for all columns
        """Return whether the output has these columns of the input unchanged."""
        return False


@dataclass(frozen=True, eq=False)
class OutputPort:
    """One output of a node."""

    node: TopologyNode
    name: str = MAIN

    @property
    def schema(self) -> Schema:
        """The columns of its rows."""
        return self.node.ports[self.name]


@dataclass(frozen=True, eq=False)
class SourceNode(TopologyNode):
    """The events of a source. ``raw``: with their records (``ORIGIN_SCHEMA``). ``time``: what the event time is."""

    stream: StreamSchema
    watermark: WatermarkStrategy
    time: EventTime = EventTime.FIELD
    format: InputFormat = JSON
    raw: bool = False

    @property
    def ports(self) -> Mapping[str, Schema]:
        fields = {field.name: polars_dtype(field.type) for field in self.stream.fields}
        return {MAIN: {**fields, **ORIGIN_SCHEMA} if self.raw else fields}

    @property
    def detail(self) -> str:
        by_clock = self.time is EventTime.PROCESSING
        watermark = "watermark by the clock" if by_clock else describe_watermark(self.watermark)
        horizon_ms = self.stream.deduplicate_ms
        once = "" if horizon_ms is None else f", deduplicated within {format_duration(horizon_ms)}"
        return f"{self.time.value} time, {watermark}{once}"


def describe_watermark(strategy: WatermarkStrategy) -> str:
    """Return a short text of a strategy."""
    return "punctuated" if strategy.punctuation else f"disorder {format_duration(strategy.max_out_of_orderness_ms)}"


@dataclass(frozen=True, eq=False)
class StatelessNode(TopologyNode):
    """A step without state. ``step_kind``: such as map. ``changes``: the columns that it may change; None: all."""

    input_port: OutputPort
    step_kind: str
    function: Transform
    schema: Schema
    changes: frozenset[str] | None = None

    @property
    def inputs(self) -> tuple[OutputPort, ...]:
        return (self.input_port,)

    @property
    def ports(self) -> Mapping[str, Schema]:
        return {MAIN: self.schema}

    @property
    def kind(self) -> str:
        return self.step_kind

    def keeps(self, columns: Sequence[str]) -> bool:
        return self.changes is not None and not self.changes.intersection(columns)


@dataclass(frozen=True, eq=False)
class KeylessNode(TopologyNode):
    """A process function without a key. ``side_lanes``: the lanes of ports that end in one."""

    input_port: OutputPort
    function: ProcessFunction
    side_lanes: Mapping[str, str]

    @property
    def inputs(self) -> tuple[OutputPort, ...]:
        return (self.input_port,)

    @cached_property
    def ports(self) -> Mapping[str, Schema]:
        return self.create().ports

    @property
    def kind(self) -> str:
        return "process"

    @property
    def detail(self) -> str:
        return type(self.function).__name__

    def create(self) -> KeylessProcess:
        """Return the operator that runs the function."""
        from streamcore.operators.process.keyless import KeylessProcess

        return KeylessProcess(self.function, self.input_port.schema)


@dataclass(frozen=True, eq=False)
class EnrichmentNode(TopologyNode):
    """Adds columns from a store outside the app. ``failed_to``: the lane of rows whose lookup failed."""

    input_port: OutputPort
    enrichment: Enrichment
    failed_to: str

    def __post_init__(self) -> None:
        self.enrichment.check(self.input_port.schema)

    @property
    def inputs(self) -> tuple[OutputPort, ...]:
        return (self.input_port,)

    @property
    def ports(self) -> Mapping[str, Schema]:
        schema = self.input_port.schema
        failed = {REASON: pl.String(), ATTEMPTS: pl.Int64()}
        return {MAIN: {**schema, **self.enrichment.columns}, FAILED: {**schema, **failed}}

    @property
    def kind(self) -> str:
        return "enrich"

    @property
    def detail(self) -> str:
        return f"by {', '.join(self.enrichment.key)}"

    def keeps(self, columns: Sequence[str]) -> bool:  # noqa: ARG002 - columns are only added
        return True


@dataclass(frozen=True, eq=False)
class TimestampsNode(TopologyNode):
    """Assigns the event time of the rows from a column. ``watermark``: how the watermark follows from these times."""

    input_port: OutputPort
    column: str
    watermark: WatermarkStrategy

    @property
    def inputs(self) -> tuple[OutputPort, ...]:
        return (self.input_port,)

    @property
    def ports(self) -> Mapping[str, Schema]:
        return {MAIN: self.input_port.schema}

    @property
    def kind(self) -> str:
        return "timestamps"

    @property
    def detail(self) -> str:
        return f"from {self.column}, {describe_watermark(self.watermark)}"

    def keeps(self, columns: Sequence[str]) -> bool:  # noqa: ARG002 - no column is changed
        return True


@dataclass(frozen=True, eq=False)
class UnionNode(TopologyNode):
    """The rows of several streams with equal columns."""

    streams: tuple[OutputPort, ...]

    @property
    def inputs(self) -> tuple[OutputPort, ...]:
        return self.streams

    @property
    def ports(self) -> Mapping[str, Schema]:
        return {MAIN: self.streams[0].schema}

    def keeps(self, columns: Sequence[str]) -> bool:  # noqa: ARG002 - no column is changed
        return True


@dataclass(frozen=True, eq=False)
class KeyedInput:
    """An input of an operator: rows that are sent to the shard of their key.

    ``columns``: the columns that the operator needs; None: all. ``broadcast``: every shard receives all rows; ``key``
    is empty. ``parallelism``: most shards that receive rows; None: all.
    """

    port: OutputPort
    key: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    broadcast: bool = False
    parallelism: int | None = None

    def __post_init__(self) -> None:
        missing = [name for name in self.key if name not in {*self.port.schema, PARTITION, OFFSET}]
        if missing:
            raise ConfigError(f"key_by: the stream has no columns {missing}; it has {[*self.port.schema]}")

    @property
    def schema(self) -> Schema:
        """The columns that the operator receives."""
        schema_before = self.port.schema
        return schema_before if self.columns is None else {name: schema_before[name] for name in self.columns}


@dataclass(frozen=True, eq=False)
class StatefulNode(TopologyNode):
    """An operator over keyed inputs. ``create_operator``: called on each shard.

    ``schemas``: the columns of each port. ``about``: details for pictures. ``control_input``: the operator also
    receives the control records, as its last input. ``side_lanes``: the lanes of ports that end in one.
    ``keeps_key``: the output has the key columns unchanged, except that of ``unkeyed_ports``. ``delay_ms``: how far the
    event times of output rows may be behind the operator's watermark.
    """

    step_kind: str
    keyed: tuple[KeyedInput, ...]
    create_operator: Callable[[], Operator]
    schemas: Mapping[str, Schema]
    about: str = ""
    control_input: bool = False
    keeps_key: bool = True
    delay_ms: int = 0
    side_lanes: Mapping[str, str] = field(default_factory=dict)
    unkeyed_ports: frozenset[str] = frozenset()

    @property
    def inputs(self) -> tuple[OutputPort, ...]:
        return tuple(keyed_input.port for keyed_input in self.keyed)

    @property
    def ports(self) -> Mapping[str, Schema]:
        return self.schemas

    @property
    def kind(self) -> str:
        return self.step_kind

    @property
    def detail(self) -> str:
        return self.about


@dataclass(frozen=True, eq=False)
class SinkNode(TopologyNode):
    """The end of rows in a lane. ``key``: the columns of a record's key. ``whole``: a sink takes rows, not records.
    ``merge``: as of ``streamcore.wire.lane_rows``."""

    input_port: OutputPort
    lane: str
    key: tuple[str, ...] = ()
    whole: bool = False
    merge: str = ""

    def __post_init__(self) -> None:
        missing = [name for name in self.key if name not in self.input_port.schema]
        if missing:
            raise ConfigError(
                f"sink {self.lane}: the stream has no columns {missing}; it has {[*self.input_port.schema]}"
            )
        binary = [n for n, t in self.input_port.schema.items() if _has_binary(t) and n not in ORIGIN]
        if binary and not self.whole:
            raise ConfigError(
                f"sink {self.lane}: columns {binary} are bytes, which JSON cannot hold; encode them as text"
            )

    @property
    def inputs(self) -> tuple[OutputPort, ...]:
        return (self.input_port,)

    @property
    def detail(self) -> str:
        return "rows" if self.whole else f"key {', '.join(self.key)}" if self.key else ""


@dataclass(frozen=True, eq=False)
class DeadLetterNode(SinkNode):
    """The end of rows as dead letters. ``code``, ``reason``: the names of the columns with the reason."""

    code: str = ""
    reason: str = ""

    @property
    def kind(self) -> str:
        """The name of the lane."""
        return "deadletters"


def walk(sinks: Sequence[TopologyNode]) -> Iterator[TopologyNode]:
    """Yield all nodes that the sinks need, each after its inputs, in an order that only the graph determines."""
    seen: set[int] = set()

    def visit(node: TopologyNode) -> Iterator[TopologyNode]:
        if id(node) in seen:
            return
        seen.add(id(node))
        for port in node.inputs:
            yield from visit(port.node)
        yield node

    for sink in sinks:
        yield from visit(sink)


def polars_dtype(logical: Type) -> pl.DataType:
    """Return the Polars type of a field in a topology: decimals are ``pl.Decimal``, times are UTC datetimes."""
    match logical.kind:
        case Kind.DECIMAL:
            return pl.Decimal(logical.precision, logical.scale)
        case Kind.TIMESTAMP:
            return TIME
        case Kind.LONG:
            return pl.Int64()
        case Kind.DOUBLE:
            return pl.Float64()
        case Kind.BOOLEAN:
            return pl.Boolean()
        case Kind.STRING:
            return pl.String()
        case Kind.ARRAY:
            return pl.List(polars_dtype(logical.items))
        case Kind.MAP:
            return pl.List(pl.Struct({KEY: pl.String(), VALUE: polars_dtype(logical.items)}))
        case Kind.STRUCT:
            return pl.Struct({name: polars_dtype(member) for name, member in logical.members})


def _has_binary(dtype: pl.DataType) -> bool:
    if isinstance(dtype, pl.List | pl.Array):
        return _has_binary(dtype.inner)  # type: ignore[arg-type]  # the inner type of a column is an instance
    if isinstance(dtype, pl.Struct):
        return any(_has_binary(field.dtype) for field in dtype.fields)  # type: ignore[arg-type]  # as above
    return dtype == pl.Binary


def empty_rows(schema: Schema) -> pl.DataFrame:
    """Return an empty frame with these columns and ``EVENT_MS``."""
    return pl.DataFrame(schema={**schema, EVENT_MS: pl.Int64()})
