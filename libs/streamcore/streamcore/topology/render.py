"""Pictures of a topology: text for a terminal, Mermaid for a page."""

from __future__ import annotations

from streamcore.operators.base import MAIN
from streamcore.topology.graph import TopologyGraph
from streamcore.topology.nodes import OutputPort, SinkNode, SourceNode, StatefulNode, TopologyNode
from streamcore.topology.stages import StageAssignment


def text(topology: TopologyGraph) -> str:
    """Return one line per node and level: its name, its operation and its inputs."""
    levels = topology.levels
    lines = [f"topology {topology.name}"]
    for level in range(levels.count):
        lines += ["", _heading(level, _keys_of_level(levels, level))]
        lines += [_line(topology, node, level) for node in levels.nodes_on(level)]
    return "\n".join(lines) + "\n"


def _heading(level: int, keys: list[str]) -> str:
    if level == 0:
        return "without a key"
    return f"keyed stage {level}" + (f", by {'; '.join(keys)}" if keys else "")


def _keys_of_level(levels: StageAssignment, level: int) -> list[str]:
    """Return the keys by which rows are sent to a level, as text."""
    exchanges = [planned.exchange for planned in levels.exchanges if planned.exchange.stage == level - 1]
    return sorted({", ".join(exchange.key) or "nothing" for exchange in exchanges if not exchange.broadcast})


def _line(topology: TopologyGraph, node: TopologyNode, level: int) -> str:
    levels = topology.levels
    inputs = [
        _port(topology, port)
        for port in node.inputs
        if isinstance(node, StatefulNode) or level in levels.level_by_node[port.node]
    ]
    parts = [f"  {topology.node_name(node):<20}", _action(node)]
    if inputs:
        parts.append(f"<- {', '.join(inputs)}")
    return " ".join(parts).rstrip()


def _action(node: TopologyNode) -> str:
    if isinstance(node, SinkNode):
        return f"lane {node.lane}" + (f" ({node.detail})" if node.detail else "")
    return node.kind + (f" ({node.detail})" if node.detail else "")


def _port(topology: TopologyGraph, port: OutputPort) -> str:
    name = topology.node_name(port.node)
    return name if port.name == MAIN else f"{name}.{port.name}"


def mermaid(topology: TopologyGraph) -> str:
    """Return a Mermaid flowchart from left to right. Each level is a box, a dotted arrow is an exchange."""
    levels = topology.levels
    lines = ["flowchart LR"]
    for level in range(levels.count):
        lines.append(f'  subgraph level{level}["{_heading(level, _keys_of_level(levels, level))}"]')
        lines += [
            f"    {_node_id(levels, node, level)}{_node_label(topology, node)}" for node in levels.nodes_on(level)
        ]
        lines.append("  end")
    lines += [arrow for node in levels.nodes for arrow in _arrows(levels, node)]
    return "\n".join(lines) + "\n"


def _node_id(levels: StageAssignment, node: TopologyNode, level: int) -> str:
    return f"n{levels.nodes.index(node)}_{level}"


def _node_label(topology: TopologyGraph, node: TopologyNode) -> str:
    label = f"{topology.node_name(node)}<br/>{_action(node)}".replace('"', "#quot;")
    if isinstance(node, SourceNode | SinkNode):
        return f'(["{label}"])'
    return f'[["{label}"]]' if isinstance(node, StatefulNode) else f'["{label}"]'


def _arrows(levels: StageAssignment, node: TopologyNode) -> list[str]:
    """Return an arrow for each input and each of its levels. Arrows to a later level are dotted."""
    arrows = []
    for port in node.inputs:
        label = "" if port.name == MAIN else f"|{port.name}|"
        for level in sorted(levels.level_by_node[port.node]):
            to_level = level if level in levels.level_by_node[node] else max(levels.level_by_node[node], default=level)
            line = "-->" if to_level == level else "-.->"
            arrows.append(f"  {_node_id(levels, port.node, level)} {line}{label} {_node_id(levels, node, to_level)}")
    return arrows
