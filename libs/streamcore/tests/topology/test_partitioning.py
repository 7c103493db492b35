"""Rows that are sent to other shards by hand, and look-ups behind a key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl
import pytest

from streamcore.enrich import Answer, Enrichment, Key, LookupRetries, close_shared_enrichers
from streamcore.errors import ConfigError
from streamcore.keyed import ProcessContext, ProcessFunction, ValueState
from streamcore.operators.base import MAIN
from streamcore.schema import StreamSchema
from streamcore.topology.simulation import Simulation, SimulationResult
from streamcore.topology.stream import source
from streamcore.topology.topology import Topology

SCHEMA = StreamSchema.parse(
    {
        "name": "a",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string not null", "n": "long not null"},
    }
)
A = source(SCHEMA)
ROWS = pl.DataFrame({"ts": range(60), "user": [*"abc"] * 20, "n": range(60)}).with_columns(
    pl.col("ts").cast(pl.Datetime("ms", "UTC"))
)


def run(topology: Topology, cut_rows: int, shards: int) -> tuple[SimulationResult, Simulation]:
    simulation, result = Simulation(topology, shards=shards), SimulationResult()
    for start in range(0, ROWS.height, cut_rows):
        simulation = Simulation(topology, shards=shards, blobs=simulation.blobs)
        result.add(simulation.cut({"a": ROWS[start : start + cut_rows]}))
    return result, simulation


@pytest.mark.parametrize("cut_rows", [7, 60])
def test_rebalanced_rows_are_divided_among_all_shards_and_none_is_lost(cut_rows: int) -> None:
    doubled = A.rebalance().map(twice=pl.col("n") * 2)
    topology = Topology("t", doubled.sink("out"))
    assert topology.levels.level_by_node[doubled.port.node] == {1}
    result, simulation = run(topology, cut_rows, 4)
    assert sorted(result["out"]["twice"]) == [2 * n for n in range(60)]
    if cut_rows == 60:
        by_shard = [sum(rows.rows.height for rows in output.lanes) for output in simulation.local.outputs]
        assert min(by_shard) >= 8


def test_rows_with_equal_values_meet_on_one_shard_and_a_key_of_these_columns_needs_no_shuffle() -> None:
    parted = A.partition_by("user")
    counted = parted.filter(pl.col("n") >= 0).key_by("user").process(Count())
    topology = Topology("t", counted.sink("out"), parted.sink("rows"))
    assert len(topology.levels.exchanges) == 1
    result, simulation = run(topology, 60, 3)
    assert sorted(result["out"]["n"]) == sorted([*range(1, 21)] * 3)
    lanes = [[rows.rows for rows in output.lanes if rows.lane == "rows"] for output in simulation.local.outputs]
    assert sorted(user for frames in lanes for user in {u for rows in frames for u in rows["user"]}) == ["a", "b", "c"]


def test_without_columns_all_rows_are_on_one_shard() -> None:
    _, simulation = run(Topology("t", A.partition_by().sink("out")), 60, 4)
    assert Counter(sum(r.rows.height for r in output.lanes) for output in simulation.local.outputs) == {0: 3, 60: 1}


@pytest.mark.parametrize(("parallelism", "busy"), [(1, 1), (2, 2), (9, 4)])
def test_a_step_runs_on_no_more_shards_than_its_parallelism(parallelism: int, busy: int) -> None:
    _, simulation = run(Topology("t", A.rebalance(parallelism=parallelism).sink("out")), 60, 4)
    rows = [sum(r.rows.height for r in output.lanes) for output in simulation.local.outputs]
    assert (sum(rows), sum(count > 0 for count in rows)) == (60, busy)


@pytest.mark.slow
def test_a_key_behind_a_step_with_a_parallelism_is_sent_again_to_all_shards() -> None:
    few = A.partition_by("user", parallelism=1)
    topology = Topology("t", few.key_by("user").process(Count()).sink("out"), few.sink("few"))
    assert len(topology.levels.exchanges) == 2
    result, _ = run(topology, 7, 3)
    assert sorted(result["out"]["n"]) == sorted([*range(1, 21)] * 3)
    assert result["few"].height == 60
    with pytest.raises(ConfigError, match="rebalance: parallelism 0 must be at least 1"):
        A.rebalance(parallelism=0)


def test_another_key_than_that_of_the_rows_is_sent_again() -> None:
    rebalanced = A.rebalance().key_by("user").process(Count())
    assert len(Topology("t", rebalanced.sink("out")).levels.exchanges) == 2
    with pytest.raises(ConfigError, match="key_by: the stream has no column '__partition'"):
        A.key_by("__partition")
    with pytest.raises(ConfigError, match=r"key_by: the stream has no columns \['x'\]"):
        A.partition_by("x")


class Count(ProcessFunction):
    outputs = {MAIN: {"user": pl.String, "n": pl.Int64}}
    count = ValueState(int, default=0)

    def process(self, event: Any, context: ProcessContext) -> Iterator[dict[str, object]]:
        self.count += 1
        yield {"user": event.user, "n": self.count}


class Names:
    """Knows the names of a and b; fails for c."""

    async def open(self) -> None:
        """Do nothing."""

    async def get_many(self, keys: Sequence[Key]) -> Mapping[Key, Answer]:
        if "c" in keys:
            raise ValueError("no c")
        return {key: {"name": f"user {key}"} for key in keys}

    async def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def names() -> Iterator[Enrichment]:
    yield Enrichment("names", Names, ("user",), {"name": pl.String()}, batch_keys=1, retries=LookupRetries(attempts=1))
    close_shared_enrichers()


@pytest.mark.parametrize(("cut_rows", "shards"), [(7, 3), (60, 1)])
@pytest.mark.slow
def test_a_look_up_behind_a_key_adds_columns_and_keeps_the_key(names: Enrichment, cut_rows: int, shards: int) -> None:
    named = A.key_by("user").process(Count(), keeps_key=True).enrich(names, failed_to="unknown")
    again = named.key_by("user").process(Count(), name="again")
    topology = Topology("t", named.sink("named"), again.sink("again"))
    assert len(topology.levels.exchanges) == 1
    result, _ = run(topology, cut_rows, shards)
    wanted = sorted((user, n, f"user {user}") for user in "ab" for n in range(1, 21))
    assert sorted(result["named"].select("user", "n", "name").rows()) == wanted
    assert sorted(result["unknown"]["n"]) == [*range(1, 21)]
    assert sorted(result["again"]["n"]) == sorted([*range(1, 21)] * 2)
