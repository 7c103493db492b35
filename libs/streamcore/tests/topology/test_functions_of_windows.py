"""Functions of windows and of co-groups with state per key and per window, and side outputs; one shard for all rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.errors import ConfigError
from streamcore.keyed import ListState, ProcessContext, ProcessFunction, Ttl, ValueState
from streamcore.keyed.keyed_store import KeyedLimits
from streamcore.keyed.window_states import per_window
from streamcore.operators.base import MAIN
from streamcore.operators.group_calls import GroupContext
from streamcore.operators.joins.process_cogroup import ProcessCoGroupFunction
from streamcore.operators.windows.general.pane_values import WindowView
from streamcore.operators.windows.process_operator import ProcessWindowFunction
from streamcore.schema import StreamSchema
from streamcore.state.blob_store import MemoryBlobs
from streamcore.topology.simulation import Simulation, SimulationResult
from streamcore.topology.stream import Stream, source
from streamcore.topology.topology import Topology
from streamcore.topology.windowed_stream import WindowedStream
from streamcore.watermark import bounded_out_of_orderness
from streamcore.windowing import (
    AfterCount,
    AfterWatermark,
    CountTumbling,
    GlobalWindow,
    Repeatedly,
    Session,
    Sliding,
    Tumbling,
)
from streamcore.windowing.model import Window

Event = tuple[int, str, int]


def stream(name: str) -> Stream:
    fields = {"ts": "timestamp not null", "user": "string not null", "n": "long not null"}
    schema = StreamSchema.parse({"name": name, "event_time": "ts", "keys": [["user"]], "fields": fields})
    return source(schema, bounded_out_of_orderness("20ms"))


A, B = stream("a"), stream("b")


def frame(events: list[Event]) -> pl.DataFrame:
    rows = pl.DataFrame(events, schema={"ts": pl.Int64, "user": pl.String, "n": pl.Int64}, orient="row")
    return rows.with_columns(pl.col("ts").cast(pl.Datetime("ms", "UTC")))


def run(
    topology: Topology,
    events: list[Event],
    cut_rows: int,
    shards: int,
    *,
    restarts: bool,
    other: list[Event] | None = None,
) -> tuple[SimulationResult, Simulation]:
    result, blobs = SimulationResult(), dict[tuple[int, int], MemoryBlobs]()
    simulation = Simulation(topology, shards=shards, blobs=blobs)
    for start in range(0, max(len(events), len(other or ())), cut_rows):
        if restarts:
            seen = simulation.seen
            simulation = Simulation(topology, shards=shards, blobs=blobs)
            simulation.seen |= seen
        inputs = {"a": frame(events[start : start + cut_rows])}
        if other is not None:
            inputs["b"] = frame(other[start : start + cut_rows])
        result.add(simulation.cut(inputs))
    result.add(simulation.end())
    return result, simulation


class Changes(ProcessWindowFunction):
    """The change of a key's panes and the number of the panes of a window. Fails on a sum of 13."""

    outputs = {
        MAIN: {"total": pl.Int64, "change": pl.Int64, "calls": pl.Int64, "numbers": pl.List(pl.Int64)},
        "large": {"user": pl.String, "total": pl.Int64},
    }
    before = ValueState(int, default=0)
    calls = per_window(ValueState(int, default=0))

    def process(self, window: WindowView, context: GroupContext) -> Iterator[dict[str, object]]:
        total = int(window.elements["n"].sum())
        change, self.before = total - self.before, total
        self.calls += 1
        if total > 9:
            context.side("large", {"user": window.key[0], "total": total})
        numbers = window.elements["n"].to_list()
        yield {"total": total, "change": change, "calls": self.calls, "numbers": numbers}
        assert total != 13, "thirteen"


def sums(window: WindowView) -> list[dict[str, object]]:
    return [{"total": int(window.elements["n"].sum())}]


WINDOWS = {
    "tumbling, late panes": A.key_by("user").window(Tumbling("30ms")).allowed_lateness("40ms"),
    "sliding, early panes": A.key_by("user")
    .window(Sliding("40ms", "20ms"))
    .trigger(AfterWatermark(early=Repeatedly(AfterCount(2)))),
    "counts": A.key_by("user").window(CountTumbling(3)).trigger(Repeatedly(AfterCount(1))),
    "global": A.key_by("user").window(GlobalWindow()).trigger(Repeatedly(AfterCount(2))).discarding(),
}

