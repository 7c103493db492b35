"""A topology as a graph: a name, its sinks, and everything that is reached from them.

Kernel, plan and pictures read it; ``Topology`` adds what a user does with it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from streamcore.errors import ConfigError
from streamcore.schema import EVENT_MS
from streamcore.topology import nodes
from streamcore.topology.dead_letters import without_origin
from streamcore.topology.nodes import SinkNode, StatefulNode, TopologyNode, empty_rows, walk
from streamcore.topology.stages import StageAssignment, assign_stages
from streamcore.wire.arrow_ipc import to_table
from streamcore.wire.lanes import DEAD_LETTERS

if TYPE_CHECKING:
    import pyarrow as pa

_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,62}\Z")


@dataclass(frozen=True)
class TopologyGraph:
    """``sinks``: where it ends. ``ConfigError`` for a topology that cannot run."""

    name: str
    sinks: tuple[SinkNode, ...]
    levels: StageAssignment = field(init=False, repr=False, compare=False)

    def __init__(self, name: str, *sinks: SinkNode) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "sinks", sinks)
        if not sinks:
            raise ConfigError(f"topology {name}: it ends nowhere; give it at least one sink")
        object.__setattr__(self, "levels", assign_stages(sinks, _names(name, [*walk(sinks)])))
        if both := self.tables.intersection(self.lanes):
            raise ConfigError(f"topology {name}: lane {min(both)} has records and rows; give one of them another name")

    @property
    def sources(self) -> tuple[nodes.SourceNode, ...]:
        """The streams that it reads, in order."""
        return tuple(node for node in self.levels.nodes if isinstance(node, nodes.SourceNode))

    @property
    def stateful_nodes(self) -> tuple[StatefulNode, ...]:
        """The operators with state, each after its inputs."""
        return tuple(node for node in self.levels.nodes if isinstance(node, StatefulNode))

    @cached_property
    def domains(self) -> tuple[tuple[int, ...], ...]:
        """Sets of sources that have a watermark together: all, and those that feed some operator."""
        every = tuple(range(len(self.sources)))
        found = [tuple(sorted(self.levels.sources[node])) for node in self.stateful_nodes]
        return tuple(dict.fromkeys([every, *found]))

    @property
    def tables(self) -> frozenset[str]:
        """The lanes whose rows stay rows, for sinks."""
        return frozenset(sink.lane for sink in self.sinks if sink.whole)

    @property
    def table_columns(self) -> dict[str, pa.Schema]:
        """The columns of each of the ``tables``, as a sink gets them."""
        found = {sink.lane: empty_rows(sink.before.schema).drop(EVENT_MS) for sink in self.sinks if sink.whole}
        return {lane: to_table(without_origin(rows)).schema for lane, rows in found.items()}

    @property
    def lanes(self) -> tuple[str, ...]:
        """All lanes that accepted or rejected records may end in."""
        sides = [lane for node in self.stateful_nodes for lane in node.side_lanes.values()]
        sides += [node.failed_to for node in self.levels.nodes if isinstance(node, nodes.EnrichmentNode)]
        return tuple(dict.fromkeys([*(sink.lane for sink in self.sinks if not sink.whole), *sides, DEAD_LETTERS]))

    def node_name(self, node: TopologyNode) -> str:
        """Return the name of a node in errors, pictures and the names of its state."""
        return self.levels.names[node]


def _names(topology: str, every: Sequence[TopologyNode]) -> dict[TopologyNode, str]:
    """Return the name that a node was given, or its kind and a number; a name is given once."""
    count: Counter[str] = Counter()
    names: dict[TopologyNode, str] = {}
    for node in every:
        count[node.kind] += 1
        names[node] = node.name or f"{node.kind.replace(' ', '-')}-{count[node.kind]}"
    for name, times in Counter(names.values()).items():
        if times > 1:
            raise ConfigError(f"topology {topology}: {times} nodes are named {name!r}; state is found by name")
        if not _NAME.match(name):
            raise ConfigError(f"topology {topology}: node name {name!r}: small letters, digits, _, . and -, at most 63")
    return names
