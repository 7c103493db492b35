"""Runs a topology in this process, on frames: for tests, experiments and back-tests.

Operators, shards and state are those of a run on Spark; only decoding and the broker are left out. The caller defines
the rows and the clock of each cut. Without a broker, the ingestion time of a row is the clock of its cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from streamcore.app import App
from streamcore.cuts.cut_clock import CutClock
from streamcore.engine.in_process import InProcessApp
from streamcore.engine.ingest import Ingest, measure_progress
from streamcore.engine.shuffle import ShuffleBlock
from streamcore.errors import ConfigError
from streamcore.kernel import BUSY_US, ControlRecord, KernelOutput
from streamcore.keyed.runtime_context import USER_COUNTER, USER_GAUGE
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import EVENT_MS, OFFSET, PARTITION
from streamcore.state.blob_store import MemoryBlobs
from streamcore.topology import text_tables as tables
from streamcore.topology.kernel import StatelessStageRunner
from streamcore.topology.logical_types import to_physical
from streamcore.topology.nodes import Schema, SourceNode
from streamcore.topology.topology import Topology
from streamcore.watermark import END_OF_TIME_MS, Progress
from streamcore.wire.arrow_ipc import to_table
from streamcore.wire.lane_rows import LaneRows
from streamcore.wire.lanes import DEAD_LETTERS, Record
from streamcore.wire.raw import RAW_KEY, RAW_OFFSET, RAW_PARTITION, RAW_VALUE

#: An optional column of an input: the partition of its source that a row is from; 0 by default.
FROM_PARTITION = "partition"


@dataclass
class SimulationResult:
    """The output of a run. ``lanes``: rows by lane. ``dead``: dead letters; ``late``: the late records of sources with
    ``raw=True``, which have that form, too. ``counters``: ``<operator>.<metric>``, also
    those of functions. ``gauges``: the latest of functions, ``<step>.<name>``.

    ``columns``: the columns of each lane of the topology, also of lanes without rows.
    """

    lanes: dict[str, pl.DataFrame] = field(default_factory=dict)
    dead: list[Record] = field(default_factory=list)
    late: list[Record] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    columns: dict[str, Schema] = field(default_factory=dict)
    gauges: dict[str, int] = field(default_factory=dict)

    def __getitem__(self, lane: str) -> pl.DataFrame:
        """Return the rows of a lane; ``ConfigError`` if the topology has no such lane."""
        if lane in self.lanes:
            return self.lanes[lane]
        if lane in self.columns:
            return pl.DataFrame(schema=self.columns[lane])
        known = sorted({*self.lanes, *self.columns})
        raise ConfigError(f"the result has no lane {lane!r}; it has {known or 'none'}, and dead letters in .dead")

    def text(self, *lanes: str) -> str:
        """Return these lanes (all if none is given) as text tables, then the dead letters."""
        return tables.format_tables({lane: self[lane] for lane in lanes} or self.lanes, self.dead)

    def add(self, other: SimulationResult) -> None:
        """Append the output of a later cut."""
        for lane, rows in other.lanes.items():
            self.lanes[lane] = _append(self.lanes[lane], rows) if lane in self.lanes else rows
        self.columns |= other.columns
        self.dead += other.dead
        self.late += other.late
        self.gauges |= other.gauges
        for name, count in other.counters.items():
            self.counters[name] = self.counters.get(name, 0) + count


def _append(earlier: pl.DataFrame, later: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of a lane. Its writers have equal columns, in any order."""
    return pl.concat([earlier, later.select(earlier.columns)])