events = st.lists(st.tuples(st.integers(0, 120), st.sampled_from("abc"), st.integers(0, 9)), min_size=1, max_size=25)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(st.sampled_from(sorted(WINDOWS)), events, st.sampled_from([1, 3, 30]), st.integers(1, 3), st.booleans())
def test_state_per_key_and_per_window_follows_the_panes(
    kind: str, found: list[Event], cut_rows: int, shards: int, restarts: bool
) -> None:
    windowed: WindowedStream = WINDOWS[kind]
    panes = windowed.apply(sums, {"total": pl.Int64()})
    plain, _ = run(Topology("p", panes.sink("out")), found, cut_rows, shards, restarts=False)
    step = windowed.process(Changes(), name="changes")
    topology = Topology("t", step.sink("out"), step.side("large").sink("large"))
    result, simulation = run(topology, found, cut_rows, shards, restarts=restarts)

    before: dict[str, int] = defaultdict(int)
    calls: dict[tuple[object, ...], int] = defaultdict(int)
    wanted, large, failed = [], [], 0
    for user, first, end, pane, *_, total in plain["out"].rows():
        if total == 13:
            failed += 1
            continue
        calls[user, first, end] += 1
        wanted.append((user, first, end, pane, total, total - before[user], calls[user, first, end]))
        before[user] = total
        large += [(user, total)] if total > 9 else []
    bounds = [column for column in result["out"].columns if column.startswith("window_")]
    columns = ["user", *bounds, "pane", "total", "change", "calls"]
    assert sorted(result["out"].select(columns).rows(), key=str) == sorted(wanted, key=str)
    assert sorted(result["large"].rows()) == sorted(large)
    assert len(result.dead) == failed
    if kind != "counts":  # unfinished count windows end with the stream only if their trigger fires
        tables = [shard.kernel.table("changes/function_entries") for shard in simulation.local.shards.values()]
        assert sum(table.rows(0, 1).height for table in tables) == 0, "the state of a window ends with it"


def test_a_failing_call_leaves_neither_state_nor_side_output() -> None:
    step = A.key_by("user").window(Tumbling("10ms")).process(Changes(), name="changes")
    topology = Topology("t", step.sink("out"), step.side("large").sink("large"))
    result, _ = run(topology, [(1, "a", 5), (12, "a", 9), (13, "a", 4), (25, "a", 6)], 2, 1, restarts=True)
    assert result["out"].select("total", "change").rows() == [(5, 5), (6, 1)]
    assert result["large"].is_empty()
    (letter,) = result.dead
    assert dict(letter.headers)["reason"].startswith(b"changes: Changes.process: AssertionError: thirteen")


class Unfitting(Changes):
    def process(self, window: WindowView, context: GroupContext) -> Any:
        self.before += 1
        return [{"total": "1", "change": 1, "calls": 1, "numbers": []}]


class OfSession(ProcessWindowFunction):
    """State per key in sessions."""

    outputs = {MAIN: {"session": pl.Int64}}
    sessions = ValueState(int, default=0, ttl=Ttl("200ms"))

    def process(self, window: WindowView, context: GroupContext) -> list[dict[str, object]]:
        self.sessions += 1
        return [{"session": self.sessions}]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("cut_rows", "shards"), [(1, 1), (2, 3), (9, 2)])
def test_sessions_have_state_per_key(cut_rows: int, shards: int) -> None:
    step = A.key_by("user").window(Session("10ms")).process(OfSession())
    found = [(0, "a", 1), (1, "b", 1), (30, "a", 1), (31, "a", 1), (60, "a", 1), (500, "a", 1)]
    result, _ = run(Topology("t", step.sink("out")), found, cut_rows, shards, restarts=True)
    assert sorted(result["out"].select("user", "session").rows()) == [("a", 1), ("a", 1), ("a", 2), ("a", 3), ("b", 1)]


def test_a_window_function_that_cannot_work_is_rejected_where_it_is_written() -> None:
    windowed = A.key_by("user").window(Tumbling("10ms"))
    with pytest.raises(ConfigError, match="a retraction would be computed with later state"):
        windowed.retracting().process(Changes())
    with pytest.raises(ConfigError, match=r"a session merges with others .* declare it without per_window"):
        A.key_by("user").window(Session("10ms")).process(Changes())
    with pytest.raises(ConfigError, match="takes a ProcessWindowFunction, not a function; write a class"):
        windowed.process(sums)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="takes a ValueState, ReducingState or AggregatingState without ttl"):
        per_window(ListState(int))
    result, _ = run(Topology("t", windowed.process(Unfitting()).sink("o")), [(1, "a", 1)], 1, 1, restarts=False)
    assert b"column total" in dict(result.dead[0].headers)["reason"]
    limited = windowed.process(OfSession(), limits=KeyedLimits(keys=1))
    result, _ = run(Topology("t", limited.sink("o")), [(1, "a", 1), (1, "b", 1)], 2, 1, restarts=False)
    assert len(result["o"]) == len(result.dead) == 1


