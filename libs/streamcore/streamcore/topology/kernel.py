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

from streamcore.enrich import kept
from streamcore.errors import CorruptState
from streamcore.kernel import Cut, Output, Routed
from streamcore.lane_rows import LaneRows
from streamcore.lanes import DEAD_LETTERS, Record
from streamcore.operators.operator import MAIN, Operator, StepTime
from streamcore.schema import EVENT_MS, OFFSET, PARTITION
from streamcore.state.table import StateTable
from streamcore.topology.control import control_rows
from streamcore.topology.guard import dead_letters, guarded
from streamcore.topology.letters import Letters, without_origin
from streamcore.topology.logical import logical
from streamcore.topology.nodes import (
    FAILED,
    DeadLetters,
    Enriching,
    Node,
    Operation,
    Port,
    Sink,
    Stateless,
    Union,
    empty,
)
from streamcore.topology.topology import Topology
from streamcore.watermark import END_OF_TIME_MS, NO_WATERMARK


@dataclass(frozen=True)
class TopologyHead:
    """Makes the head. Travels."""

    topology: Topology
    topics: tuple[str, ...] = ()

    def __call__(self) -> HeadAtWork:
        return HeadAtWork(self.topology, self.topics)


@dataclass(frozen=True)
class TopologyStage:
    """Makes the kernel of a keyed level. Travels."""

    topology: Topology
    level: int
    topics: tuple[str, ...] = ()

    def __call__(self) -> StageAtWork:
        return StageAtWork(self.topology, self.level, self.topics)


class HeadAtWork:
    """Level 0, in a task of stage 1."""

    def __init__(self, topology: Topology, topics: Sequence[str] = ()) -> None:
        self.topology = topology
        self.letters = Letters(topics)

    def step(self, source: int, events: pa.Table, clock_ms: int) -> Output:  # noqa: ARG002 - nothing here has a clock
        """Decoded events, ``StreamSchema.arrow``."""
        return self.rows(source, logical(events, self.topology.sources[source].stream))

    def rows(self, source: int, rows: pl.DataFrame) -> Output:
        """Rows of the source's columns and the engine's."""
        pass_ = _Pass(self.topology, 0, {}, letters=self.letters)
        pass_.give(self.topology.sources[source], MAIN, rows)
        pass_.run()
        return pass_.output()


class StageAtWork:
    """A keyed level, on one shard."""

    def __init__(self, topology: Topology, level: int, topics: Sequence[str] = ()) -> None:
        self.topology = topology
        self.letters = Letters(topics)
        self.level = level
        mine = [node for node in topology.levels.on(level) if isinstance(node, Operation)]
        self.operators: dict[Operation, Operator] = {node: node.make() for node in mine}
        self._by_name = {topology.name_of(node): operator for node, operator in self.operators.items()}

    def step(self, cut: Cut) -> Output:
        pass_ = _Pass(self.topology, self.level, self.operators, cut, letters=self.letters)
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

    def loaded(self) -> None:
        for operator in self.operators.values():
            operator.loaded()


