"""Functions that are opened: what they learn, what they count, and what a failed call or a restart leaves of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from streamcore.errors import ConfigError
from streamcore.keyed import ProcessContext, ProcessFunction, ValueState
from streamcore.keyed.runtime_context import FunctionCounter, FunctionGauge, RuntimeContext
from streamcore.operators.base import MAIN
from streamcore.schema import StreamSchema
from streamcore.telemetry.totals import MetricTotals
from streamcore.topology.simulation import Simulation
from streamcore.topology.stream import source
from streamcore.topology.text_tables import event_table
from streamcore.topology.topology import Topology
from streamcore.watermark import ascending_timestamps

EVENTS = StreamSchema.parse(
    {
        "name": "events",
        "event_time": "at",
        "keys": [["k"]],
        "fields": {"at": "timestamp not null", "k": "string not null", "v": "long not null"},
    }
)
ROWS = [(f"2026-01-01 00:00:0{n}", f"k{n % 3}", n) for n in range(9)]
LOG: list[tuple[object, ...]] = []


class Totals(ProcessFunction):
    """Counts its events, fails on some after it has counted, and has what only ``open`` makes."""

    outputs = {MAIN: {"k": pl.String, "total": pl.Int64}}
    total = ValueState(default=0)
    seen: FunctionCounter
    keys: FunctionGauge

    def open(self, context: RuntimeContext) -> None:
        LOG.append(("open", context.step, context.shard, context.shards))
        self.seen, self.keys = context.counter("seen"), context.gauge("keys")
        self.opened_keys: set[str] = set()

    def close(self) -> None:
        LOG.append(("close",))

    def process(self, event: Any, context: ProcessContext) -> Iterator[dict[str, object]]:
        self.seen.add(2)
        self.opened_keys.add(event.k)
        self.keys.set(len(self.opened_keys))
        if event.v == 4:
            raise ValueError("not this one")
        self.total += event.v
        yield {"k": event.k, "total": self.total}


class Positive:
    """A stateless function object that counts what it drops."""

    dropped: FunctionCounter

    def open(self, context: RuntimeContext) -> None:
        LOG.append(("open", context.step, context.shard))
        self.dropped = context.counter("dropped")

    def close(self) -> None:
        LOG.append(("close flat_map",))

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        kept = rows.filter(pl.col("v") > 0)
        if hasattr(self, "dropped"):  # the call that finds out the columns comes before
            self.dropped.add(rows.height - kept.height)
        if (kept["v"] == 8).any():
            raise ValueError("eight")
        return kept


@pytest.fixture(autouse=True)
def _log() -> None:
    LOG.clear()


def topology() -> Topology:
    stream = source(EVENTS, ascending_timestamps()).flat_map(Positive())
    return Topology("t", stream.key_by("k").process(Totals(), name="totals").sink("out"))


def test_a_function_is_opened_once_a_shard_before_its_first_call_and_closed_at_the_end() -> None:
    program = topology()
    assert LOG == [], "an app that is only described opens nothing"
    simulation = Simulation(program, shards=2)
    for n in range(0, 9, 3):
        simulation.cut({"events": event_table(EVENTS, ROWS[n : n + 3])})
    assert sorted(LOG, key=str) == [
        ("open", "flat_map-1", None),
        ("open", "totals", 0, 2),
        ("open", "totals", 1, 2),
    ]
    simulation.close()
    assert sorted(LOG[3:], key=str) == [("close flat_map",), ("close",), ("close",)]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("cut_rows", [1, 4, 9])
@pytest.mark.quick_cases(2)
def test_counts_are_those_of_successful_calls_however_the_input_is_cut(shards: int, cut_rows: int) -> None:
    simulation = Simulation(topology(), shards=shards)
    counted: dict[str, int] = {}
    gauges: dict[str, int] = {}
    for n in range(0, 9, cut_rows):
        result = simulation.cut({"events": event_table(EVENTS, ROWS[n : n + cut_rows])})
        counted = {name: counted.get(name, 0) + result.counters.get(name, 0) for name in {*counted, *result.counters}}
        gauges |= result.gauges
    # Eight rows of 1 to 8; the function fails on 4, and the step before it on 8.
    assert counted["totals.seen"] == 2 * 6
    assert counted["flat_map-1.dropped"] == 1
    assert gauges == {"totals.keys": 3}


def test_state_is_as_before_and_attributes_are_made_again_after_a_restart() -> None:
    first = Simulation(topology())
    first.cut({"events": event_table(EVENTS, ROWS[:3])})
    second = Simulation(topology(), blobs=first.blobs)
    result = second.cut({"events": event_table(EVENTS, ROWS[3:4])})
    assert result["out"].rows() == [("k0", 3)]
    assert result.gauges == {"totals.keys": 1}, "an attribute of open is no state"


def test_metrics_have_step_and_name_as_labels() -> None:
    context = RuntimeContext("velocity", 1, 4)
    context.counter("alarms").add(3)
    context.gauge("cards").set(7)
    totals = MetricTotals()
    for _ in range(2):
        totals._add_counters(context.take_metrics())
    assert (totals.function_counts, totals.function_gauges) == ({"velocity.alarms": 3}, {"velocity.cards": 7})
    assert totals.counters == {}


def test_wrong_names_and_negative_counts_are_rejected() -> None:
    context = RuntimeContext("s", 0, 1)
    with pytest.raises(ConfigError, match=r"metric name 'A b'"):
        context.counter("A b")
    with pytest.raises(ValueError, match="use a gauge"):
        context.counter("a").add(-1)
    for n in range(99):
        context.counter(f"n{n}")
    with pytest.raises(ConfigError, match="more than 100"):
        context.counter("one_more")
