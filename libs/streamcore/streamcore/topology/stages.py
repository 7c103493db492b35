"""Assigns each node of a topology to levels, and plans the exchanges of rows between levels.

Level 0 has no key and no state; level n is the n-th keyed stage. A node without state runs on the levels of its inputs,
of which there may be several. An operator runs one level after the last level of its inputs, or on this last level if
the rows are already partitioned by its key. An exchange sends the rows of earlier levels to an operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from streamcore.errors import ConfigError
from streamcore.kernel import Exchange, StreamKey
from streamcore.topology.nodes import (
    KeyedInput,
    OutputPort,
    SourceNode,
    StatefulNode,
    TimestampsNode,
    TopologyNode,
    walk,
)

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlannedExchange:
    """Rows of a port on ``level`` that are sent to an operator on a later level. ``columns``: None for all."""

    exchange: Exchange
    port: OutputPort
    level: int
    columns: tuple[str, ...] | None


@dataclass
class StageAssignment:
    """The levels of all nodes, and the exchanges between levels.

    ``nodes``: each after its inputs. ``keys``: by node and level, the key by which the output is partitioned, or None.
    """

    nodes: Sequence[TopologyNode]
    names: dict[TopologyNode, str]
    level_by_node: dict[TopologyNode, frozenset[int]] = field(default_factory=dict)
    keys: dict[tuple[TopologyNode, int], Key | None] = field(default_factory=dict)
    exchanges: list[PlannedExchange] = field(default_factory=list)
    #: By operator, input index and level: the name under which the rows of this earlier level arrive.
    routes: dict[tuple[TopologyNode, int, int], StreamKey] = field(default_factory=dict)
    #: By node: the indexes of the sources of its rows.
    sources: dict[TopologyNode, frozenset[int]] = field(default_factory=dict)
    #: By node: the milliseconds by which its watermark is behind that of its sources, because earlier operators hold
    #: rows back.
    delays: dict[TopologyNode, int] = field(default_factory=dict)
    #: The derived sources in the order of their indexes, which follow those of the sources: the step that assigns the
    #: time, and the index of the source whose rows reach it.
    derived: list[tuple[TimestampsNode, int]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of levels, level 0 included."""
        return 1 + max((max(levels) for levels in self.level_by_node.values() if levels), default=0)

    def nodes_on(self, level: int) -> list[TopologyNode]:
        """Return the nodes of a level."""
        return [node for node in self.nodes if level in self.level_by_node[node]]


def assign_stages(sinks: Sequence[TopologyNode], names: dict[TopologyNode, str]) -> StageAssignment:
    """Assign every node that the sinks need to its levels; ``ConfigError`` for times that are assigned after a key."""
    levels = StageAssignment([*walk(sinks)], names)
    index, source_count = 0, sum(isinstance(node, SourceNode) for node in levels.nodes)
    for node in levels.nodes:
        if isinstance(node, SourceNode):
            _record(levels, node, {0: None}, frozenset((index,)))
            index += 1
        elif isinstance(node, StatefulNode):
            _assign_operator(levels, node)
        elif isinstance(node, TimestampsNode):
            _assign_timestamps(levels, node, source_count)
        else:
            _assign_stateless(levels, node)
    return levels


def _record(levels: StageAssignment, node: TopologyNode, keys: dict[int, Key | None], sources: frozenset[int]) -> None:
    levels.level_by_node[node] = frozenset(keys)
    levels.keys |= {(node, level): key for level, key in keys.items()}
    levels.sources[node] = sources
    levels.delays[node] = max((levels.delays[p.node] + _own_delay(p.node) for p in node.inputs), default=0)


def _own_delay(node: TopologyNode) -> int:
    return node.delay_ms if isinstance(node, StatefulNode) else 0


def _sources(levels: StageAssignment, node: TopologyNode) -> frozenset[int]:
    return frozenset().union(*(levels.sources[port.node] for port in node.inputs))