class Balance(ProcessCoGroupFunction):
    """What a key has after each window, and a side output for a window with rows of one side only."""

    outputs = {MAIN: {"user": pl.String, "balance": pl.Int64}, "single": {"user": pl.String, "side": pl.String}}
    balance = ValueState(int, default=0)

    def process(
        self, key: tuple[object, ...], window: Window, left: pl.DataFrame, right: pl.DataFrame, context: GroupContext
    ) -> Iterator[dict[str, object]]:
        self.balance += int(left["n"].sum()) - int(right["n"].sum())
        if not left.height or not right.height:
            context.side("single", {"user": key[0], "side": "left" if left.height else "right"})
        yield {"user": key[0], "balance": self.balance}
        assert self.balance != 2, "two"


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(events, events, st.sampled_from([1, 4, 30]), st.integers(1, 3), st.booleans())
def test_a_co_group_has_state_per_key_and_side_outputs(
    left: list[Event], right: list[Event], cut_rows: int, shards: int, restarts: bool
) -> None:
    left, right = sorted(left), sorted(right)  # in order, so that no row is late
    step = A.key_by("user").join(B.key_by("user")).window(Tumbling("30ms")).process(Balance())
    topology = Topology("t", step.sink("out"), step.side("single").sink("single"))
    # Streams that advance together: both have an event of each time in the same cut.
    times = sorted({ts for ts, _, _ in (*left, *right)})
    a = [event for at in times for event in [(at, "-", 0), *(e for e in left if e[0] == at)]]
    b = [event for at in times for event in [(at, "-", 0), *(e for e in right if e[0] == at)]]
    result, _ = run(topology, a, cut_rows, shards, restarts=restarts, other=b)
    wanted, single, failed = [], [], 0
    for user in "abc":
        balance = 0
        for start in range(0, 121, 30):
            sides = [[n for ts, u, n in side if u == user and start <= ts < start + 30] for side in (left, right)]
            change = sum(sides[0]) - sum(sides[1])
            if not any(sides):
                continue
            if balance + change == 2:
                failed += 1
                continue
            balance += change
            wanted.append((user, balance))
            if not all(sides):
                single.append((user, "left" if sides[0] else "right"))
    assert sorted(row for row in result["out"].rows() if row[0] != "-") == sorted(wanted)
    assert sorted(row for row in result["single"].rows() if row[0] != "-") == sorted(single)
    assert len(result.dead) == failed


# --- all rows in one shard ------------------------------------------------------------------------------------------


class Numbered(ProcessFunction):
    outputs = {MAIN: {"user": pl.String, "number": pl.Int64}}
    number = ValueState(int, default=0)

    def process(self, event: Any, context: ProcessContext) -> list[dict[str, object]]:
        assert context.key == ()
        self.number += 1
        context.timers.set(1_000)
        return [{"user": event.user, "number": self.number}]

    def on_timer(self, at_ms: int, context: ProcessContext) -> list[dict[str, object]]:
        return [{"user": "timer", "number": self.number}]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("cut_rows", "shards"), [(1, 1), (2, 4), (9, 3)])
def test_without_key_columns_all_rows_have_one_state_on_one_shard(cut_rows: int, shards: int) -> None:
    numbered = A.key_by().process(Numbered())
    changes = A.key_by().window(Tumbling("30ms")).process(All())
    topology = Topology("t", numbered.sink("out"), changes.sink("changes"))
    found = [(n * 10, "abc"[n % 3], n) for n in range(7)]
    result, _ = run(topology, found, cut_rows, shards, restarts=True)
    assert result["out"].rows() == [*(("abc"[n % 3], n + 1) for n in range(7)), ("timer", 7)]
    assert result["changes"]["sum"].to_list() == [3, 15, 21]


class All(ProcessWindowFunction):
    """A running sum over all windows of all rows."""

    outputs = {MAIN: {"sum": pl.Int64}}
    sum = ValueState(int, default=0)

    def process(self, window: WindowView, context: GroupContext) -> list[dict[str, object]]:
        self.sum += int(window.elements["n"].sum())
        return [{"sum": self.sum}]
