"""The plan of a topology, for people: its stages, exchanges, state, lanes and watermark delays. Nothing is run."""

from __future__ import annotations

from dataclasses import dataclass

from streamcore.topology.graph import TopologyGraph
from streamcore.topology.nodes import StatefulNode
from streamcore.topology.stages import PlannedExchange


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """One operator. ``tables``: the names of its state tables. ``watermark_for``: the streams whose watermark it uses.

    ``delay_ms``: how far its watermark is behind theirs, because earlier operators hold rows back.
    """

    name: str
    kind: str
    tables: tuple[str, ...]
    watermark_for: tuple[str, ...]
    delay_ms: int


@dataclass(frozen=True, slots=True)
class ExchangePlan:
    """Rows that are sent to the shards of a stage. ``from_level``: sends them; 0 is the stateless level."""

    to: str
    key: tuple[str, ...]
    from_level: int
    columns: tuple[str, ...]
    broadcast: bool

    def text(self) -> str:
        """Return a description for people."""
        by = ", ".join(self.key) or "nothing (one shard)"
        action = f"broadcast {self.to}" if self.broadcast else f"shuffle {self.to} by {by}"
        return f"{action}: {', '.join(self.columns)} (from level {self.from_level})"


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One keyed stage: one shuffle, and one state store per shard."""

    level: int
    exchanges: tuple[ExchangePlan, ...]
    operators: tuple[OperatorPlan, ...]


@dataclass(frozen=True, slots=True)
class TopologyPlan:
    """The plan of a topology. ``streams`` are read, ``lanes`` are written."""

    topology: str
    streams: tuple[str, ...]
    stages: tuple[StagePlan, ...]
    lanes: tuple[str, ...]

    def text(self) -> str:
        """Return a description for people."""
        lines = [f"plan of {self.topology}", f"  reads   {', '.join(self.streams)}"]
        for stage in self.stages:
            lines.append(f"  stage {stage.level}")
            for exchange in stage.exchanges:
                lines.append(f"    {exchange.text()}")
            for operator in stage.operators:
                behind = f", {operator.delay_ms} ms behind" if operator.delay_ms else ""
                lines.append(
                    f"    {operator.kind} {operator.name}: watermark of {', '.join(operator.watermark_for)}{behind}"
                )
                lines += [f"      state {table}" for table in operator.tables]
        return "\n".join([*lines, f"  writes  {', '.join(self.lanes)}"]) + "\n"


def plan(topology: TopologyGraph) -> TopologyPlan:
    """Return the plan of a topology. Its operators are created, to list their tables, but nothing is run."""
    levels = range(1, topology.levels.count)
    stages = tuple(_stage(topology, level) for level in levels)
    return TopologyPlan(
        topology.name,
        tuple(node.name for node in topology.sources),
        stages,
        (*topology.lanes, *sorted(topology.tables)),
    )


def _stage(topology: TopologyGraph, level: int) -> StagePlan:
    planned_exchanges = [planned for planned in topology.levels.exchanges if planned.exchange.stage == level - 1]
    operators = [node for node in topology.levels.nodes_on(level) if isinstance(node, StatefulNode)]
    return StagePlan(
        level, tuple(map(_exchange, planned_exchanges)), tuple(_operator(topology, node) for node in operators)
    )


def _exchange(planned: PlannedExchange) -> ExchangePlan:
    columns = planned.columns if planned.columns is not None else tuple(planned.port.schema)
    exchange = planned.exchange
    return ExchangePlan(exchange.rows.stream, exchange.key, planned.level, columns, exchange.broadcast)


def _operator(topology: TopologyGraph, node: StatefulNode) -> OperatorPlan:
    name = topology.node_name(node)
    tables = tuple(f"{name}/{table}" for table in node.create_operator().tables())
    streams = tuple(dict.fromkeys(topology.source_name(source) for source in sorted(topology.levels.sources[node])))
    return OperatorPlan(name, node.kind, tables, streams, topology.levels.delays[node])
