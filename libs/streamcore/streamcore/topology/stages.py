"""Assigns each node of a topology to levels, and plans the exchanges from one level to the next.

Level 0 is stage 1: no key, no state. Level n is the n-th keyed stage. A node without state runs wherever its rows are,
on several levels if they come from several. An operator runs one level after the last of its inputs, or on the same
level if its rows are with their key there already; an exchange sends it the rows of earlier levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from streamcore.errors import ConfigError
from streamcore.kernel import Exchange, StreamKey
from streamcore.topology.nodes import (
    EnrichmentNode,
    KeyedInput,
    OutputPort,
    SourceNode,
    StatefulNode,
    TopologyNode,
    walk,
)

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlannedExchange:
    """Rows of a port on one level that go to an input of an operator on a later one."""

    exchange: Exchange
    port: OutputPort
    level: int
    columns: tuple[str, ...] | None


@dataclass
class StageAssignment:
    """The levels of all nodes, each after its inputs, and the exchanges between levels."""

    nodes: Sequence[TopologyNode]
    names: dict[TopologyNode, str]
    level_by_node: dict[TopologyNode, frozenset[int]] = field(default_factory=dict)
    keys: dict[tuple[TopologyNode, int], Key | None] = field(default_factory=dict)
    exchanges: list[PlannedExchange] = field(default_factory=list)
    #: Under what name the rows of an operator's input come from a level before.
    routes: dict[tuple[TopologyNode, int, int], StreamKey] = field(default_factory=dict)
    #: The sources that a node's rows come from, by their place among the sources.
    sources: dict[TopologyNode, frozenset[int]] = field(default_factory=dict)
    #: How far the watermark that a node works with is behind its sources', because operators before it hold rows back.
    delays: dict[TopologyNode, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many levels there are, level 0 included."""
        return 1 + max((max(levels) for levels in self.level_by_node.values() if levels), default=0)

    def nodes_on(self, level: int) -> list[TopologyNode]:
        """Return the nodes of a level."""
        return [node for node in self.nodes if level in self.level_by_node[node]]


def assign_stages(sinks: Sequence[TopologyNode], names: dict[TopologyNode, str]) -> StageAssignment:
    """Levels for everything that the sinks need."""
    levels = StageAssignment([*walk(sinks)], names)
    number = 0
    for node in levels.nodes:
        if isinstance(node, SourceNode):
            _set(levels, node, {0: None}, frozenset((number,)))
            number += 1
        elif isinstance(node, StatefulNode):
            _place(levels, node)
        else:
            _follow(levels, node)
        if isinstance(node, EnrichmentNode) and max(levels.level_by_node[node]) > 0:
            raise ConfigError(
                f"enrich {node.name}: look-ups come before the first key, where there is no state to harm"
            )
    return levels


def _set(levels: StageAssignment, node: TopologyNode, keys: dict[int, Key | None], sources: frozenset[int]) -> None:
    levels.level_by_node[node] = frozenset(keys)
    levels.keys |= {(node, level): key for level, key in keys.items()}
    levels.sources[node] = sources
    levels.delays[node] = max((levels.delays[p.node] + _own_delay(p.node) for p in node.inputs), default=0)


def _own_delay(node: TopologyNode) -> int:
    return node.delay_ms if isinstance(node, StatefulNode) else 0


def _sources(levels: StageAssignment, node: TopologyNode) -> frozenset[int]:
    return frozenset().union(*(levels.sources[port.node] for port in node.inputs))


def _follow(levels: StageAssignment, node: TopologyNode) -> None:
    """Wherever its rows are; they stay with their key if it keeps the key's columns."""
    found: dict[int, Key | None] = {}
    for level in sorted(frozenset().union(*(levels.level_by_node[port.node] for port in node.inputs))):
        keys = {levels.keys[port.node, level] for port in node.inputs if level in levels.level_by_node[port.node]}
        key = next(iter(keys)) if len(keys) == 1 else None
        found[level] = key if key is not None and node.keeps(key) else None
    _set(levels, node, found, _sources(levels, node))


def _place(levels: StageAssignment, node: StatefulNode) -> None:
    last = max(max(levels.level_by_node[one.port.node]) for one in node.keyed)
    together = last > 0 and all(_with_key(levels, one, last) for one in node.keyed)
    level = last if together else last + 1
    for number, one in enumerate(node.keyed):
        for before in sorted(levels.level_by_node[one.port.node]):
            if before < level:
                levels.routes[node, number, before] = _send(levels, node, one, before, level)
    key = node.keyed[0].key if node.keeps_key else None
    _set(levels, node, {level: key}, _sources(levels, node))


def _send(levels: StageAssignment, node: StatefulNode, one: KeyedInput, before: int, level: int) -> StreamKey:
    """Rows of a port go to a stage once under a key, however many operators there want them."""
    for place, sending in enumerate(levels.exchanges):
        same = (sending.port.node, sending.port.name, sending.level) == (one.port.node, one.port.name, before)
        if same and sending.exchange == Exchange(sending.exchange.rows, one.key, level - 1, one.broadcast):
            levels.exchanges[place] = replace(sending, columns=_columns_to_send(sending, one))
            return sending.exchange.rows
    rows = StreamKey(f"{levels.names[node]}.{node.keyed.index(one)}", before)
    levels.exchanges.append(
        PlannedExchange(Exchange(rows, one.key, level - 1, one.broadcast), one.port, before, one.columns)
    )
    return rows


def _columns_to_send(sending: PlannedExchange, one: KeyedInput) -> tuple[str, ...] | None:
    if sending.columns is None or one.columns is None:
        return None
    return tuple(name for name in one.port.schema if name in {*sending.columns, *one.columns})


def _with_key(levels: StageAssignment, one: KeyedInput, level: int) -> bool:
    if level not in levels.level_by_node[one.port.node]:
        return True
    return not one.broadcast and levels.keys[one.port.node, level] == one.key
