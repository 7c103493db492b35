"""The nodes of a topology: values that describe the steps of rows, and nothing about place or time.

A node's inputs are ports of other nodes, so a graph is the nodes that can be reached from its sinks, and cannot hold
a circle. Nodes are distinguished by identity: the same expression written twice is two nodes. Everything in a node
travels to the workers. Refuses to know stages, shards and how anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from streamcore.app import EventTime
from streamcore.decode.formats import JSON, InputFormat
from streamcore.enrich.spec import ATTEMPTS, REASON, Enrichment
from streamcore.errors import ConfigError
from streamcore.operators.base import MAIN
from streamcore.schema import EVENT_MS, Kind, StreamSchema, Type
from streamcore.topology.labels import format_duration
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import DeadLetterCode
from streamcore.wire.raw import ORIGIN

if TYPE_CHECKING:
    from streamcore.operators.base import Operator

#: The port of rows for which something failed.
FAILED = DeadLetterCode.FAILED.value

#: Columns of a row as a user sees them. Every row also has ``EVENT_MS``.
Schema = Mapping[str, pl.DataType]
#: From rows to rows. Row by row: what it makes of a row does not depend on the rows beside it.
Transform = Callable[[pl.DataFrame], pl.DataFrame]

TIME = pl.Datetime("ms", "UTC")
#: The columns of a source that brings records along.
ORIGIN_SCHEMA: Schema = dict(zip(ORIGIN, (pl.Binary(), pl.Binary(), pl.Int32(), pl.Int64()), strict=True))


@dataclass(frozen=True, eq=False)
class TopologyNode:
    """``name``: its name in errors and pictures, and for an operator the name of its state. Empty: the
    topology finds one."""

    name: str

    @property
    def inputs(self) -> tuple[OutputPort, ...]:
        """Where its rows come from."""
        return ()

    @property
    def ports(self) -> Mapping[str, Schema]:
        """Its outputs, by port."""
        return {}

    @property
    def kind(self) -> str:
        """Its action, in a word or two."""
        return type(self).__name__.removesuffix("Node").lower()

    @property
    def detail(self) -> str:
        """Further details for the reader of a picture."""
        return ""

    def keeps(self, columns: Sequence[str]) -> bool:  # noqa: ARG002 - most do not
        """Whether these columns of its (only) input come out as they went in."""
        return False


@dataclass(frozen=True, eq=False)
class OutputPort:
    """One of a node's outputs."""

    node: TopologyNode
    name: str = MAIN

    @property
    def schema(self) -> Schema:
        """The columns of its rows."""
        return self.node.ports[self.name]


@dataclass(frozen=True, eq=False)
class SourceNode(TopologyNode):
    """Events of a stream. ``raw``: with their records (``ORIGIN_SCHEMA``)."""

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
        how = (
            "punctuated"
            if self.watermark.punctuation
            else f"disorder {format_duration(self.watermark.max_out_of_orderness_ms)}"
        )
        return f"{self.time.value} time, {how}"


@dataclass(frozen=True, eq=False)
class StatelessNode(TopologyNode):
    """``function`` over rows. ``what``: its name. ``changes``: the columns that it may change; None: any."""

    before: OutputPort
    what: str
    function: Transform
    schema: Schema
    changes: frozenset[str] | None = None

    @property
    def inputs(self) -> tuple[OutputPort, ...]:
        return (self.before,)

    @property
    def ports(self) -> Mapping[str, Schema]:
        return {MAIN: self.schema}

    @property
    def kind(self) -> str:
        return self.what

    def keeps(self, columns: Sequence[str]) -> bool:
        return self.changes is not None and not self.changes.intersection(columns)


@dataclass(frozen=True, eq=False)
class EnrichmentNode(TopologyNode):
    """Columns from a store outside; rows whose look-up failed end in a lane."""

    before: OutputPort
    enrichment: Enrichment
    failed_to: str

    def __post_init__(self) -> None:
        self.enrichment.check(self.before.schema)

    @property
    def inputs(self) -> tuple[OutputPort, ...]:
        return (self.before,)

    @property
    def ports(self) -> Mapping[str, Schema]:
        schema = self.before.schema
        failed = {REASON: pl.String(), ATTEMPTS: pl.Int64()}
        return {MAIN: {**schema, **self.enrichment.columns}, FAILED: {**schema, **failed}}

    @property
    def kind(self) -> str:
        return "enrich"

    @property
    def detail(self) -> str:
        return f"by {', '.join(self.enrichment.key)}"

    def keeps(self, columns: Sequence[str]) -> bool:  # noqa: ARG002 - it only adds
        return True