@dataclass
class _Pass:
    """One way through the nodes of a level."""

    topology: Topology
    level: int
    operators: Mapping[Operation, Operator]
    cut: Cut | None = None
    frames: dict[tuple[Node, str], pl.DataFrame] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    lanes: list[LaneRows] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    letters: Letters = field(default_factory=Letters)

    def give(self, node: Node, port: str, rows: pl.DataFrame) -> None:
        """Rows of a port, if there are any."""
        if rows.height:
            self.frames[node, port] = rows

    def of(self, port: Port) -> pl.DataFrame | None:
        """The rows of a port on this level."""
        return self.frames.get((port.node, port.name))

    def run(self) -> None:
        for node in self.topology.levels.on(self.level):
            match node:
                case Operation():
                    self._operate(node)
                case DeadLetters():
                    self._bury(node)
                case Sink():
                    self._end(node)
                case Union():
                    self._unite(node)
                case Stateless():
                    self._transform(node)
                case Enriching():
                    self._enrich(node)

    def output(self) -> Output:
        """What leaves this level."""
        rows: dict[Routed, pl.DataFrame | pa.Table] = {}
        for sending in self.topology.levels.sendings:
            found = self.of(sending.port) if sending.level == self.level else None
            if found is not None:
                wanted = sending.columns
                rows[sending.exchange.rows] = found if wanted is None else found.select(*wanted, pl.col("^__.*$"))
        return Output(self.records, self.lanes, rows, dict(self.counted))

    def _transform(self, node: Stateless) -> None:
        rows = self.of(node.before)
        if rows is None:
            return
        result = guarded(self.topology.name_of(node), node.function, rows, self.letters)
        self.records += result.dead
        if result.good:
            self.give(node, MAIN, pl.concat(result.good) if len(result.good) > 1 else result.good[0])

    def _enrich(self, node: Enriching) -> None:
        rows = self.of(node.before)
        if rows is None:
            return
        enricher = kept(node.enrichment)
        result = enricher.run(rows)
        self.give(node, MAIN, result.rows)
        self.give(node, FAILED, result.failed)
        self._side(node, FAILED, node.failed_to, result.failed)
        self._count(node, enricher.metrics())

    def _unite(self, node: Union) -> None:
        found = [rows for port in node.streams if (rows := self.of(port)) is not None]
        if found:
            names = [*node.ports[MAIN], EVENT_MS, *(c for c in (PARTITION, OFFSET) if c in found[0].columns)]
            self.give(node, MAIN, pl.concat([rows.select(names) for rows in found]))

    def _end(self, node: Sink) -> None:
        rows = self.of(node.before)
        if rows is not None:
            self.lanes.append(LaneRows(node.lane, node.key, without_origin(rows), node.whole))

    def _bury(self, node: DeadLetters) -> None:
        rows = self.of(node.before)
        if rows is not None:
            self.records += self.letters.of(
                rows.drop(node.code, node.reason), rows[node.code].to_list(), rows[node.reason].to_list()
            )

    def _operate(self, node: Operation) -> None:
        assert self.cut is not None, "operators are on keyed levels"
        inputs = [self._input(node, number) for number in range(len(node.keyed))]
        if node.heard:
            inputs.append(control_rows(self.cut.control))
        ports = self.operators[node].step(inputs, self._time(node))
        for port, rows in ports.items():
            self.give(node, port, rows)
            if port in node.side_lanes:
                self._side(node, port, node.side_lanes[port], rows)
        self._count(node, self.operators[node].metrics())

    def _side(self, node: Node, port: str, lane: str, rows: pl.DataFrame) -> None:
        """Rows of a side output that end in a lane. Dead letters have one form, wherever they come from."""
        if lane == DEAD_LETTERS:
            self.records += dead_letters(self.topology.name_of(node), port, rows, self.letters)
        elif rows.height:
            self.lanes.append(LaneRows(lane, (), without_origin(rows)))

    def _count(self, node: Node, metrics: Mapping[str, int]) -> None:
        for name, count in metrics.items():
            if count:
                self.counted[f"{self.topology.name_of(node)}.{name}"] += count

    def _input(self, node: Operation, number: int) -> pl.DataFrame:
        """What was sent to an input from the levels before, in their order, and then what is here."""
        assert self.cut is not None, "operators are on keyed levels"
        one = node.keyed[number]
        names = [*one.schema, EVENT_MS]
        found: list[pl.DataFrame] = []
        for level in sorted(self.topology.levels.of[one.port.node]):
            rows = self.of(one.port) if level == self.level else self._sent(node, number, level)
            if rows is not None:
                found.append(rows.select(names))
        if not found:
            return empty(one.schema)
        return pl.concat(found) if len(found) > 1 else found[0]

    def _sent(self, node: Operation, number: int, level: int) -> pl.DataFrame | None:
        assert self.cut is not None, "operators are on keyed levels"
        return self.cut.events.get(self.topology.levels.routes[node, number, level])

    def _time(self, node: Operation) -> StepTime:
        assert self.cut is not None, "operators are on keyed levels"
        domain = tuple(sorted(self.topology.levels.sources[node]))
        time = self.cut.times[self.topology.domains.index(domain)]
        return replace(_behind(time, self.topology.levels.delays[node]), shard=self.cut.shard)


def _behind(time: StepTime, delay_ms: int) -> StepTime:
    """The time of an operator after others that hold rows back for so long; at the end nobody holds anything back."""
    before, after = time.watermark_ms, time.next_watermark_ms
    return replace(
        time,
        watermark_ms=before if before >= END_OF_TIME_MS else max(NO_WATERMARK, before - delay_ms),
        next_watermark_ms=after if after >= END_OF_TIME_MS else max(NO_WATERMARK, after - delay_ms),
    )
