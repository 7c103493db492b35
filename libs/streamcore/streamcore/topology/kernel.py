"""Runs a topology: its stateless stage on decoded events, and each of its keyed levels as a kernel.

Both visit the nodes of their level, each after its inputs, and pass frames from node to node. A stateless node without
rows is skipped. An operator runs in every cut, because time advances without rows too. The levels of a topology are
defined in ``streamcore.topology.stages``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
import pyarrow as pa

from streamcore.engine.document_changes import AppDocuments, DocumentStep
from streamcore.enrich import shared_enricher
from streamcore.errors import CorruptState
from streamcore.hashing import hash_columns
from streamcore.kernel import Cut, KernelOutput, StreamKey
from streamcore.keyed.runtime_context import OpenFunctions, counted
from streamcore.operators.base import MAIN, CutTime, Operator, Ports
from streamcore.operators.process.keyless import KeylessProcess
from streamcore.schema import EVENT_MS, OFFSET, PARTITION
from streamcore.state.cold.cold_state import ColdState
from streamcore.state.cold.paged_state import PagedOperator, PagedState
from streamcore.state.scope import TableScope, get_scope
from streamcore.state.table import StateTable
from streamcore.topology.control_rows import control_rows, unreadable_records
from streamcore.topology.dead_letters import DeadLetterWriter, without_origin
from streamcore.topology.error_isolation import dead_letters, late_records, run_isolated
from streamcore.topology.graph import TopologyGraph, is_late_records
from streamcore.topology.logical_types import to_logical
from streamcore.topology.nodes import (
    FAILED,
    DeadLetterNode,
    EnrichmentNode,
    KeylessNode,
    OutputPort,
    SinkNode,
    StatefulNode,
    StatelessNode,
    TimestampsNode,
    TopologyNode,
    UnionNode,
    empty_rows,
)
from streamcore.topology.observed_rows import show_rows
from streamcore.topology.times.assigned_times import assign_times
from streamcore.topology.times.busy_time import BusyTime
from streamcore.watermark import END_OF_TIME_MS, NO_WATERMARK, Progress
from streamcore.wire.lane_rows import LaneRows
from streamcore.wire.lanes import DEAD_LETTERS, Record

_DOCUMENTS = "documents"


@dataclass(frozen=True)
class TopologyStatelessStage:
    """A picklable callable that creates the runner of the stateless stage on a worker. ``topics``: by source index.

    ``max_future_ms``: how far a time that a step assigns may be ahead of the clock.
    """

    topology: TopologyGraph
    topics: tuple[str, ...] = ()
    max_future_ms: int = 0

    def __call__(self) -> StatelessStageRunner:
        return StatelessStageRunner(self.topology, self.topics, self.max_future_ms)


@dataclass(frozen=True)
class TopologyStage:
    """A picklable callable that creates the kernel of a keyed level on a worker. ``topics``: by source index.
    ``documents``: decides about those that are published while the app runs, on the last level; None: none are taken.
    """

    topology: TopologyGraph
    level: int
    topics: tuple[str, ...] = ()
    control_topic: str = ""
    documents: AppDocuments | None = None

    def __call__(self) -> KeyedStageRunner:
        documents = None if self.documents is None else DocumentStep(self.documents)
        return KeyedStageRunner(self.topology, self.level, self.topics, self.control_topic, documents)


class StatelessStageRunner:
    """Runs level 0, on the events of one task."""

    def __init__(self, topology: TopologyGraph, topics: Sequence[str] = (), max_future_ms: int | None = None) -> None:
        self.topology = topology
        self.max_future_ms = max_future_ms
        self.dead_letter_writer = DeadLetterWriter(topics)
        self.functions = OpenFunctions()
        self.keyless = _create_keyless(topology, 0)

    def close(self) -> None:
        """Close the functions of the stage."""
        self.functions.close()

    def step(self, source: int, events: pa.Table, clock_ms: int) -> KernelOutput:
        """Process decoded events (``StreamSchema.arrow``) of one source, by the index of the source."""
        return self.rows(source, to_logical(events, self.topology.sources[source].stream), clock_ms)

    def rows(self, source: int, rows: pl.DataFrame, clock_ms: int = 0) -> KernelOutput:
        """Process rows with the columns of the source and of the engine."""
        cut_pass = _CutPass(
            self.topology,
            0,
            {},
            self.functions,
            self.keyless,
            clock_ms,
            dead_letter_writer=self.dead_letter_writer,
        )
        cut_pass.latest_ms = None if self.max_future_ms is None else clock_ms + self.max_future_ms
        cut_pass.set_rows(self.topology.sources[source], MAIN, rows)
        cut_pass.run()
        return cut_pass.output()


class KeyedStageRunner:
    """Runs a keyed level on one shard: the kernel of the level."""

    def __init__(
        self,
        topology: TopologyGraph,
        level: int,
        topics: Sequence[str] = (),
        control_topic: str = "",
        documents: DocumentStep | None = None,
    ) -> None:
        self.topology = topology
        self.documents = documents
        self.dead_letter_writer = DeadLetterWriter(topics, control_topic)
        self.level = level
        nodes = [node for node in topology.levels.nodes_on(level) if isinstance(node, StatefulNode)]
        self.operators: dict[StatefulNode, Operator] = {node: node.create_operator() for node in nodes}
        self.functions = OpenFunctions()
        self.keyless = _create_keyless(topology, level)
        self._by_name = {topology.node_name(node): operator for node, operator in self.operators.items()}
        self.cold: ColdState | None = None

    def paged_states(self) -> Mapping[str, PagedState]:
        operators = self._by_name.items()
        return {name: operator.paged_state for name, operator in operators if isinstance(operator, PagedOperator)}

    def step(self, cut: Cut) -> KernelOutput:
        self.functions.locate(cut.shard, cut.key_space.shards)
        answers, published = ([], []) if self.documents is None else self.documents.run(cut.control)
        cut_pass = _CutPass(
            self.topology,
            self.level,
            self.operators,
            self.functions,
            self.keyless,
            cut.clock_ms,
            cut,
            dead_letter_writer=self.dead_letter_writer,
            cold=self.cold,
            records=answers if cut.shard == 0 else [],
        )
        cut_pass.run()
        return replace(cut_pass.output(), streams=published)

    def close(self) -> None:
        """Close the functions of the level."""
        self.functions.close()

    def tables(self) -> Mapping[str, StateTable]:
        tables: dict[str, StateTable] = {
            f"{name}/{table_name}": table
            for name, operator in self._by_name.items()
            for table_name, table in operator.tables().items()
        }
        return tables if self.documents is None else {**tables, _DOCUMENTS: self.documents.changes.table}

    def table(self, name: str) -> StateTable:
        table = self.tables().get(name)
        if table is None:
            raise CorruptState(
                f"topology {self.topology.name}: no operator has the stored state {name!r}; "
                "keep the names of operators when a topology changes"
            )
        return table

    def scope(self, name: str) -> TableScope:
        return get_scope(self.table(name))

    def on_state_loaded(self) -> None:
        for operator in self.operators.values():
            operator.on_state_loaded()


def _create_keyless(topology: TopologyGraph, level: int) -> dict[KeylessNode, KeylessProcess]:
    return {node: node.create() for node in topology.levels.nodes_on(level) if isinstance(node, KeylessNode)}


@dataclass
class _CutPass:
    """One pass through the nodes of a level, for one cut.

    ``frames``: the rows of each output port so far. ``cold``: has the cold keys of the operators.
    """

    topology: TopologyGraph
    level: int
    operators: Mapping[StatefulNode, Operator]
    functions: OpenFunctions
    keyless: Mapping[KeylessNode, KeylessProcess]
    clock_ms: int
    cut: Cut | None = None
    frames: dict[tuple[TopologyNode, str], pl.DataFrame] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    lanes: list[LaneRows] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    progress: list[Progress] = field(default_factory=list)
    latest_ms: int | None = None
    busy: BusyTime = field(default_factory=BusyTime)
    dead_letter_writer: DeadLetterWriter = field(default_factory=DeadLetterWriter)
    cold: ColdState | None = None

    def set_rows(self, node: TopologyNode, port: str, rows: pl.DataFrame) -> None:
        """Store the rows of an output port, if there are any."""
        if rows.height:
            self.frames[node, port] = rows
            show_rows(node, port, rows)

    def read_port(self, port: OutputPort) -> pl.DataFrame | None:
        """Return the rows of an output port on this level, or None."""
        return self.frames.get((port.node, port.name))

    def run(self) -> None:
        if self.cut is not None and self.cut.shard == 0 and self.level == self.topology.first_control_level:
            self.records += unreadable_records(self.cut.control, self.dead_letter_writer)
        for node in self.topology.levels.nodes_on(self.level):
            with self.busy.measure(self.topology.node_name(node)):
                self._run_node(node)

    def _run_node(self, node: TopologyNode) -> None:
        match node:
            case StatefulNode():
                self._run_operator(node)
            case DeadLetterNode():
                self._write_dead_letters(node)
            case SinkNode():
                self._write_lane(node)
            case UnionNode():
                self._union(node)
            case StatelessNode():
                self._transform(node)
            case EnrichmentNode():
                self._enrich(node)
            case TimestampsNode():
                self._assign_times(node)
            case KeylessNode():
                self._process(node)

    def output(self) -> KernelOutput:
        """Return the records, lane rows and counters, and the rows for later levels."""
        rows: dict[StreamKey, pl.DataFrame | pa.Table] = {}
        for planned in self.topology.levels.exchanges:
            sent = self.read_port(planned.port) if planned.level == self.level else None
            if sent is not None:
                columns = planned.columns
                rows[planned.exchange.rows] = sent if columns is None else sent.select(*columns, pl.col("^__.*$"))
        counters = {**self.counters, **self.busy.counters()}
        return KernelOutput(self.records, self.lanes, rows, counters, self.progress)

    def _transform(self, node: StatelessNode) -> None:
        rows = self.read_port(node.input_port)
        if rows is None:
            return
        step = self.topology.node_name(node)
        context = self.functions.open(step, node.function)
        function = node.function if context is None else counted(node.function, context)
        result = run_isolated(step, function, node.schema, rows, self.dead_letter_writer)
        if context is not None:
            self.counters.update(context.take_metrics())
        self.records += result.dead
        if result.succeeded:
            self.set_rows(node, MAIN, pl.concat(result.succeeded) if len(result.succeeded) > 1 else result.succeeded[0])

    def _assign_times(self, node: TimestampsNode) -> None:
        rows = self.read_port(node.input_port)
        if rows is None:
            return
        levels, count = self.topology.levels, len(self.topology.sources)
        derived = {source: n for n, (step, source) in enumerate(levels.derived, count) if step is node}
        assigned = assign_times(node, rows, derived, self.latest_ms)
        self.set_rows(node, MAIN, assigned.rows)
        self.progress += assigned.progress
        reasons = [f"{self.topology.node_name(node)}: {reason}" for reason in assigned.reasons]
        self.records += self.dead_letter_writer.to_records(assigned.rejected, [FAILED] * len(reasons), reasons)

    def _enrich(self, node: EnrichmentNode) -> None:
        rows = self.read_port(node.input_port)
        if rows is None:
            return
        enricher = shared_enricher(node.enrichment)
        result = enricher.run(rows)
        self.set_rows(node, MAIN, result.rows)
        self.set_rows(node, FAILED, result.failed)
        self._write_side_output(node, FAILED, node.failed_to, result.failed)
        self._count(node, enricher.take_metrics())

    def _union(self, node: UnionNode) -> None:
        frames = [rows for port in node.streams if (rows := self.read_port(port)) is not None]
        if frames:
            names = [*node.ports[MAIN], EVENT_MS, *(c for c in (PARTITION, OFFSET) if c in frames[0].columns)]
            self.set_rows(node, MAIN, pl.concat([rows.select(names) for rows in frames]))

    def _write_lane(self, node: SinkNode) -> None:
        rows = self.read_port(node.input_port)
        if rows is not None:
            self.lanes.append(LaneRows(node.lane, node.key, without_origin(rows), node.whole, node.merge))

    def _write_dead_letters(self, node: DeadLetterNode) -> None:
        rows = self.read_port(node.input_port)
        if rows is not None:
            self.records += self.dead_letter_writer.to_records(
                rows.drop(node.code, node.reason), rows[node.code].to_list(), rows[node.reason].to_list()
            )

    def _run_operator(self, node: StatefulNode) -> None:
        assert self.cut is not None, "operators run on keyed levels only"
        time = self._cut_time(node)
        inputs = [self._input(node, input_index) for input_index in range(len(node.keyed))]
        if node.control_input:
            inputs.append(control_rows(self.cut.control, time.watermark_ms))
        if self.cold is not None and self.cold.pages(self.topology.node_name(node)):
            self._recall(node, inputs, time, self.cold)
        context = self.functions.open(self.topology.node_name(node), self.operators[node])
        self._set_ports(node, self.operators[node].step(inputs, time), node.side_lanes)
        self._count(node, self.operators[node].metrics())
        if context is not None:
            self.counters.update(context.take_metrics())

    def _process(self, node: KeylessNode) -> None:
        rows = self.read_port(node.input_port)
        if rows is not None:
            context = self.functions.open(self.topology.node_name(node), self.keyless[node])
            self._set_ports(node, self.keyless[node].run(rows, self.clock_ms), node.side_lanes)
            if context is not None:
                self.counters.update(context.take_metrics())

    def _set_ports(self, node: TopologyNode, ports: Ports, side_lanes: Mapping[str, str]) -> None:
        for port, rows in ports.items():
            self.set_rows(node, port, rows)
            if port in side_lanes:
                self._write_side_output(node, port, side_lanes[port], rows)

    def _recall(self, node: StatefulNode, inputs: Sequence[pl.DataFrame], time: CutTime, cold: ColdState) -> None:
        """Load the cold keys that the operator needs in this cut."""
        hashes = [
            hash_columns(rows.select(one.key).get_columns(), rows.height)
            for rows, one in zip(inputs, node.keyed, strict=False)  # control records have no key
            if rows.height and not one.broadcast
        ]
        cold.recall(
            self.topology.node_name(node),
            np.concatenate([np.empty(0, np.uint64), *hashes]),
            time.next_watermark_ms,
            time.clock_ms,
        )

    def _write_side_output(self, node: TopologyNode, port: str, lane: str, rows: pl.DataFrame) -> None:
        """Write the rows of a side output to a lane; on the lane of dead letters, in the form of dead letters."""
        step = self.topology.node_name(node)
        if lane == DEAD_LETTERS:
            self.records += dead_letters(step, port, rows, self.dead_letter_writer)
        elif is_late_records(OutputPort(node, port)):
            self.records += late_records(step, lane, rows, self.dead_letter_writer)
        elif rows.height:
            self.lanes.append(LaneRows(lane, (), without_origin(rows)))

    def _count(self, node: TopologyNode, metrics: Mapping[str, int]) -> None:
        for name, count in metrics.items():
            if count:
                self.counters[f"{self.topology.node_name(node)}.{name}"] += count

    def _input(self, node: StatefulNode, input_index: int) -> pl.DataFrame:
        """Return the rows of an input: those of earlier levels, in order, then those of this level."""
        assert self.cut is not None, "operators run on keyed levels only"
        keyed_input = node.keyed[input_index]
        names = [*keyed_input.schema, EVENT_MS]
        frames: list[pl.DataFrame] = []
        for level in sorted(self.topology.levels.level_by_node[keyed_input.port.node]):
            rows = (
                self.read_port(keyed_input.port)
                if level == self.level
                else self._read_exchange(node, input_index, level)
            )
            if rows is not None:
                frames.append(rows.select(names))
        if not frames:
            return empty_rows(keyed_input.schema)
        return pl.concat(frames) if len(frames) > 1 else frames[0]

    def _read_exchange(self, node: StatefulNode, input_index: int, level: int) -> pl.DataFrame | None:
        assert self.cut is not None, "operators run on keyed levels only"
        return self.cut.events.get(self.topology.levels.routes[node, input_index, level])

    def _cut_time(self, node: StatefulNode) -> CutTime:
        assert self.cut is not None, "operators run on keyed levels only"
        sources = tuple(sorted(self.topology.levels.sources[node]))
        time = self.cut.watermark_times[self.topology.watermark_groups.index(sources)]
        return replace(_delayed_time(time, self.topology.levels.delays[node]), shard=self.cut.shard)


def _delayed_time(time: CutTime, delay_ms: int) -> CutTime:
    """Return the time of an operator whose inputs are ``delay_ms`` behind. At the end of the streams none are."""

    def delayed(watermark_ms: int) -> int:
        return watermark_ms if watermark_ms >= END_OF_TIME_MS else max(NO_WATERMARK, watermark_ms - delay_ms)

    return replace(time, watermark_ms=delayed(time.watermark_ms), next_watermark_ms=delayed(time.next_watermark_ms))
