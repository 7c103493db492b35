"""Where each node of a topology runs: on which level, and what has to be sent from one level to the next.

Level 0 is stage 1: no key, no state. Level n is the n-th keyed stage. A node without state runs wherever its rows are,
on several levels if they come from several. An operator runs one level after the last of its inputs, or on the same
level if its rows are with their key there already; what it needs from levels before is sent by an exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from streamcore.errors import ConfigError
from streamcore.kernel import Exchange, Routed
from streamcore.topology.nodes import Enriching, Keyed, Node, Operation, Port, Source, walk

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sending:
    """Rows of a port on one level that go to an input of an operator on a later one."""

    exchange: Exchange
    port: Port
    level: int
    columns: tuple[str, ...] | None


@dataclass
class Levels:
    """The levels of all nodes, each after its inputs, and what is sent between them."""

    nodes: Sequence[Node]
    names: dict[Node, str]
    of: dict[Node, frozenset[int]] = field(default_factory=dict)
    keys: dict[tuple[Node, int], Key | None] = field(default_factory=dict)
    sendings: list[Sending] = field(default_factory=list)
    #: Under what name the rows of an operator's input come from a level before.
    routes: dict[tuple[Node, int, int], Routed] = field(default_factory=dict)
    #: The sources that a node's rows come from, by their place among the sources.
    sources: dict[Node, frozenset[int]] = field(default_factory=dict)
    #: How far the watermark that a node works with is behind its sources', because operators before it hold rows back.
    delays: dict[Node, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many levels there are, level 0 included."""
        return 1 + max((max(levels) for levels in self.of.values() if levels), default=0)

    def on(self, level: int) -> list[Node]:
        """The nodes of a level."""
        return [node for node in self.nodes if level in self.of[node]]


def assign(sinks: Sequence[Node], names: dict[Node, str]) -> Levels:
    """Levels for everything that the sinks need."""
    levels = Levels([*walk(sinks)], names)
    number = 0
    for node in levels.nodes:
        if isinstance(node, Source):
            _set(levels, node, {0: None}, frozenset((number,)))
            number += 1
        elif isinstance(node, Operation):
            _place(levels, node)
        else:
            _follow(levels, node)
        if isinstance(node, Enriching) and max(levels.of[node]) > 0:
            raise ConfigError(
                f"enrich {node.name}: look-ups come before the first key, where there is no state to harm"
            )
    return levels


def _set(levels: Levels, node: Node, keys: dict[int, Key | None], sources: frozenset[int]) -> None:
    levels.of[node] = frozenset(keys)
    levels.keys |= {(node, level): key for level, key in keys.items()}
    levels.sources[node] = sources
    levels.delays[node] = max((levels.delays[p.node] + _own_delay(p.node) for p in node.inputs), default=0)


def _own_delay(node: Node) -> int:
    return node.delay_ms if isinstance(node, Operation) else 0


def _sources(levels: Levels, node: Node) -> frozenset[int]:
    return frozenset().union(*(levels.sources[port.node] for port in node.inputs))


def _follow(levels: Levels, node: Node) -> None:
    """Wherever its rows are; they stay with their key if it keeps the key's columns."""
    found: dict[int, Key | None] = {}
    for level in sorted(frozenset().union(*(levels.of[port.node] for port in node.inputs))):
        keys = {levels.keys[port.node, level] for port in node.inputs if level in levels.of[port.node]}
        key = next(iter(keys)) if len(keys) == 1 else None
        found[level] = key if key is not None and node.keeps(key) else None
    _set(levels, node, found, _sources(levels, node))


def _place(levels: Levels, node: Operation) -> None:
    last = max(max(levels.of[one.port.node]) for one in node.keyed)
    together = last > 0 and all(_with_key(levels, one, last) for one in node.keyed)
    level = last if together else last + 1
    for number, one in enumerate(node.keyed):
        for before in sorted(levels.of[one.port.node]):
            if before < level:
                levels.routes[node, number, before] = _send(levels, node, one, before, level)
    key = node.keyed[0].key if node.keeps_key else None
    _set(levels, node, {level: key}, _sources(levels, node))


def _send(levels: Levels, node: Operation, one: Keyed, before: int, level: int) -> Routed:
    """Rows of a port go to a stage once under a key, however many operators there want them."""
    for place, sending in enumerate(levels.sendings):
        same = (sending.port.node, sending.port.name, sending.level) == (one.port.node, one.port.name, before)
        if same and sending.exchange == Exchange(sending.exchange.rows, one.key, level - 1, one.broadcast):
            levels.sendings[place] = replace(sending, columns=_all_of(sending, one))
            return sending.exchange.rows
    rows = Routed(f"{levels.names[node]}.{node.keyed.index(one)}", before)
    levels.sendings.append(Sending(Exchange(rows, one.key, level - 1, one.broadcast), one.port, before, one.columns))
    return rows


def _all_of(sending: Sending, one: Keyed) -> tuple[str, ...] | None:
    if sending.columns is None or one.columns is None:
        return None
    return tuple(name for name in one.port.schema if name in {*sending.columns, *one.columns})


def _with_key(levels: Levels, one: Keyed, level: int) -> bool:
    if level not in levels.of[one.port.node]:
        return True
    return not one.broadcast and levels.keys[one.port.node, level] == one.key
