"""A topology as a graph: its name, its sinks, and the nodes that can be reached from them.

Kernel, plan and pictures read the graph. ``Topology`` adds the methods for users.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from streamcore.arguments import check_type
from streamcore.errors import ConfigError
from streamcore.operators.base import LATE
from streamcore.topology import nodes
from streamcore.topology.nodes import OutputPort, Schema, SinkNode, StatefulNode, TopologyNode, walk
from streamcore.topology.stages import StageAssignment, assign_stages
from streamcore.wire.arrow_ipc import to_table
from streamcore.wire.lanes import DEAD_LETTERS
from streamcore.wire.raw import ORIGIN, RAW_VALUE

if TYPE_CHECKING:
    import pyarrow as pa

_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,62}\Z")


@dataclass(frozen=True)
class TopologyGraph:
    """The graph of the nodes that ``sinks`` need. ``ConfigError`` if it cannot run. ``levels``: its keyed stages."""

    name: str
    sinks: tuple[SinkNode, ...]
    levels: StageAssignment = field(init=False, repr=False, compare=False)

    def __init__(self, name: str, *sinks: SinkNode) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "sinks", sinks)
        if not sinks:
            raise ConfigError(f"topology {name}: it has no sink; give it at least one")
        for sink in sinks:
            check_type(f"topology {name}", sink, SinkNode, "end each stream with sink, table or dead_letters")
        object.__setattr__(self, "levels", assign_stages(sinks, _names(name, [*walk(sinks)])))
        _check_columns(name, self._lane_writers)
        if ambiguous := self.tables.intersection(self.lanes):
            raise ConfigError(f"topology {name}: lane {min(ambiguous)} is used for records and for rows; use two lanes")

    @property
    def sources(self) -> tuple[nodes.SourceNode, ...]:
        """The sources, in the order of their indexes."""
        return tuple(node for node in self.levels.nodes if isinstance(node, nodes.SourceNode))

    @property
    def stateful_nodes(self) -> tuple[StatefulNode, ...]:
        """The operators, each after its inputs."""
        return tuple(node for node in self.levels.nodes if isinstance(node, StatefulNode))

    @property
    def lane_sources(self) -> dict[str, frozenset[int]]:
        """The indexes of the sources whose rows reach each lane, except ``DEAD_LETTERS``, which all reach."""
        ends = [(sink.lane, sink.input_port.node) for sink in self.sinks]
        ends += [(lane, node) for node in self.levels.nodes for lane in _side_lanes(node).values()]
        found: dict[str, frozenset[int]] = {}
        for lane, node in ends:
            if lane != DEAD_LETTERS:
                found[lane] = found.get(lane, frozenset()) | self._real_sources(node)
        return found

    def _real_sources(self, node: TopologyNode) -> frozenset[int]:
        count = len(self.sources)
        return frozenset(n if n < count else self.levels.derived[n - count][1] for n in self.levels.sources[node])

    def source_name(self, index: int) -> str:
        """Return the name of a source, or of the step that assigns the time of a derived source."""
        count = len(self.sources)
        return self.sources[index].name if index < count else self.node_name(self.levels.derived[index - count][0])

    @cached_property
    def watermark_groups(self) -> tuple[tuple[int, ...], ...]:
        """Sets of source indexes with a common watermark: all sources, and those of each operator, derived ones too."""
        all_sources = tuple(range(len(self.sources)))
        by_operator = [tuple(sorted(self.levels.sources[node])) for node in self.stateful_nodes]
        return tuple(dict.fromkeys([all_sources, *by_operator]))

    @property
    def first_control_level(self) -> int | None:
        """The first level with an operator that receives the control records, if there is one."""
        return min((max(self.levels.level_by_node[n]) for n in self.stateful_nodes if n.control_input), default=None)

    @property
    def tables(self) -> frozenset[str]:
        """The lanes that a sink takes as rows, not as records."""
        return frozenset(sink.lane for sink in self.sinks if sink.whole)

    @property
    def table_columns(self) -> dict[str, pa.Schema]:
        """The columns of each lane of ``tables``, as its sink receives them."""
        return {lane: to_table(pl.DataFrame(schema=self.lane_columns[lane])).schema for lane in self.tables}

    @property
    def lane_columns(self) -> dict[str, Schema]:
        """The columns of the rows of each lane, except ``DEAD_LETTERS`` and lanes of late records."""
        return {lane: columns for _, lane, columns in self._lane_writers}

    @property
    def lanes(self) -> tuple[str, ...]:
        """All lanes of records, with those of side outputs and dead letters."""
        records = [sink.lane for sink in self.sinks if not sink.whole]
        side_lanes = [lane for node in self.levels.nodes for lane in _side_lanes(node).values()]
        return tuple(dict.fromkeys([*records, *side_lanes, DEAD_LETTERS]))

    @property
    def _lane_writers(self) -> list[tuple[str, str, Schema]]:
        """The outputs that end as rows in a lane: name of the step and port, lane, columns."""
        ends = [(self.node_name(sink.input_port.node), sink.lane, sink.input_port) for sink in self.sinks]
        ends += [
            (f"{self.node_name(node)}.{port}", lane, OutputPort(node, port))
            for node in self.levels.nodes
            for port, lane in _side_lanes(node).items()
        ]
        return [
            (name, lane, _lane_columns(port))
            for name, lane, port in ends
            if lane != DEAD_LETTERS and not is_late_records(port)
        ]

    def node_name(self, node: TopologyNode) -> str:
        """Return the name of a node in errors, pictures and the names of its state."""
        return self.levels.names[node]


def _side_lanes(node: TopologyNode) -> Mapping[str, str]:
    """Return the lanes of the ports of a step that end in one."""
    match node:
        case StatefulNode() | nodes.KeylessNode():
            return node.side_lanes
        case nodes.EnrichmentNode():
            return {nodes.FAILED: node.failed_to}
        case _:
            return {}


def is_late_records(port: OutputPort) -> bool:
    """Return whether a port has late rows that carry their records: they are written as these, with their place."""
    return port.name == LATE and RAW_VALUE in port.schema


def _lane_columns(port: OutputPort) -> dict[str, pl.DataType]:
    return {name: dtype for name, dtype in port.schema.items() if name not in ORIGIN}


def _check_columns(topology: str, writers: Sequence[tuple[str, str, Schema]]) -> None:
    """Raise ``ConfigError`` if two outputs write different columns to one lane."""
    first: dict[str, tuple[str, Schema]] = {}
    for name, lane, columns in writers:
        other, known = first.setdefault(lane, (name, columns))
        if dict(known) != dict(columns):
            raise ConfigError(
                f"topology {topology}: lane {lane} gets columns {_text(known)} from {other} and {_text(columns)} from "
                f"{name}; use two lanes, or select the same columns"
            )


def _text(columns: Schema) -> str:
    return ", ".join(f"{name} {dtype}" for name, dtype in columns.items())


def _names(topology: str, nodes_in_order: Sequence[TopologyNode]) -> dict[TopologyNode, str]:
    """Return the name of each node: as given, or its kind and a number. ``ConfigError`` if two are equal."""
    count: Counter[str] = Counter()
    names: dict[TopologyNode, str] = {}
    for node in nodes_in_order:
        count[node.kind] += 1
        names[node] = node.name or f"{node.kind.replace(' ', '-')}-{count[node.kind]}"
    for name, uses in Counter(names.values()).items():
        if uses > 1:
            raise ConfigError(f"topology {topology}: {uses} nodes are named {name!r}; state is stored by name")
        if not _NAME.match(name):
            raise ConfigError(
                f"topology {topology}: node name {name!r} must have at most 63 of a-z, 0-9, _, . and -, a-z first"
            )
    return names
