"""Pictures of a topology: text for a terminal, Mermaid for a page. Nothing is started for them."""

from __future__ import annotations

from streamcore.operators.base import MAIN
from streamcore.topology.graph import TopologyGraph
from streamcore.topology.nodes import OutputPort, SinkNode, SourceNode, StatefulNode, TopologyNode
from streamcore.topology.stages import StageAssignment


def text(topology: TopologyGraph) -> str:
    """Return one line a node: its name, its operation and its inputs."""
    levels = topology.levels
    lines = [f"topology {topology.name}"]
    for level in range(levels.count):
        lines += ["", _heading(level, _key(levels, level))]
        lines += [_line(topology, node, level) for node in levels.nodes_on(level)]
    return "\n".join(lines) + "\n"


def _heading(level: int, keys: list[str]) -> str:
    if level == 0:
        return "without a key"
    return f"keyed stage {level}" + (f", by {'; '.join(keys)}" if keys else "")


def _key(levels: StageAssignment, level: int) -> list[str]:
    """Return the keys by which rows come to a level."""
    exchanges = [sending.exchange for sending in levels.exchanges if sending.exchange.stage == level - 1]
    return sorted({", ".join(one.key) or "nothing" for one in exchanges if not one.broadcast})


def _line(topology: TopologyGraph, node: TopologyNode, level: int) -> str:
    levels = topology.levels
    taken = [
        _port(topology, port)
        for port in node.inputs
        if isinstance(node, StatefulNode) or level in levels.level_by_node[port.node]
    ]
    words = [f"  {topology.node_name(node):<20}", _what(node)]
    if taken:
        words.append(f"<- {', '.join(taken)}")
    return " ".join(words).rstrip()


def _what(node: TopologyNode) -> str:
    if isinstance(node, SinkNode):
        return f"lane {node.lane}" + (f" ({node.detail})" if node.detail else "")
    return node.kind + (f" ({node.detail})" if node.detail else "")


def _port(topology: TopologyGraph, port: OutputPort) -> str:
    name = topology.node_name(port.node)
    return name if port.name == MAIN else f"{name}.{port.name}"


def mermaid(topology: TopologyGraph) -> str:
    """Return a flowchart from left to right; each keyed stage is a box, a dotted arrow is an exchange."""
    levels = topology.levels
    lines = ["flowchart LR"]
    for level in range(levels.count):
        lines.append(f'  subgraph level{level}["{_heading(level, _key(levels, level))}"]')
        lines += [f"    {_id(levels, node, level)}{_shape(topology, node)}" for node in levels.nodes_on(level)]
        lines.append("  end")
    lines += [arrow for node in levels.nodes for arrow in _arrows(levels, node)]
    return "\n".join(lines) + "\n"


def _id(levels: StageAssignment, node: TopologyNode, level: int) -> str:
    return f"n{levels.nodes.index(node)}_{level}"


def _shape(topology: TopologyGraph, node: TopologyNode) -> str:
    label = f"{topology.node_name(node)}<br/>{_what(node)}".replace('"', "#quot;")
    if isinstance(node, SourceNode | SinkNode):
        return f'(["{label}"])'
    return f'[["{label}"]]' if isinstance(node, StatefulNode) else f'["{label}"]'


def _arrows(levels: StageAssignment, node: TopologyNode) -> list[str]:
    """Yield the arrows from each input, on every level where both nodes are; those to a later level are dotted."""
    arrows = []
    for port in node.inputs:
        label = "" if port.name == MAIN else f"|{port.name}|"
        for level in sorted(levels.level_by_node[port.node]):
            here = level if level in levels.level_by_node[node] else max(levels.level_by_node[node], default=level)
            line = "-->" if here == level else "-.->"
            arrows.append(f"  {_id(levels, port.node, level)} {line}{label} {_id(levels, node, here)}")
    return arrows
