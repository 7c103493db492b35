"""Topologies in this process: cuts, shards, restarts, dead letters, control records and late rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.aggregates import Aggregate, Max, Sum
from streamcore.errors import ConfigError, CorruptState
from streamcore.keyed import ProcessContext, ProcessFunction
from streamcore.operators.base import MAIN, CutTime, Ports
from streamcore.schema import EVENT_MS, StreamSchema
from streamcore.topology.control_rows import SCHEMA as CONTROL
from streamcore.topology.simulation import Simulation, simulate
from streamcore.topology.stream import control_stream, operate, source
from streamcore.topology.topology import Topology
from streamcore.watermark import END_OF_TIME_MS, bounded_out_of_orderness
from streamcore.windowing import Sliding, Tumbling
from tests.harness.apps.running_sums import MakeRunningSums, RunningSums

SCHEMA = StreamSchema.parse(
    {
        "name": "a",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string", "n": "long"},
    }
)
A = source(SCHEMA, bounded_out_of_orderness("10ms"))
SUMS = operate([A.key_by("user")], "sums", MakeRunningSums("user", "n"))
TOPOLOGY = Topology("t", SUMS.sink("out"))


def rows(*events: tuple[int, str, int]) -> pl.DataFrame:
    frame = pl.DataFrame([*events], schema={"ts": pl.Int64, "user": pl.String, "n": pl.Int64}, orient="row")
    return frame.with_columns(pl.col("ts").cast(pl.Datetime("ms", "UTC")))


events = st.lists(st.tuples(st.integers(0, 100), st.sampled_from("abc"), st.integers(0, 9)), max_size=40)


def totals(frame: pl.DataFrame) -> list[tuple[object, ...]]:
    return sorted(frame.select("user", "total").rows())


@settings(deadline=None, max_examples=30)
@given(events, st.integers(1, 20), st.integers(1, 4))
def test_neither_cuts_nor_shards_change_the_output(
    found: list[tuple[int, str, int]], cut_rows: int, shards: int
) -> None:
    whole = simulate(TOPOLOGY, {"a": rows(*found)})
    assert totals(simulate(TOPOLOGY, {"a": rows(*found)}, cut_rows=cut_rows, shards=shards)["out"]) == totals(
        whole["out"]
    )


def test_another_simulation_continues_from_the_state_of_the_first() -> None:
    first = Simulation(TOPOLOGY, shards=2)
    first.cut({"a": rows((1, "x", 5), (2, "y", 7))})
    second = Simulation(TOPOLOGY, shards=2, blobs=first.blobs)
    assert totals(second.cut({"a": rows((3, "x", 1))})["out"]) == [("x", 6)]


def test_operators_see_the_watermark_of_the_previous_cut_and_judge_late_rows_themselves() -> None:
    topology = Topology("t", SUMS.sink("out"), SUMS.side("late").sink("late"))
    simulation = Simulation(topology)
    simulation.cut({"a": rows((100, "x", 1))})
    result = simulation.cut({"a": rows((200, "x", 1), (89, "y", 1), (90, "z", 1))})
    assert set(result["out"]["watermark_ms"]) == {90}
    assert result["late"]["user"].to_list() == ["y"]


def test_a_row_on_which_a_function_fails_is_a_dead_letter_and_affects_no_other() -> None:
    whole = A.map(n=pl.col("user").str.to_integer())
    result = simulate(Topology("t", whole.sink("out")), {"a": rows((1, "7", 0), (2, "x", 0), (3, "8", 0), (4, "y", 0))})
    assert result["out"]["n"].to_list() == [7, 8]
    assert [dict(record.headers)["reason_code"] for record in result.dead] == [b"failed"] * 2
    assert b"map-1" in dict(result.dead[0].headers)["reason"]
    assert b'"user":"x"' in (result.dead[0].value or b"")


class Inverse(ProcessFunction):
    """Fails on zero."""

    outputs = {MAIN: {"user": pl.String(), "inverse": pl.Int64()}}

    def process(self, event, context):  # type: ignore[no-untyped-def]
        yield {"user": event.user, "inverse": 100 // event.n}


def test_dead_letters_of_every_cause_have_one_form() -> None:
    keyed = A.key_by("user").process(Inverse(), name="inverse")
    once = A.key_by("user").deduplicate("10ms", name="once")
    simulation = Simulation(Topology("t", keyed.sink("out"), once.sink("once")))
    simulation.cut({"a": rows((100, "x", 4))})
    result = simulation.cut({"a": rows((101, "y", 0), (1, "z", 5))})
    assert result["out"].rows() == [("z", 20)]
    split_letters = [(dict(record.headers), record.value) for record in result.dead]
    assert [headers["reason_code"] for headers, _ in split_letters] == [b"failed", b"late"]
    assert [headers["reason"].split(b":")[0] for headers, _ in split_letters] == [b"inverse", b"once"]
    assert b'"n":0' in (split_letters[0][1] or b"")
    assert b"failed_reason" not in (split_letters[0][1] or b"")


def test_a_function_can_return_several_rows_for_one() -> None:
    def split_letters(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(letter=pl.col("user").str.split("")).explode("letter")

    parts = A.flat_map(split_letters)
    summed = operate([parts.key_by("letter")], "sums", MakeRunningSums("letter", "n"))
    result = simulate(Topology("t", summed.sink("out")), {"a": rows((1, "ab", 2), (2, "b", 3))}, shards=3)
    assert sorted(result["out"].select("letter", "total").rows()) == [("a", 2), ("b", 2), ("b", 5)]


def test_rows_can_name_their_partition() -> None:
    simulation = Simulation(TOPOLOGY)
    first = rows((100, "x", 1), (50, "y", 1)).with_columns(partition=pl.Series([0, 1]))
    simulation.cut({"a": first})
    assert set(simulation.cut({"a": rows((300, "x", 1))})["out"]["watermark_ms"]) == {40}


def test_the_result_has_the_counters_of_the_operators() -> None:
    assert simulate(TOPOLOGY, {"a": rows((1, "x", 1), (2, "y", 1))}).counters == {"sums-1.rows": 2}


class Listener(RunningSums):
    """Outputs the control records and the time that it received."""

    heard: Sequence[tuple[object, ...]] = ()
    times: Sequence[CutTime] = ()

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        _, control = inputs
        assert {**CONTROL, EVENT_MS: pl.Int64}.items() <= control.schema.items()
        return {MAIN: control.with_columns(next_ms=pl.lit(time.next_watermark_ms, pl.Int64))}

    @property
    def output_delay_ms(self) -> int:
        return 30


def listener() -> Listener:
    return Listener("user", "n")


def test_control_records_reach_every_shard_of_every_stage() -> None:
    first = operate([A.key_by("user")], "listen", listener, control_input=True)
    second = operate([SUMS.select("total").key_by("total")], "listen", listener, control_input=True)
    topology = Topology("t", first.sink("first"), second.sink("second"))
    result = Simulation(topology, shards=2).cut({}, control={"k": b"1", "gone": None})
    for lane in ("first", "second"):
        heard = result[lane].select("key", "value").rows()
        assert heard == [("k", "1"), ("gone", None)] * 2


class Allowed(ProcessFunction):
    """Passes the events of users that a control record names, with the text of that record."""

    outputs = {MAIN: {"user": pl.String, "said": pl.String}}

    def process_control(self, record: Any, context: ProcessContext) -> None:
        assert record.value != "\\xff", "no text"
        context.broadcast[record.key] = record.value

    def process(self, event: Any, context: ProcessContext) -> Iterator[dict[str, object]]:
        if event.user in context.broadcast:
            yield {"user": event.user, "said": context.broadcast[event.user]}


def test_a_keyed_function_receives_control_records_before_events_and_rejects_invalid_text() -> None:
    allowed = A.key_by("user").connect(control_stream()).process(Allowed(), failed_control_to="failed")
    simulation = Simulation(Topology("t", allowed.sink("out")))
    events = rows((1, "x", 1), (2, "y", 1))
    result = simulation.cut({"a": events}, control={"x": "é".encode(), "y": b"\xff"})
    assert result["out"].rows() == [("x", "é")]
    assert result["failed"].select("key", "value").rows() == [("y", "\\xff")]


def test_the_watermark_is_delayed_behind_an_operator_that_holds_rows_back() -> None:
    held = operate([A.key_by("user")], "listen", listener, control_input=True)
    after = operate([held.key_by("key")], "listen", listener, control_input=True)
    topology = Topology("t", held.sink("held"), after.sink("after"))
    simulation = Simulation(topology)
    result = simulation.cut({"a": rows((100, "x", 1))}, control={"k": None})
    assert (result["held"]["next_ms"].item(), result["after"]["next_ms"].item()) == (90, 60)
    assert simulation.end().lanes == {}
    assert topology.plan().stages[-1].operators[-1].delay_ms == 30


def test_the_end_of_the_stream_reaches_every_operator() -> None:
    held = operate([A.key_by("user")], "listen", listener, control_input=True)
    after = operate([held.key_by("key")], "listen", listener, control_input=True)
    simulation = Simulation(Topology("t", after.sink("after")))
    simulation.cut({"a": rows((100, "x", 1))})
    simulation.end()
    assert simulation.cut({}, control={"k": None})["after"]["next_ms"].item() == END_OF_TIME_MS


def test_the_plan_shows_shuffles_and_state() -> None:
    assert TOPOLOGY.plan().text() == (
        "plan of t\n"
        "  reads   a\n"
        "  stage 1\n"
        "    shuffle sums-1.0 by user: ts, user, n (from level 0)\n"
        "    sums sums-1: watermark of a\n"
        "      state sums-1/sums\n"
        "  writes  out, deadletters\n"
    )


def test_a_stream_without_a_reader_is_rejected() -> None:
    with pytest.raises(ConfigError, match="has no source 'b'"):
        simulate(TOPOLOGY, {"b": rows((1, "x", 1))})
    with pytest.raises(ConfigError, match="stream a: the rows have no column 'user'"):
        simulate(TOPOLOGY, {"a": rows((1, "x", 1)).drop("user")})


def test_state_without_an_operator_is_not_dropped_silently() -> None:
    first = Simulation(TOPOLOGY)
    first.cut({"a": rows((1, "x", 5))})
    renamed = operate([A.key_by("user")], "sums", MakeRunningSums("user", "n"), name="other")
    with pytest.raises(CorruptState, match="no operator has the stored state 'sums-1/sums'"):
        Simulation(Topology("t", renamed.sink("out")), blobs=first.blobs).cut({})


def test_state_of_another_number_of_shards_is_rejected() -> None:
    first = Simulation(TOPOLOGY, shards=2)
    first.cut({"a": rows((1, "x", 5), (2, "y", 7))})
    for shards in (1, 5):
        with pytest.raises(ConfigError, match=f"app t: it has 2 shards, the app is set to {shards}; set it to 2"):
            Simulation(TOPOLOGY, shards=shards, blobs=first.blobs)


def test_state_of_a_removed_stage_is_rejected() -> None:
    by_length = SUMS.map(length=pl.col("user").str.len_chars().cast(pl.String)).key_by("length")
    twice = operate([by_length], "sums", MakeRunningSums("length", "total"))
    first = Simulation(Topology("t", twice.sink("out")))
    first.cut({"a": rows((1, "x", 5))})
    with pytest.raises(ConfigError, match="app t: it has 2 keyed stages, the app has 1; continue with the program"):
        Simulation(TOPOLOGY, blobs=first.blobs)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"n": Sum("n"), "most": Max("n")}, "column most.* is not stored"),
        ({"n": Sum("x")}, "column n.* is not stored"),
    ],
)
def test_state_of_other_aggregates_is_rejected(changed: dict[str, Aggregate], message: str) -> None:
    keyed = A.map(x=pl.col("n").cast(pl.Float64)).key_by("user").window(Tumbling(1_000))
    first = Simulation(Topology("t", keyed.aggregate("w", n=Sum("n")).sink("out")))
    first.cut({"a": rows((1, "x", 5))})
    second = Simulation(Topology("t", keyed.aggregate("w", **changed).sink("out")), blobs=first.blobs)
    with pytest.raises(CorruptState, match=f"state w/.*{message}.* so another program wrote it"):
        second.cut({})


def test_state_of_other_sources_is_rejected() -> None:
    first = Simulation(TOPOLOGY)
    first.cut({"a": rows((1, "x", 5))})
    fields = {"ts": "timestamp not null", "user": "string"}
    b = source(StreamSchema.parse({"name": "b", "event_time": "ts", "keys": [["user"]], "fields": fields}))
    second = Simulation(Topology("t", SUMS.sink("out"), b.sink("b")), blobs=first.blobs)
    with pytest.raises(CorruptState, match="the state has 1 groups of sources with one watermark, the app 2"):
        second.cut({})


def test_a_lane_without_rows_has_its_columns_and_an_unknown_lane_is_rejected() -> None:
    result = Simulation(Topology("t", SUMS.sink("out"), SUMS.side("late").sink("late"))).cut({})
    for lane, port in (("out", SUMS), ("late", SUMS.side("late"))):
        assert (result[lane].height, dict(result[lane].schema)) == (0, dict(port.schema))
    with pytest.raises(ConfigError, match=r"has no lane 'lost'; it has \['late', 'out'\], and dead letters in .dead"):
        _ = result["lost"]
    simulation = Simulation(Topology("t", source(SCHEMA, raw=True).sink("out")))
    columns = simulation.cut({})["out"].columns
    assert simulation.cut({"a": rows((1, "x", 5))})["out"].columns == columns == ["ts", "user", "n"]


def test_an_element_is_late_once_for_each_sliding_window_that_does_not_take_it() -> None:
    windows = A.key_by("user").window(Sliding("40ms", "10ms")).late_to("late").aggregate(n=Sum("n"))
    simulation = Simulation(Topology("t", windows.sink("out")))
    simulation.cut({"a": rows((100, "y", 1))})
    late = simulation.cut({"a": rows((75, "x", 5))})["late"]
    taken = simulation.end()["out"].filter(user="x")
    assert (late["n"].to_list(), taken["n"].to_list()) == ([5, 5], [5, 5])
