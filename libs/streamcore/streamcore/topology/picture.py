"""Pictures of a topology: text for a terminal, Mermaid for a page. Nothing is started for them."""

from __future__ import annotations

from streamcore.operators.operator import MAIN
from streamcore.topology.levels import Levels
from streamcore.topology.nodes import Node, Operation, Port, Sink, Source
from streamcore.topology.topology import Topology


def text(topology: Topology) -> str:
    """A line a node: what it is called, what it does, and what it takes its rows from."""
    levels = topology.levels
    lines = [f"topology {topology.name}"]
    for level in range(levels.count):
        lines += ["", _heading(level, _key(levels, level))]
        lines += [_line(topology, node, level) for node in levels.on(level)]
    return "\n".join(lines) + "\n"


def _heading(level: int, keys: list[str]) -> str:
    if level == 0:
        return "without a key"
    return f"keyed stage {level}" + (f", by {'; '.join(keys)}" if keys else "")


def _key(levels: Levels, level: int) -> list[str]:
    """The keys by which rows come to a level."""
    exchanges = [sending.exchange for sending in levels.sendings if sending.exchange.stage == level - 1]
    return sorted({", ".join(one.key) or "nothing" for one in exchanges if not one.broadcast})


def _line(topology: Topology, node: Node, level: int) -> str:
    levels = topology.levels
    taken = [
        _port(topology, port) for port in node.inputs if isinstance(node, Operation) or level in levels.of[port.node]
    ]
    words = [f"  {topology.name_of(node):<20}", _what(node)]
    if taken:
        words.append(f"<- {', '.join(taken)}")
    return " ".join(words).rstrip()


def _what(node: Node) -> str:
    if isinstance(node, Sink):
        return f"lane {node.lane}" + (f" ({node.detail})" if node.detail else "")
    return node.kind + (f" ({node.detail})" if node.detail else "")


def _port(topology: Topology, port: Port) -> str:
    name = topology.name_of(port.node)
    return name if port.name == MAIN else f"{name}.{port.name}"


def mermaid(topology: Topology) -> str:
    """A flowchart from left to right; each keyed stage is a box, a dotted arrow is an exchange."""
    levels = topology.levels
    lines = ["flowchart LR"]
    for level in range(levels.count):
        lines.append(f'  subgraph level{level}["{_heading(level, _key(levels, level))}"]')
        lines += [f"    {_id(levels, node, level)}{_shape(topology, node)}" for node in levels.on(level)]
        lines.append("  end")
    lines += [arrow for node in levels.nodes for arrow in _arrows(levels, node)]
    return "\n".join(lines) + "\n"


def _id(levels: Levels, node: Node, level: int) -> str:
    return f"n{levels.nodes.index(node)}_{level}"


def _shape(topology: Topology, node: Node) -> str:
    label = f"{topology.name_of(node)}<br/>{_what(node)}".replace('"', "#quot;")
    if isinstance(node, Source | Sink):
        return f'(["{label}"])'
    return f'[["{label}"]]' if isinstance(node, Operation) else f'["{label}"]'


def _arrows(levels: Levels, node: Node) -> list[str]:
    """From each input on every level where both are; what is sent to an operator on a later level is dotted."""
    arrows = []
    for port in node.inputs:
        label = "" if port.name == MAIN else f"|{port.name}|"
        for level in sorted(levels.of[port.node]):
            here = level if level in levels.of[node] else max(levels.of[node], default=level)
            line = "-->" if here == level else "-.->"
            arrows.append(f"  {_id(levels, port.node, level)} {line}{label} {_id(levels, node, here)}")
    return arrows