def _assign_stateless(levels: StageAssignment, node: TopologyNode) -> None:
    """Assign a stateless node to the levels of its inputs. The output keeps the key if its columns do not change."""
    key_by_level: dict[int, Key | None] = {}
    for level in sorted(frozenset().union(*(levels.level_by_node[port.node] for port in node.inputs))):
        keys = {_key(levels, port, level) for port in node.inputs if level in levels.level_by_node[port.node]}
        key = next(iter(keys)) if len(keys) == 1 else None
        key_by_level[level] = key if key is not None and node.keeps(key) else None
    _record(levels, node, key_by_level, _sources(levels, node))


def _assign_timestamps(levels: StageAssignment, node: TimestampsNode, source_count: int) -> None:
    """Assign the step to level 0; from there on, its rows have the time of a derived source for each of their sources.

    It cannot run later: the shards of a cut know the watermark before the cut's first keyed stage.
    """
    if max(levels.level_by_node[node.input_port.node]) > 0:
        raise ConfigError(
            f"assign_timestamps {node.column}: times must be assigned before the first key_by, because the watermark "
            "of a cut is the same in all of its keyed stages; write the rows to a topic that another app reads"
        )
    before = levels.sources[node.input_port.node]
    real = sorted({levels.derived[n - source_count][1] if n >= source_count else n for n in before})
    first = source_count + len(levels.derived)
    levels.derived += [(node, source) for source in real]
    _record(levels, node, {0: None}, frozenset(range(first, first + len(real))))


def _assign_operator(levels: StageAssignment, node: StatefulNode) -> None:
    last = max(max(levels.level_by_node[keyed_input.port.node]) for keyed_input in node.keyed)
    runs_on_last = last > 0 and all(_is_partitioned(levels, keyed_input, last) for keyed_input in node.keyed)
    level = last if runs_on_last else last + 1
    for index, keyed_input in enumerate(node.keyed):
        for from_level in sorted(levels.level_by_node[keyed_input.port.node]):
            if from_level < level:
                levels.routes[node, index, from_level] = _plan_exchange(levels, node, keyed_input, from_level, level)
    key = node.keyed[0].key if node.keeps_key else None
    _record(levels, node, {level: key}, _sources(levels, node))


def _plan_exchange(
    levels: StageAssignment, node: StatefulNode, keyed_input: KeyedInput, from_level: int, level: int
) -> StreamKey:
    """Plan the exchange for an input; return its name. Operators of a level share the exchange of a port and key."""
    for position, planned in enumerate(levels.exchanges):
        is_same_port = (planned.port.node, planned.port.name, planned.level) == (
            keyed_input.port.node,
            keyed_input.port.name,
            from_level,
        )
        if is_same_port and planned.exchange == _exchange(planned.exchange.rows, keyed_input, level):
            levels.exchanges[position] = replace(planned, columns=_columns_to_send(planned, keyed_input))
            return planned.exchange.rows
    rows = StreamKey(f"{levels.names[node]}.{node.keyed.index(keyed_input)}", from_level)
    levels.exchanges.append(
        PlannedExchange(_exchange(rows, keyed_input, level), keyed_input.port, from_level, keyed_input.columns)
    )
    return rows


def _exchange(rows: StreamKey, keyed_input: KeyedInput, level: int) -> Exchange:
    return Exchange(rows, keyed_input.key, level - 1, keyed_input.broadcast, keyed_input.parallelism)


def _columns_to_send(planned: PlannedExchange, keyed_input: KeyedInput) -> tuple[str, ...] | None:
    if planned.columns is None or keyed_input.columns is None:
        return None
    return tuple(name for name in keyed_input.port.schema if name in {*planned.columns, *keyed_input.columns})


def _is_partitioned(levels: StageAssignment, keyed_input: KeyedInput, level: int) -> bool:
    if level not in levels.level_by_node[keyed_input.port.node]:
        return True
    to_all = not keyed_input.broadcast and keyed_input.parallelism is None
    return to_all and _key(levels, keyed_input.port, level) == keyed_input.key


def _key(levels: StageAssignment, port: OutputPort, level: int) -> Key | None:
    """Return the key by which the rows of a port are partitioned on a level."""
    node = port.node
    is_unkeyed = isinstance(node, StatefulNode) and port.name in node.unkeyed_ports
    return None if is_unkeyed else levels.keys[node, level]
