"""Event times that a step assigns: the watermark, windows and late rows follow the new times."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.aggregates import Count
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.errors import ConfigError
from streamcore.offsets import source_partitions
from streamcore.schema import StreamSchema
from streamcore.topology.nodes import SinkNode
from streamcore.topology.simulation import Simulation, SimulationResult
from streamcore.topology.stream import Stream, source
from streamcore.topology.topology import Topology
from streamcore.watermark import ascending_timestamps, bounded_out_of_orderness, from_punctuation
from streamcore.windowing import Tumbling
from streamcore.wire.lanes import DEAD_LETTERS

FIELDS = {"ts": "timestamp not null", "other": "timestamp", "user": "string not null", "flag": "boolean"}
TIME = pl.Datetime("ms", "UTC")


def schema(name: str, event_time: str) -> StreamSchema:
    fields = {**FIELDS, event_time: "timestamp not null"}
    return StreamSchema.parse({"name": name, "event_time": event_time, "keys": [["user"]], "fields": fields})


def stream(name: str = "a", event_time: str = "ts") -> Stream:
    return source(schema(name, event_time), bounded_out_of_orderness("5ms"))


def counts(rows: Stream, lane: str = "out") -> SinkNode:
    windows = rows.key_by("user").window(Tumbling("20ms")).late_to(f"late-{lane}")
    return windows.aggregate(f"windows-{lane}", n=Count()).sink(lane)


def frame(events: list[tuple[int, int, str, int]]) -> pl.DataFrame:
    """Return rows of time, other time, user and partition."""
    columns = {"ts": pl.Int64, "other": pl.Int64, "user": pl.String, "partition": pl.Int32}
    rows = pl.DataFrame(events, schema=columns, orient="row")
    return rows.with_columns(pl.col("ts", "other").cast(TIME), flag=pl.lit(None, pl.Boolean))


def run(topology: Topology, rows: pl.DataFrame, cut_rows: int, shards: int, *, restarts: bool) -> SimulationResult:
    simulation, result = Simulation(topology, shards=shards), SimulationResult()
    for start in range(0, rows.height, cut_rows):
        if restarts:
            seen = simulation.seen
            simulation = Simulation(topology, shards=shards, blobs=simulation.blobs)
            simulation.seen |= seen
        result.add(simulation.cut({"a": rows[start : start + cut_rows]}))
    result.add(simulation.end())
    return result


events = st.lists(
    st.tuples(st.integers(0, 99), st.integers(0, 99), st.sampled_from("ab"), st.integers(0, 2)), min_size=1, max_size=30
)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(events, st.sampled_from([1, 4, 30]), st.integers(1, 3), st.booleans())
def test_assigned_times_have_the_effect_of_times_of_the_source(
    found: list[tuple[int, int, str, int]], cut_rows: int, shards: int, restarts: bool
) -> None:
    assigned = Topology("t", counts(stream().assign_timestamps("other", bounded_out_of_orderness("5ms"))))
    of_source = Topology("t", counts(stream(event_time="other")))
    rows = frame(found)
    result, wanted = (run(t, rows, cut_rows, shards, restarts=restarts) for t in (assigned, of_source))
    for lane in ("out", "late-out"):
        assert sorted(result[lane].rows(), key=str) == sorted(wanted[lane].rows(), key=str)


def test_each_branch_has_the_watermark_of_its_own_times() -> None:
    a = stream()
    assigned = a.assign_timestamps("other", ascending_timestamps(), name="by-other")
    topology = Topology("t", counts(a), counts(assigned, "other"), counts(a.union(assigned), "both"))
    assert topology.watermark_groups == ((0,), (1,), (0, 1))
    assert [node.watermark_for for stage in topology.plan().stages for node in stage.operators] == [
        ("a",),
        ("by-other",),
        ("a", "by-other"),
    ]
    simulation = Simulation(topology)
    result = simulation.cut({"a": frame([(0, 0, "x", 0), (30, 10, "x", 0)])})
    assert [result[lane].height for lane in ("out", "other", "both")] == [1, 0, 0]
    result = simulation.cut({"a": frame([(31, 60, "x", 0)])})
    assert [result[lane].height for lane in ("out", "other", "both")] == [0, 1, 1]


def test_times_are_assigned_again_and_after_a_filter() -> None:
    twice = (
        stream()
        .filter(pl.col("user") != "z")
        .assign_timestamps("other")
        .assign_timestamps("ts", ascending_timestamps())
    )
    topology = Topology("t", counts(twice))
    assert topology.watermark_groups == ((0,), (2,))
    result = run(topology, frame([(5, 90, "x", 0), (50, 1, "z", 0), (26, 0, "x", 0)]), 1, 2, restarts=True)
    assert result["out"]["n"].to_list() == [1, 1]


def test_a_partition_whose_backlog_comes_later_holds_the_derived_watermark_back() -> None:
    topology = Topology("t", counts(stream().assign_timestamps("other", ascending_timestamps())))
    base_ms = 1_700_000_000_000

    def record(partition: int, offset: int, at_ms: int) -> RawRecord:
        texts = [datetime.fromtimestamp((base_ms + ms) / 1000, UTC).isoformat() for ms in (0, at_ms)]
        value = {"ts": texts[0], "other": texts[1], "user": "x"}
        return RawRecord(0, partition, offset, json.dumps(value).encode())

    app = InProcessApp(topology.app(topics={"a": "a"}, shards=2), partitions=[*source_partitions(0)[:2]])
    assert app.cut([record(0, 0, 0), record(0, 1, 50)], base_ms) == []
    out = app.cut([record(1, 0, 10), record(1, 1, 25)], base_ms + 1)
    assert [(r.lane, json.loads(r.value or b"")["n"]) for r in out] == [("out", 2)]
    assert app.outputs[0].partitions.keys() == {0, 1}, "derived partitions are no partitions of a topic"


def test_a_row_without_a_time_or_with_one_of_the_future_is_a_dead_letter() -> None:
    topology = Topology("t", counts(stream().assign_timestamps("other")))
    values = [
        {"ts": "2026-03-02T10:00:00Z", "user": "x"},
        {"ts": "2026-03-02T10:00:00Z", "other": "2026-03-02T10:06:00Z", "user": "x"},
    ]
    clock_ms = 1_772_445_600_000  # 10:00
    records = [RawRecord(0, 0, n, json.dumps(value).encode()) for n, value in enumerate(values)]
    letters = [r for r in InProcessApp(topology.app()).cut(records, clock_ms) if r.lane == DEAD_LETTERS]
    assert sorted(dict(letter.headers)["reason"] for letter in letters) == [
        b"timestamps-1: column other: the time is ahead of the clock by more than the limit",
        b"timestamps-1: column other: the time is null",
    ]


def test_a_punctuation_of_the_assigned_times_advances_the_watermark() -> None:
    topology = Topology("t", counts(stream().assign_timestamps("other", from_punctuation("flag"))))
    simulation = Simulation(topology)
    rows = frame([(0, 0, "x", 0), (0, 90, "x", 0)])
    assert simulation.cut({"a": rows})["out"].is_empty()
    assert simulation.cut({"a": frame([(0, 40, "x", 0)]).with_columns(flag=True)})["out"].height == 1


def test_what_would_change_the_column_and_not_the_time_is_rejected() -> None:
    a = stream()
    message = "column ts holds the event time of the rows, and a new value would not change it; give the new column"
    with pytest.raises(ConfigError, match=f"map: {message}"):
        a.map(ts=pl.col("other"))
    with pytest.raises(ConfigError, match=f"map: {message}"):
        a.filter(pl.lit(value=True)).union(a).map(ts=pl.col("other"))
    with pytest.raises(ConfigError, match=f"select: {message}"):
        a.select("user", pl.col("other").alias("ts"))
    assert "ts" in a.select("user", "ts").select(pl.col("ts")).schema
    renewed = a.assign_timestamps("other").map(ts=pl.col("other"))
    with pytest.raises(ConfigError, match="map: column other holds the event time"):
        renewed.map(other=pl.col("ts"))
    with pytest.raises(ConfigError, match="assign_timestamps: column user is String; it must be Datetime"):
        a.assign_timestamps("user")
    with pytest.raises(ConfigError, match="assign_timestamps: column nope is missing"):
        a.assign_timestamps("other", from_punctuation("nope"))
    late = a.key_by("user").window(Tumbling("20ms")).aggregate(n=Count())
    with pytest.raises(ConfigError, match="times must be assigned before the first key_by"):
        Topology("t", late.assign_timestamps("window_end").sink("out"))
