"""A topology at work: its part without a key as an app's head, each of its keyed levels as a kernel.

Both go through the nodes of their level, each after its inputs, and carry frames from one to the next. A stateless node
without rows is left out; an operator takes part in every cut, for time goes on without rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl
import pyarrow as pa

from streamcore.enrich import shared_enricher
from streamcore.errors import CorruptState
from streamcore.kernel import Cut, KernelOutput, StreamKey
from streamcore.operators.base import MAIN, CutTime, Operator
from streamcore.schema import EVENT_MS, OFFSET, PARTITION
from streamcore.state.table import StateTable
from streamcore.topology.control_rows import control_rows
from streamcore.topology.dead_letters import DeadLetterWriter, without_origin
from streamcore.topology.error_isolation import dead_letters, run_isolated
from streamcore.topology.graph import TopologyGraph
from streamcore.topology.logical_types import to_logical
from streamcore.topology.nodes import (
    FAILED,
    DeadLetterNode,
    EnrichmentNode,
    OutputPort,
    SinkNode,
    StatefulNode,
    StatelessNode,
    TopologyNode,
    UnionNode,
    empty_rows,
)
from streamcore.watermark import END_OF_TIME_MS, NO_WATERMARK
from streamcore.wire.lane_rows import LaneRows
from streamcore.wire.lanes import DEAD_LETTERS, Record


@dataclass(frozen=True)
class TopologyHead:
    """Makes the head. Travels."""

    topology: TopologyGraph
    topics: tuple[str, ...] = ()

    def __call__(self) -> StatelessStageRunner:
        return StatelessStageRunner(self.topology, self.topics)


@dataclass(frozen=True)
class TopologyStage:
    """Makes the kernel of a keyed level. Travels."""

    topology: TopologyGraph
    level: int
    topics: tuple[str, ...] = ()

    def __call__(self) -> KeyedStageRunner:
        return KeyedStageRunner(self.topology, self.level, self.topics)


class StatelessStageRunner:
    """Level 0, in a task of stage 1."""

    def __init__(self, topology: TopologyGraph, topics: Sequence[str] = ()) -> None:
        self.topology = topology
        self.letters = DeadLetterWriter(topics)

    def step(self, source: int, events: pa.Table, clock_ms: int) -> KernelOutput:  # noqa: ARG002 - nothing here has a clock
        """Process decoded events (``StreamSchema.arrow``)."""
        return self.rows(source, to_logical(events, self.topology.sources[source].stream))

    def rows(self, source: int, rows: pl.DataFrame) -> KernelOutput:
        """Rows of the source's columns and the engine's."""
        pass_ = _CutPass(self.topology, 0, {}, dead_letter_writer=self.letters)
        pass_.give(self.topology.sources[source], MAIN, rows)
        pass_.run()
        return pass_.output()


class KeyedStageRunner:
    """A keyed level, on one shard."""

    def __init__(self, topology: TopologyGraph, level: int, topics: Sequence[str] = ()) -> None:
        self.topology = topology
        self.letters = DeadLetterWriter(topics)
        self.level = level
        mine = [node for node in topology.levels.nodes_on(level) if isinstance(node, StatefulNode)]
        self.operators: dict[StatefulNode, Operator] = {node: node.make() for node in mine}
        self._by_name = {topology.node_name(node): operator for node, operator in self.operators.items()}

    def step(self, cut: Cut) -> KernelOutput:
        pass_ = _CutPass(self.topology, self.level, self.operators, cut, dead_letter_writer=self.letters)
        pass_.run()
        return pass_.output()

    def tables(self) -> Mapping[str, StateTable]:
        return {
            f"{name}/{table}": found
            for name, operator in self._by_name.items()
            for table, found in operator.tables().items()
        }

    def table(self, name: str) -> StateTable:
        found = self.tables().get(name)
        if found is None:
            raise CorruptState(
                f"topology {self.topology.name}: there is stored state {name!r}, and no operator that has it; "
                "operators keep their names when a topology changes"
            )
        return found

    def on_state_loaded(self) -> None:
        for operator in self.operators.values():
            operator.on_state_loaded()


@dataclass
class _CutPass:
    """One way through the nodes of a level."""

    topology: TopologyGraph
    level: int
    operators: Mapping[StatefulNode, Operator]
    cut: Cut | None = None
    frames: dict[tuple[TopologyNode, str], pl.DataFrame] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    lanes: list[LaneRows] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    dead_letter_writer: DeadLetterWriter = field(default_factory=DeadLetterWriter)

    def give(self, node: TopologyNode, port: str, rows: pl.DataFrame) -> None:
        """Rows of a port, if there are any."""
        if rows.height:
            self.frames[node, port] = rows

    def read_port(self, port: OutputPort) -> pl.DataFrame | None:
        """Return the rows of a port on this level."""
        return self.frames.get((port.node, port.name))

    def run(self) -> None:
        for node in self.topology.levels.nodes_on(self.level):
            match node:
                case StatefulNode():
                    self._operate(node)
                case DeadLetterNode():
                    self._write_dead_letters(node)
                case SinkNode():
                    self._end(node)
                case UnionNode():
                    self._union(node)
                case StatelessNode():
                    self._transform(node)
                case EnrichmentNode():
                    self._enrich(node)

    def output(self) -> KernelOutput:
        """Return the rows that leave this level."""
        rows: dict[StreamKey, pl.DataFrame | pa.Table] = {}
        for sending in self.topology.levels.exchanges:
            found = self.read_port(sending.port) if sending.level == self.level else None
            if found is not None:
                wanted = sending.columns
                rows[sending.exchange.rows] = found if wanted is None else found.select(*wanted, pl.col("^__.*$"))
        return KernelOutput(self.records, self.lanes, rows, dict(self.counters))

    def _transform(self, node: StatelessNode) -> None:
        rows = self.read_port(node.before)
        if rows is None:
            return
        result = run_isolated(self.topology.node_name(node), node.function, rows, self.dead_letter_writer)
        self.records += result.dead
        if result.good:
            self.give(node, MAIN, pl.concat(result.good) if len(result.good) > 1 else result.good[0])

    def _enrich(self, node: EnrichmentNode) -> None:
        rows = self.read_port(node.before)
        if rows is None:
            return
        enricher = shared_enricher(node.enrichment)
        result = enricher.run(rows)
        self.give(node, MAIN, result.rows)
        self.give(node, FAILED, result.failed)
        self._side(node, FAILED, node.failed_to, result.failed)
        self._count(node, enricher.take_metrics())

    def _union(self, node: UnionNode) -> None:
        found = [rows for port in node.streams if (rows := self.read_port(port)) is not None]
        if found:
            names = [*node.ports[MAIN], EVENT_MS, *(c for c in (PARTITION, OFFSET) if c in found[0].columns)]
            self.give(node, MAIN, pl.concat([rows.select(names) for rows in found]))

    def _end(self, node: SinkNode) -> None:
        rows = self.read_port(node.before)
        if rows is not None:
            self.lanes.append(LaneRows(node.lane, node.key, without_origin(rows), node.whole))

    def _write_dead_letters(self, node: DeadLetterNode) -> None:
        rows = self.read_port(node.before)
        if rows is not None:
            self.records += self.dead_letter_writer.to_records(
                rows.drop(node.code, node.reason), rows[node.code].to_list(), rows[node.reason].to_list()
            )

    def _operate(self, node: StatefulNode) -> None:
        assert self.cut is not None, "operators are on keyed levels"
        inputs = [self._input(node, number) for number in range(len(node.keyed))]
        if node.control_input:
            inputs.append(control_rows(self.cut.control))
        ports = self.operators[node].step(inputs, self._time(node))
        for port, rows in ports.items():
            self.give(node, port, rows)
            if port in node.side_lanes:
                self._side(node, port, node.side_lanes[port], rows)
        self._count(node, self.operators[node].metrics())

    def _side(self, node: TopologyNode, port: str, lane: str, rows: pl.DataFrame) -> None:
        """Rows of a side output that end in a lane. Rejected records have one form, wherever they come from."""
        if lane == DEAD_LETTERS:
            self.records += dead_letters(self.topology.node_name(node), port, rows, self.dead_letter_writer)
        elif rows.height:
            self.lanes.append(LaneRows(lane, (), without_origin(rows)))

    def _count(self, node: TopologyNode, metrics: Mapping[str, int]) -> None:
        for name, count in metrics.items():
            if count:
                self.counters[f"{self.topology.node_name(node)}.{name}"] += count

    def _input(self, node: StatefulNode, number: int) -> pl.DataFrame:
        """Return the rows sent to an input from the levels before, in their order, and then those of this level."""
        assert self.cut is not None, "operators are on keyed levels"
        one = node.keyed[number]
        names = [*one.schema, EVENT_MS]
        found: list[pl.DataFrame] = []
        for level in sorted(self.topology.levels.level_by_node[one.port.node]):
            rows = self.read_port(one.port) if level == self.level else self._read_exchange(node, number, level)
            if rows is not None:
                found.append(rows.select(names))
        if not found:
            return empty_rows(one.schema)
        return pl.concat(found) if len(found) > 1 else found[0]

    def _read_exchange(self, node: StatefulNode, number: int, level: int) -> pl.DataFrame | None:
        assert self.cut is not None, "operators are on keyed levels"
        return self.cut.events.get(self.topology.levels.routes[node, number, level])

    def _time(self, node: StatefulNode) -> CutTime:
        assert self.cut is not None, "operators are on keyed levels"
        domain = tuple(sorted(self.topology.levels.sources[node]))
        time = self.cut.watermark_times[self.topology.domains.index(domain)]
        return replace(_delay_time(time, self.topology.levels.delays[node]), shard=self.cut.shard)


def _delay_time(time: CutTime, delay_ms: int) -> CutTime:
    """Return the time of an operator after others that hold rows back for so long; at the end no node holds anything
    back."""
    before, after = time.watermark_ms, time.next_watermark_ms
    return replace(
        time,
        watermark_ms=before if before >= END_OF_TIME_MS else max(NO_WATERMARK, before - delay_ms),
        next_watermark_ms=after if after >= END_OF_TIME_MS else max(NO_WATERMARK, after - delay_ms),
    )
