"""A topology as a value: a name and its sinks. Everything else is reached from them.

It can be printed (``text``, ``mermaid``), planned without starting anything (``plan``), run in this process on tables
(``streamcore.topology.simulation``) and made into an app for Spark (``app``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from streamcore.app import App, Source
from streamcore.errors import ConfigError
from streamcore.limits import Limits, StateSettings
from streamcore.schema import EVENT_MS
from streamcore.topology import nodes
from streamcore.topology.dead_letters import without_origin
from streamcore.topology.nodes import SinkNode, StatefulNode, TopologyNode, empty_rows, walk
from streamcore.topology.stages import StageAssignment, assign_stages
from streamcore.wire.arrow_ipc import to_table
from streamcore.wire.lanes import DEAD_LETTERS

if TYPE_CHECKING:
    import pyarrow as pa

    from streamcore.topology.plan import TopologyPlan

_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,62}\Z")


@dataclass(frozen=True)
class Topology:
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

    def app(
        self,
        *,
        topics: Mapping[str, str] | None = None,
        lanes: Mapping[str, str] | None = None,
        control_topic: str | None = None,
        shards: int = 4,
        state: StateSettings | None = None,
        limits: Limits | None = None,
    ) -> App:
        """Return the app that runs it. ``topics``: by stream, its own name by default; ``lanes``: by lane, the
        topology's name and the lane's by default."""
        from streamcore.topology.kernel import TopologyHead, TopologyStage

        topics, lanes = topics or {}, lanes or {}
        read = tuple(topics.get(node.name, node.name) for node in self.sources)
        return App(
            name=self.name,
            sources=tuple(
                Source(node.stream, topic, watermark=node.watermark, time=node.time, format=node.format, raw=node.raw)
                for node, topic in zip(self.sources, read, strict=True)
            ),
            control_topic=control_topic or f"{self.name}.control",
            lanes={lane: lanes.get(lane, f"{self.name}.{lane}") for lane in self.lanes},
            stages=tuple(TopologyStage(self, level, read) for level in range(1, max(2, self.levels.count))),
            stateless_stage=TopologyHead(self, read),
            exchanges=tuple(sending.exchange for sending in self.levels.exchanges),
            watermark_groups=self.domains,
            tables=self.tables,
            shards=shards,
            state=state or StateSettings(),
            limits=limits or Limits(),
        )

    def plan(self) -> TopologyPlan:
        """Plan stages, exchanges and state, without starting anything."""
        from streamcore.topology.plan import plan

        return plan(self)

    def text(self) -> str:
        """Return the graph, a line a node, each after its inputs, by the level on which it runs."""
        from streamcore.topology.render import text

        return text(self)

    def mermaid(self) -> str:
        """Return the graph as a Mermaid flowchart."""
        from streamcore.topology.render import mermaid

        return mermaid(self)


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
