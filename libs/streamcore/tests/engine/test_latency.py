"""The latency of a lane is that of the oldest record in the cut of the topics that feed it."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from streamcore.aggregates import Count
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.engine.latency import lane_latencies, take_first_records
from streamcore.errors import ConfigError
from streamcore.kernel import BUSY_US
from streamcore.schema import StreamSchema
from streamcore.spark.session import SparkSettings
from streamcore.topology.stream import Stream, source
from streamcore.topology.topology import Topology
from streamcore.windowing import Tumbling


def stream(name: str) -> Stream:
    fields = {"ts": "timestamp not null", "user": "string not null"}
    return source(StreamSchema.parse({"name": name, "event_time": "ts", "keys": [["user"]], "fields": fields}))


A, B = stream("a"), stream("b")
AT_MS = 1_772_445_600_000  # 2026-03-02 10:00


def record(source_index: int, partition: int, offset: int, age_ms: int | None) -> RawRecord:
    value = json.dumps({"ts": "2026-03-02T10:00:00Z", "user": "x"}).encode()
    return RawRecord(source_index, partition, offset, value, None, None if age_ms is None else AT_MS - age_ms)


def test_each_lane_has_the_latency_of_the_topics_that_feed_it() -> None:
    counts = A.assign_timestamps("ts").key_by("user").window(Tumbling(1_000)).late_to("late").aggregate(n=Count())
    topology = Topology(
        "t", A.select("user").sink("a"), B.select("user").sink("b"), A.union(B).sink("both"), counts.sink("counts")
    )
    app = topology.app()
    local = InProcessApp(app)
    local.cut([record(0, 0, 0, 300), record(0, 0, 1, None), record(0, 1, 0, 500), record(1, 0, 0, 900)], AT_MS, tasks=2)
    counters: dict[str, int] = {}
    for output in local.outputs:
        counters.update(output.metrics.counters)
    first = take_first_records(counters)
    assert sorted(AT_MS - ms for ms in first.values()) == [300, 500, 900]
    assert not any(name.startswith("first_record") for name in counters)
    latencies = lane_latencies(app, ["a", "b", "both", "counts", "late", "deadletters"], first, AT_MS + 40)
    assert latencies == {"a": 540, "b": 940, "both": 940, "counts": 540, "late": 540, "deadletters": 940}
    assert lane_latencies(app, ["b"], {n: ms for n, ms in first.items() if n < 2}, AT_MS) == {}


def test_the_time_of_each_step_is_counted_and_is_no_output() -> None:
    def slow(rows: pl.DataFrame) -> pl.DataFrame:
        for _ in range(200):
            rows = rows.with_columns(pl.col("user").str.to_uppercase())
        return rows

    app = InProcessApp(Topology("t", A.flat_map(slow).sink("out")).app(shards=1))
    app.cut([record(0, 0, 0, 0)], AT_MS)
    busy = {n: us for n, us in app.outputs[-1].metrics.counters.items() if n.startswith(f"{BUSY_US}.")}
    assert busy[f"{BUSY_US}.flat_map-1"] >= 1


def test_the_number_of_retained_checkpoints_has_bounds() -> None:
    for wrong in (1, 101):
        with pytest.raises(ConfigError, match=f"retained_checkpoints: {wrong} is not from 2"):
            SparkSettings(Path(), retained_checkpoints=wrong)