@dataclass(frozen=True, eq=False)
class UnionNode(TopologyNode):
    """Rows of several streams with the same columns."""

    streams: tuple[OutputPort, ...]

    @property
    def inputs(self) -> tuple[OutputPort, ...]:
        return self.streams

    @property
    def ports(self) -> Mapping[str, Schema]:
        return {MAIN: self.streams[0].schema}

    def keeps(self, columns: Sequence[str]) -> bool:  # noqa: ARG002 - it changes nothing
        return True


@dataclass(frozen=True, eq=False)
class KeyedInput:
    """An input of an operator: rows that meet on the shard that owns their key. ``columns``: those that the operator
    needs, None: all. ``broadcast``: there is no key, and every shard gets all rows."""

    port: OutputPort
    key: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    broadcast: bool = False

    def __post_init__(self) -> None:
        missing = [name for name in self.key if name not in self.port.schema]
        if missing:
            raise ConfigError(f"key_by: {missing} are no columns of this stream; it has {[*self.port.schema]}")

    @property
    def schema(self) -> Schema:
        """The columns that the operator gets."""
        every = self.port.schema
        return every if self.columns is None else {name: every[name] for name in self.columns}


@dataclass(frozen=True, eq=False)
class StatefulNode(TopologyNode):
    """A stateful operator over keyed inputs. ``make``: makes it, on a shard.

    ``heard``: it also gets the control records, as a last input. ``side_lanes``: ports that end in a lane of their own.
    ``keeps_key``: its output has the key columns as they were. ``delay_ms``: how far behind its watermark the event
    times of its rows may be.
    """

    what: str
    keyed: tuple[KeyedInput, ...]
    make: Callable[[], Operator]
    schemas: Mapping[str, Schema]
    about: str = ""
    control_input: bool = False
    keeps_key: bool = True
    delay_ms: int = 0
    side_lanes: Mapping[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[OutputPort, ...]:
        return tuple(one.port for one in self.keyed)

    @property
    def ports(self) -> Mapping[str, Schema]:
        return self.schemas

    @property
    def kind(self) -> str:
        return self.what

    @property
    def detail(self) -> str:
        return self.about


@dataclass(frozen=True, eq=False)
class SinkNode(TopologyNode):
    """A lane. ``key``: the columns that make a record's key. ``whole``: it ends in a sink that takes rows."""

    before: OutputPort
    lane: str
    key: tuple[str, ...] = ()
    whole: bool = False

    def __post_init__(self) -> None:
        missing = [name for name in self.key if name not in self.before.schema]
        if missing:
            raise ConfigError(
                f"sink {self.lane}: {missing} are no columns of this stream; it has {[*self.before.schema]}"
            )

    @property
    def inputs(self) -> tuple[OutputPort, ...]:
        return (self.before,)

    @property
    def detail(self) -> str:
        return "rows" if self.whole else f"key {', '.join(self.key)}" if self.key else ""


@dataclass(frozen=True, eq=False)
class DeadLetterNode(SinkNode):
    """The lane of rejected records. ``code``, ``reason``: the columns that give the reason."""

    code: str = ""
    reason: str = ""

    @property
    def kind(self) -> str:
        """Return the kind, in the plural as the lane is named."""
        return "deadletters"


def walk(sinks: Sequence[TopologyNode]) -> Iterator[TopologyNode]:
    """All nodes that can be reached, each once and after its inputs, in an order that depends on the graph alone."""
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
    """Return the column type of a field's values in a topology: decimals are decimals, times are UTC datetimes."""
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


def empty_rows(schema: Schema) -> pl.DataFrame:
    """No rows of these columns, with ``EVENT_MS``."""
    return pl.DataFrame(schema={**schema, EVENT_MS: pl.Int64()})
