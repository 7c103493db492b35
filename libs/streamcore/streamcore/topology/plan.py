"""The plan of a topology, made without running it: stages, exchanges, state, lanes, time."""

from __future__ import annotations

from dataclasses import dataclass

from streamcore.topology.graph import TopologyGraph
from streamcore.topology.nodes import StatefulNode
from streamcore.topology.stages import PlannedExchange


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """``tables``: where its state will be. ``watermark_for``: the streams whose watermarks it waits for, and
    ``delay_ms`` how far behind them it is, because of operators before it."""

    name: str
    kind: str
    tables: tuple[str, ...]
    watermark_for: tuple[str, ...]
    delay_ms: int


@dataclass(frozen=True, slots=True)
class ExchangePlan:
    """Rows that are sent to the shards of a stage. ``from_level``: 0 is the part without a key."""

    to: str
    key: tuple[str, ...]
    from_level: int
    columns: tuple[str, ...]
    broadcast: bool

    def text(self) -> str:
        """For people."""
        by = ", ".join(self.key) or "nothing (one shard)"
        what = f"broadcast {self.to}" if self.broadcast else f"shuffle {self.to} by {by}"
        return f"{what}: {', '.join(self.columns)} (from level {self.from_level})"


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One keyed stage: one shuffle, and one state store a shard."""

    level: int
    exchanges: tuple[ExchangePlan, ...]
    operators: tuple[OperatorPlan, ...]


@dataclass(frozen=True, slots=True)
class TopologyPlan:
    """All of it. ``streams`` are read, ``lanes`` are written."""

    topology: str
    streams: tuple[str, ...]
    stages: tuple[StagePlan, ...]
    lanes: tuple[str, ...]

    def text(self) -> str:
        """For people."""
        lines = [f"plan of {self.topology}", f"  reads   {', '.join(self.streams)}"]
        for stage in self.stages:
            lines.append(f"  stage {stage.level}")
            for exchange in stage.exchanges:
                lines.append(f"    {exchange.text()}")
            for one in stage.operators:
                behind = f", {one.delay_ms} ms behind" if one.delay_ms else ""
                lines.append(f"    {one.kind} {one.name}: watermark of {', '.join(one.watermark_for)}{behind}")
                lines += [f"      state {table}" for table in one.tables]
        return "\n".join([*lines, f"  writes  {', '.join(self.lanes)}"]) + "\n"


def plan(topology: TopologyGraph) -> TopologyPlan:
    """Plan a topology. Operators are made for it, and nothing runs."""
    levels = range(1, topology.levels.count)
    stages = tuple(_stage(topology, level) for level in levels)
    return TopologyPlan(
        topology.name,
        tuple(node.name for node in topology.sources),
        stages,
        (*topology.lanes, *sorted(topology.tables)),
    )


def _stage(topology: TopologyGraph, level: int) -> StagePlan:
    sendings = [sending for sending in topology.levels.exchanges if sending.exchange.stage == level - 1]
    operators = [node for node in topology.levels.nodes_on(level) if isinstance(node, StatefulNode)]
    return StagePlan(level, tuple(map(_exchange, sendings)), tuple(_operator(topology, node) for node in operators))


def _exchange(sending: PlannedExchange) -> ExchangePlan:
    columns = sending.columns if sending.columns is not None else tuple(sending.port.schema)
    exchange = sending.exchange
    return ExchangePlan(exchange.rows.stream, exchange.key, sending.level, columns, exchange.broadcast)


def _operator(topology: TopologyGraph, node: StatefulNode) -> OperatorPlan:
    name = topology.node_name(node)
    tables = tuple(f"{name}/{table}" for table in node.make().tables())
    streams = tuple(topology.sources[number].name for number in sorted(topology.levels.sources[node]))
    return OperatorPlan(name, node.kind, tables, streams, topology.levels.delays[node])
