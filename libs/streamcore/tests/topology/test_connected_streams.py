"""Two streams with one key, process functions without a key, and what the broadcast side of a function may do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.errors import ConfigError
from streamcore.keyed import (
    BroadcastState,
    CoProcessFunction,
    MapState,
    ProcessContext,
    ProcessFunction,
    TimeDomain,
    Ttl,
    ValueState,
)
from streamcore.operators.base import MAIN
from streamcore.schema import StreamSchema
from streamcore.state.blob_store import MemoryBlobs
from streamcore.topology.simulation import Simulation, SimulationResult
from streamcore.topology.stream import Stream, control_stream, source
from streamcore.topology.topology import Topology
from streamcore.watermark import bounded_out_of_orderness

#: Event time in milliseconds, key, number.
Event = tuple[int, str, int]
Cut = tuple[list[Event], list[Event]]
DELAY_MS = 20


def stream(name: str, key: str, *, raw: bool = False) -> Stream:
    fields = {"ts": "timestamp not null", key: "string not null", "n": "long not null"}
    schema = StreamSchema.parse({"name": name, "event_time": "ts", "keys": [[key]], "fields": fields})
    return source(schema, bounded_out_of_orderness("5ms"), raw=raw)


ORDERS, PAYMENTS, RULES = stream("orders", "user"), stream("payments", "payer"), stream("rules", "user", raw=True)


def frame(events: list[Event], key: str) -> pl.DataFrame:
    rows = pl.DataFrame(events, schema={"ts": pl.Int64, key: pl.String, "n": pl.Int64}, orient="row")
    return rows.with_columns(pl.col("ts").cast(pl.Datetime("ms", "UTC")))


def run(topology: Topology, cuts: list[dict[str, Any]], shards: int, restart_every: int = 0) -> SimulationResult:
    """Run the cuts and the end, with a restart after so many cuts."""
    result, blobs = SimulationResult(), dict[tuple[int, int], MemoryBlobs]()
    simulation = Simulation(topology, shards=shards, blobs=blobs)
    for number, cut in enumerate(cuts):
        if restart_every and number % restart_every == 0:
            seen = simulation.seen
            simulation = Simulation(topology, shards=shards, blobs=blobs)
            simulation.seen |= seen
        control = cut.pop("control", None)
        result.add(simulation.cut(cut, control=control, clock_ms=number))
    result.add(simulation.end())
    return result


# --- two keyed streams ----------------------------------------------------------------------------------------------


class History(CoProcessFunction):
    """Keeps what both streams sent, in order. A timer after each order reports it."""

    outputs = {
        MAIN: {"user": pl.String, "history": pl.String},
        "paid": {"user": pl.String, "seen": pl.List(pl.Int64)},
    }
    history = ValueState(str, default="")
    numbers = MapState(int, int)

    def process1(self, event: Any, context: ProcessContext) -> None:
        assert event.n != 9, "nine"
        self.history += f"o{event.n} "
        self.numbers[event.n] = 1
        context.timers.set(context.event_ms + DELAY_MS)

    def process2(self, event: Any, context: ProcessContext) -> None:
        context.side("paid", {"user": event.payer, "seen": sorted(self.numbers)})
        self.history += f"p{event.n} "
        assert event.n != 9, "nine of a payment"

    def on_timer(self, at_ms: int, context: ProcessContext) -> Iterator[dict[str, object]]:
        yield {"user": context.key, "history": f"{at_ms}: {self.history}"}


CONNECTED = ORDERS.key_by("user").connect(PAYMENTS.key_by("payer")).process(History(), name="history")
TOPOLOGY = Topology("t", CONNECTED.sink("out"), CONNECTED.side("paid").sink("paid"))


def expected(cuts: list[Cut]) -> tuple[list[tuple[str, str]], list[tuple[str, list[int]]]]:
    """The function in plain Python, key by key: the rows of a cut merged by the latest time of their side so far."""
    reports: list[tuple[str, str]] = []
    paid: list[tuple[str, list[int]]] = []
    for user in "abc":
        history, numbers, timers = "", set[int](), set[int]()
        latest: dict[int, dict[int, int]] = {0: {}, 1: {}}  # by side and partition: the latest time
        for cut in cuts:
            merged = []
            for side, events in enumerate(cut):
                at = -1
                for place, (ts, key, n) in enumerate(events):
                    latest[side][0] = max(latest[side].get(0, -(10**9)), ts)
                    if key == user:
                        at = max(at, ts)
                        merged.append((at, side, place, ts, n))
            for _, side, _, ts, n in sorted(merged):
                if side == 0 and n != 9:
                    history += f"o{n} "
                    numbers.add(n)
                    timers.add(ts + DELAY_MS)
                elif side == 1 and n != 9:
                    paid.append((user, sorted(numbers)))
                    history += f"p{n} "
            both = latest[0] and latest[1]
            has_begun = latest[0] or latest[1]
            watermark = min(v for one in latest.values() for v in one.values()) - 5 if has_begun else -(10**9)
            assert both is not None
            for at_ms in sorted(t for t in timers if t <= watermark):
                reports.append((user, f"{at_ms}: {history}"))
                timers.discard(at_ms)
        reports += [(user, f"{at_ms}: {history}") for at_ms in sorted(timers)]
    return reports, paid


events = st.lists(st.tuples(st.integers(0, 60), st.sampled_from("abc"), st.integers(0, 9)), max_size=8)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(events, events), min_size=1, max_size=6), st.integers(1, 4), st.integers(0, 2))
def test_both_streams_share_state_and_timers_for_any_shards_and_restarts(
    cuts: list[Cut], shards: int, restart_every: int
) -> None:
    first = ([(0, "a", 1)], [(0, "a", 2)])  # both partitions have begun, so that none is unknown to the watermark
    cuts = [first, *cuts]
    inputs = [{"orders": frame(a, "user"), "payments": frame(b, "payer")} for a, b in cuts]
    result = run(TOPOLOGY, inputs, shards, restart_every)
    reports, paid = expected(cuts)
    assert sorted(result["out"].rows()) == sorted(reports)
    assert sorted(result["paid"].rows()) == sorted(paid)
    failed = [dict(letter.headers)["reason"].decode() for letter in result.dead]
    assert sum("nine of a payment" in reason for reason in failed) == sum(e[2] == 9 for _, b in cuts for e in b)
    assert len(failed) == sum(e[2] == 9 for cut in cuts for side in cut for e in side)
    assert {dict(letter.headers)["reason_code"] for letter in result.dead} <= {b"failed"}


def test_a_backlog_in_one_cut_is_processed_in_the_order_of_event_times_across_both_streams() -> None:
    orders = [(10, "a", 1), (30, "a", 3), (20, "b", 7)]
    payments = [(20, "a", 2), (30, "a", 4), (10, "b", 8)]
    result = run(TOPOLOGY, [{"orders": frame(orders, "user"), "payments": frame(payments, "payer")}], 2)
    assert {user: text.split(": ")[1] for user, text in result["out"].rows()} == {"a": "o1 p2 o3 p4 ", "b": "p8 o7 "}


def test_failed_rows_of_each_stream_have_a_lane_of_their_own() -> None:
    step = ORDERS.key_by("user").connect(PAYMENTS.key_by("payer"))
    out = step.process(History(), failed_to="orders_failed", failed_second_to="payments_failed")
    orders, payments = frame([(10, "a", 9), (20, "a", 1)], "user"), frame([(10, "b", 9), (20, "b", 1)], "payer")
    result = run(Topology("t", out.sink("out")), [{"orders": orders, "payments": payments}], 2)
    assert result["orders_failed"].select("user", "n").rows() == [("a", 9)]
    assert result["payments_failed"].select("payer", "n").rows() == [("b", 9)]
    assert not result.dead


# --- keeps_key ------------------------------------------------------------------------------------------------------


class Relabel(ProcessFunction):
    """Emits the event with a running count, under the key that ``n`` asks for."""

    outputs = {MAIN: {"user": pl.String, "n": pl.Int64}}
    count = ValueState(int, default=0)

    def process(self, event: Any, context: ProcessContext) -> Iterator[dict[str, object]]:
        self.count += 1
        yield {"user": event.user if event.n < 5 else "other", "n": self.count}


def test_the_same_key_after_a_function_that_keeps_it_needs_no_shuffle_and_another_key_is_a_dead_letter() -> None:
    def topology(*, keeps_key: bool) -> Topology:
        once = ORDERS.key_by("user").process(Relabel(), keeps_key=keeps_key).key_by("user").process(Relabel())
        return Topology("t", once.sink("out"))

    kept = topology(keeps_key=True)
    assert [len(t.levels.exchanges) for t in (kept, topology(keeps_key=False))] == [1, 2]
    orders = [(n, "abc"[n % 3], n) for n in range(9)]
    results = [run(kept, [{"orders": frame(orders, "user")}], shards) for shards in (1, 3)]
    assert sorted(results[0]["out"].rows()) == sorted(results[1]["out"].rows()) != []
    assert [len(result.dead) for result in results] == [4, 4]
    assert b"the row has key ('other',)" in dict(results[1].dead[0].headers)["reason"]


def test_the_port_of_the_second_streams_failures_is_not_partitioned_by_the_first_key() -> None:
    other = stream("other", "payer").map(user=pl.lit("of another key"))
    step = ORDERS.key_by("user").connect(other.key_by("payer")).process(History(), keeps_key=True)
    by_user = [
        step.side(port).key_by("user").process(Count()).sink(port) for port in ("paid", "failed", "failed_second")
    ]
    assert [len(Topology("t", sink).levels.exchanges) for sink in by_user] == [2, 2, 3]


class Count(ProcessFunction):
    outputs = {MAIN: {"n": pl.Int64}}
    count = ValueState(int, default=0)

    def process(self, event: Any, context: ProcessContext) -> Iterator[dict[str, object]]:
        self.count += 1
        yield {"n": self.count}


# --- without a key --------------------------------------------------------------------------------------------------


class Split(ProcessFunction):
    """Rows up to ``n``, in a list, and a side output; fails on 7."""

    outputs = {MAIN: {"user": pl.String, "part": pl.Int64, "parts": pl.List(pl.Int64)}, "zero": {"text": pl.String}}

    def process(self, event: Any, context: ProcessContext) -> Iterator[dict[str, object]]:
        if event.n == 0:
            context.side("zero", {"text": f"{event.user} at {context.event_ms} of {context.clock_ms}"})
        for part in range(event.n):
            yield {"user": event.user, "part": part, "parts": [*range(part)]}
        assert event.n != 7, "seven"


def test_a_function_without_a_key_runs_in_stage_1_and_rows_keep_time_and_record() -> None:
    split = RULES.process(Split(), name="split")
    counted = split.key_by("user").process(Count())
    topology = Topology("t", split.sink("out"), split.side("zero").sink("zero"), counted.sink("counts"))
    assert topology.levels.level_by_node[split.port.node] == {0}
    rows = frame([(1, "a", 2), (2, "b", 7), (3, "a", 0), (4, "b", 1)], "user").with_columns(
        pl.lit(b"the record").alias("@value")
    )
    for cut_rows, shards in ((4, 1), (1, 3), (2, 2)):
        result = run(topology, [{"rules": rows[n : n + cut_rows]} for n in range(0, 4, cut_rows)], shards)
        assert sorted(result["out"].rows()) == [("a", 0, []), ("a", 1, [0]), ("b", 0, [])]
        assert [text.split(" of ")[0] for text in result["zero"]["text"]] == ["a at 3"]
        assert sorted(result["counts"]["n"]) == [1, 1, 2]
        (letter,) = result.dead
        assert letter.value == b"the record"
        assert dict(letter.headers)["reason"].startswith(b"split: Split.process: AssertionError: seven")


def test_a_function_without_a_key_runs_after_an_operator_too() -> None:
    late = ORDERS.key_by("user").process(Count()).process(Twice())
    result = run(Topology("t", late.sink("o")), [{"orders": frame([(1, "a", 1), (2, "a", 1)], "user")}], 2)
    assert sorted(result["o"]["n"]) == [1, 1, 2, 2]


class Twice(ProcessFunction):
    outputs = {MAIN: {"n": pl.Int64}}

    def process(self, event: Any, context: ProcessContext) -> list[object]:
        return [event, event]


class AsksForKey(Twice):
    def process(self, event: Any, context: ProcessContext) -> list[object]:
        if event.n == 2:
            context.timers.set(1)
        return [context.key if event.n == 1 else context.is_late]


def test_key_timers_and_watermark_need_a_key() -> None:
    orders = frame([(n, "a", n) for n in (1, 2, 3)], "user")
    result = run(Topology("t", ORDERS.process(AsksForKey()).sink("o")), [{"orders": orders}], 1)
    reasons = [dict(letter.headers)["reason"].decode() for letter in result.dead]
    assert ["no current key" in reasons[0], "no current key" in reasons[1], "write key_by" in reasons[2]] == [True] * 3
    with pytest.raises(ConfigError, match="Count: state count belongs to a key; write key_by before process"):
        ORDERS.process(Count())


# --- the broadcast side ---------------------------------------------------------------------------------------------


class Limits(ProcessFunction):
    """Sums by user, limits by user from the broadcast side, and what changes for all users when a limit comes."""

    outputs = {
        MAIN: {"user": pl.String, "text": pl.String},
        "log": {"text": pl.String},
    }
    total = ValueState(int, default=0)
    recent = ValueState(int, ttl=Ttl("10ms"))
    limits = BroadcastState(str, int)
    names = BroadcastState(int, str)

    def process_control(self, record: Any, context: ProcessContext) -> Iterator[dict[str, object]]:
        user, n = (record.user, record.n) if hasattr(record, "n") else (record.key, int(record.value))
        self.limits[user] = n
        self.names[n] = user
        context.broadcast["records"] = int(str(context.broadcast.get("records", 0))) + 1
        context.side("log", {"text": f"{user}={n}, {len(self.limits)} limits, {context.broadcast['records']} records"})
        context.apply_to_keyed_state(self.compare)
        yield {"user": "all", "text": f"limit {n}"}
        assert n != 9, "nine"

    def compare(self, context: ProcessContext) -> Iterator[dict[str, object]]:
        limit = self.limits.get(context.key)
        assert limit != 5, "five"
        if limit is not None and self.total > limit:
            yield {"user": context.key, "text": f"{self.total} > {limit}"}
            self.total = 0
            context.timers.set(context.watermark_ms + 1)
        if self.recent is None:
            yield {"user": context.key, "text": "quiet"}

    def process(self, event: Any, context: ProcessContext) -> None:
        self.total += event.n
        self.recent = event.n

    def on_timer(self, at_ms: int, context: ProcessContext) -> Iterator[dict[str, object]]:
        assert context.domain is TimeDomain.EVENT
        yield {"user": context.key, "text": f"timer with {self.total}"}


LIMITED = ORDERS.key_by("user").connect(RULES.broadcast()).process(Limits(), name="limits")
BROADCAST = Topology("b", LIMITED.sink("out"), LIMITED.side("log").sink("log"))


def limit_cuts() -> list[dict[str, Any]]:
    def cut(orders: list[Event], rules: list[Event]) -> dict[str, Any]:
        return {"orders": frame(orders, "user"), "rules": frame(rules, "user")}

    return [
        cut([(100, user, n) for n, user in enumerate("abcdef", 1)], [(100, "c", 4)]),
        cut([(101, "a", 1)], [(101, "a", 1), (101, "f", 5)]),
        cut([], [(101, "b", 1), (101, "x", 9)]),
        cut([(200, "a", 3)], [(200, "c", 2)]),
        cut([], [(200, "d", 1)]),
    ]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("shards", "restart_every"), [(1, 0), (1, 1), (4, 0), (4, 1), (3, 2)])
def test_the_broadcast_side_emits_once_and_changes_the_state_of_all_keys(shards: int, restart_every: int) -> None:
    result = run(BROADCAST, limit_cuts(), shards, restart_every)
    assert result["log"]["text"].to_list() == [
        "c=4, 1 limits, 1 records",
        "a=1, 2 limits, 2 records",
        "f=5, 3 limits, 3 records",
        "b=1, 4 limits, 4 records",
        "c=2, 4 limits, 5 records",
        "d=1, 5 limits, 6 records",
    ]
    rows = sorted(result["out"].rows())
    assert [row for row in rows if row[0] == "all"] == [("all", f"limit {n}") for n in (1, 1, 1, 2, 4, 5)]
    assert [row for row in rows if ">" in row[1]] == [
        ("a", "2 > 1"),
        ("a", "3 > 1"),
        ("b", "2 > 1"),
        ("c", "3 > 2"),
        ("d", "4 > 1"),
    ]
    assert [f"{user} {text}" for user, text in rows if "timer" in text] == [
        "a timer with 0",
        "a timer with 3",
        *(f"{user} timer with 0" for user in "bcd"),
    ]
    # After event time 200 all but a are quiet for more than ten milliseconds.
    assert [user for user, text in rows if text == "quiet"] == ["b", "c", "d", "e"]
    reasons = sorted(dict(letter.headers)["reason"].decode().split("\n")[0] for letter in result.dead)
    # f fails for its limit in each call from the second record on; x is the record that fails as a whole.
    assert reasons == ["limits: Limits.compare: AssertionError: five"] * 4 + [
        "limits: Limits.process_control: AssertionError: nine"
    ]


def test_rows_of_the_control_topic_have_the_event_time_of_the_watermark() -> None:
    limited = ORDERS.key_by("user").connect(control_stream()).process(Limits())
    topology = Topology("t", limited.process(Times()).sink("out"))
    orders = frame([(100, "a", 1)], "user")
    cuts: list[dict[str, Any]] = [{"control": {"a": b"1"}}, {"orders": orders}, {"control": {"a": b"2"}}]
    for shards in (1, 3):
        assert run(topology, [dict(cut) for cut in cuts], shards)["out"]["n"].to_list() == [0, 95]


class Times(ProcessFunction):
    outputs = {MAIN: {"n": pl.Int64}}

    def process(self, event: Any, context: ProcessContext) -> list[dict[str, object]]:
        return [{"n": context.event_ms}]


class Misplaced(Limits):
    def process(self, event: Any, context: ProcessContext) -> None:
        if event.n == 1:
            context.apply_to_keyed_state(self.compare)
        elif event.n == 2:
            self.limits["x"] = 1
        else:
            self.total += 1

    def process_control(self, record: Any, context: ProcessContext) -> Any:
        self.limits[record.user] = str(record.n)  # type: ignore[assignment]


def test_state_of_the_wrong_side_or_type_is_rejected() -> None:
    topology = Topology("t", ORDERS.key_by("user").connect(RULES.broadcast()).process(Misplaced()).sink("out"))
    cut = {"orders": frame([(1, "a", 1), (1, "a", 2), (1, "a", 3)], "user"), "rules": frame([(1, "a", 1)], "user")}
    reasons = sorted(dict(letter.headers)["reason"].decode() for letter in run(topology, [cut], 2).dead)
    assert "only process_control may apply a function to all keys" in reasons[0]
    assert "only process_control may write broadcast state" in reasons[1]
    assert "broadcast state limits: '1' (str) is not a whole number" in reasons[2]
    with pytest.raises(ConfigError, match="Limits: broadcast state limits has no input; connect a broadcast stream"):
        ORDERS.key_by("user").process(Limits())