class Simulation:
    """Runs a topology cut by cut. ``blobs``: the stored state of an earlier simulation, to continue from.

    Processing time is the ``clock_ms`` of each cut, and stands at 0 unless it is given. What is due by the clock, such
    as ``AfterProcessingTime`` and timers of the clock, happens in a cut whose clock has reached it.
    ``seen``: the partitions that had rows. ``offsets``: the next offset of each source.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        shards: int = 1,
        blobs: dict[tuple[int, int], MemoryBlobs] | None = None,
        app: App | None = None,
    ) -> None:
        self.topology = topology
        self.local = InProcessApp(app or topology.app(shards=shards), {} if blobs is None else blobs)
        self.ingest = Ingest(self.local.app)
        self.stateless_stage = StatelessStageRunner(topology, self.local.app.topics)
        self.offsets = [0] * len(topology.sources)
        self.seen: set[int] = set()

    @property
    def blobs(self) -> dict[tuple[int, int], MemoryBlobs]:
        """The stored state, by stage and shard."""
        return self.local.blobs

    def cut(
        self,
        inputs: Mapping[str, pl.DataFrame],
        *,
        clock_ms: int = 0,
        control: Mapping[str, bytes | None] | None = None,
    ) -> SimulationResult:
        """Run one cut. ``inputs``: rows by stream. ``control``: control records, values by key."""
        return self._run(inputs, clock_ms, control or {}, [])

    def end(self, *, clock_ms: int = 0) -> SimulationResult:
        """Run the last cut. Every stream ends, so all windows close and all event-time timers fire."""
        derived = self._first_partitions()[len(self.topology.sources) :]
        partitions = sorted({*self.seen, *derived} if self.seen else self._first_partitions())
        ends = [Progress(n, -END_OF_TIME_MS, 0, END_OF_TIME_MS) for n in partitions]
        return self._run({}, clock_ms, {}, ends)

    def _first_partitions(self) -> list[int]:
        count = len(self.topology.sources) + len(self.topology.levels.derived)
        return [source * PARTITIONS_PER_TOPIC for source in range(count)]

    def _run(
        self,
        inputs: Mapping[str, pl.DataFrame],
        clock_ms: int,
        control: Mapping[str, bytes | None],
        ends: Sequence[Progress],
    ) -> SimulationResult:
        unknown = sorted(set(inputs) - {node.name for node in self.topology.sources})
        if unknown:
            raise ConfigError(f"topology {self.topology.name} has no source {unknown[0]!r}")
        result = SimulationResult(columns=self.topology.lane_columns)
        self.ingest.reset(CutClock.at(clock_ms))
        self.ingest.control += [
            ControlRecord(0, n, key.encode(), value) for n, (key, value) in enumerate(control.items())
        ]
        blocks: list[ShuffleBlock] = []
        for source, node in enumerate(self.topology.sources):
            rows = inputs.get(node.name)
            if rows is not None and rows.height:
                rows = self._engine_columns(source, node, rows, clock_ms)
                blocks += self._process_source(source, rows, clock_ms, result)
        for progress in ends:
            self.ingest.record_progress(progress)
        blocks += self.ingest.finish({})
        for output in self.local.run(blocks):
            one = _to_result(output.lanes, output.records, output.metrics.counters)
            one.gauges = {name: value + result.gauges.get(name, 0) for name, value in one.gauges.items()}
            result.add(one)
        return result

    def close(self) -> None:
        """Close the functions of the topology (``ProcessFunction.close``)."""
        self.stateless_stage.close()
        for shard in self.local.shards.values():
            shard.close()

    def _engine_columns(self, source: int, node: SourceNode, rows: pl.DataFrame, clock_ms: int) -> pl.DataFrame:
        schema = node.ports["main"]
        if node.raw:
            origin = {
                RAW_KEY: pl.lit(None, pl.Binary),
                RAW_VALUE: pl.lit(None, pl.Binary),
                RAW_PARTITION: pl.lit(source * PARTITIONS_PER_TOPIC),
                RAW_OFFSET: pl.int_range(pl.len()) + self.offsets[source],
            }
            rows = rows.with_columns(value.alias(name) for name, value in origin.items() if name not in rows.columns)
        missing = [name for name in schema if name not in rows.columns]
        if missing:
            raise ConfigError(f"stream {node.name}: the rows have no column {missing[0]!r}")
        start = self.offsets[source]
        self.offsets[source] += rows.height
        has_partition = FROM_PARTITION in rows.columns and FROM_PARTITION not in schema
        partition = pl.col(FROM_PARTITION) if has_partition else pl.lit(0)
        time = pl.col(node.stream.event_time).cast(schema[node.stream.event_time]).dt.epoch("ms")
        return rows.select(
            *(pl.col(name).cast(dtype) for name, dtype in schema.items()),
            (partition.cast(pl.Int32) + source * PARTITIONS_PER_TOPIC).alias(PARTITION),
            pl.int_range(start, start + pl.len(), dtype=pl.Int64).alias(OFFSET),
            (time if node.time == "field" else pl.lit(clock_ms, pl.Int64)).alias(EVENT_MS),
        )

    def _process_source(
        self, source: int, rows: pl.DataFrame, clock_ms: int, result: SimulationResult
    ) -> Iterator[ShuffleBlock]:
        strategy = self.local.app.watermark_for(source)
        names = [PARTITION, EVENT_MS, *(n for n in (strategy.punctuation, strategy.end) if n is not None)]
        for progress in measure_progress(to_table(rows.select(names).with_columns(_MS)), strategy):
            self.seen.add(progress.partition)
            self.ingest.record_progress(progress)
        output = self._run_stateless_stage(source, rows, clock_ms)
        for progress in output.progress:
            self.seen.add(progress.partition)
            self.ingest.record_progress(progress)
        result.add(_to_result(output.lanes, output.records, output.counters))
        yield from self.ingest.pack(output.rows)

    def _run_stateless_stage(self, source: int, rows: pl.DataFrame, clock_ms: int) -> KernelOutput:
        """Return the output of stage 1. Events of a stream with ``deduplicate`` leave it as they are decoded."""
        stream = self.topology.sources[source].stream
        if stream.deduplicate_ms is None:
            return self.stateless_stage.rows(source, rows, clock_ms)
        events = to_physical(rows, {field.name: field.type for field in stream.fields})
        return self.ingest.head.step(source, to_table(events), clock_ms)


_MS = pl.col(pl.Datetime).dt.epoch("ms")
_COUNTER, _GAUGE = f"{USER_COUNTER}.", f"{USER_GAUGE}."


def _to_result(lanes: Sequence[LaneRows], records: Sequence[Record], counters: Mapping[str, int]) -> SimulationResult:
    gauges = {name.removeprefix(_GAUGE): value for name, value in counters.items() if name.startswith(_GAUGE)}
    not_counted = (_GAUGE, f"{BUSY_US}.")
    counts = {name.removeprefix(_COUNTER): n for name, n in counters.items() if not name.startswith(not_counted)}
    dead = [record for record in records if record.lane == DEAD_LETTERS]
    late = [record for record in records if record.lane != DEAD_LETTERS]
    result = SimulationResult(dead=dead, late=late, counters=counts, gauges=gauges)
    for rows in lanes:
        result.add(SimulationResult({rows.lane: rows.rows.select(pl.exclude("^__.*$"))}))
    return result


def simulate(
    topology: Topology, inputs: Mapping[str, pl.DataFrame], *, cut_rows: int = 100_000, shards: int = 1
) -> SimulationResult:
    """Run all rows of the inputs in cuts of ``cut_rows`` rows per stream, then end every stream; return all output.

    The clock stands at 0, so what is due by the clock does not happen; ``Simulation.cut`` takes a clock.
    """
    simulation, result = Simulation(topology, shards=shards), SimulationResult()
    max_rows = max((rows.height for rows in inputs.values()), default=0)
    for start in range(0, max_rows, cut_rows):
        result.add(simulation.cut({name: rows[start : start + cut_rows] for name, rows in inputs.items()}))
    result.add(simulation.end())
    simulation.close()
    return result
