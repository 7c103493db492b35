"""A user's function that fails in a window or a join gives a dead letter with its step, and affects no other key."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import polars as pl
import pytest

from streamcore.aggregates import Count
from streamcore.durations import Milliseconds
from streamcore.operators import failures
from streamcore.operators.windows.general.pane_values import WindowView
from streamcore.schema import StreamSchema
from streamcore.topology.simulation import Simulation, SimulationResult, simulate
from streamcore.topology.stream import Stream, source
from streamcore.topology.topology import Topology
from streamcore.watermark import bounded_out_of_orderness
from streamcore.windowing import AfterCount, AfterWatermark, Repeatedly, Session, Sliding, Tumbling
from streamcore.windowing.assigners import MAX_GAP_MS
from streamcore.windowing.model import Window
from streamcore.windowing.revisions import RevisionPolicy

FIELDS = {"ts": "timestamp not null", "user": "string not null", "n": "long not null"}
POISONED = ("b", "d")
COUNT = {"count": pl.Int64()}


def stream(name: str = "a", *, raw: bool = False) -> Stream:
    schema = StreamSchema.parse({"name": name, "event_time": "ts", "keys": [["user"]], "fields": FIELDS})
    return source(schema, bounded_out_of_orderness("20ms"), raw=raw)


def rows(*events: tuple[int, str, int]) -> pl.DataFrame:
    frame = pl.DataFrame([*events], schema={"ts": pl.Int64, "user": pl.String, "n": pl.Int64}, orient="row")
    return frame.with_columns(pl.col("ts").cast(pl.Datetime("ms", "UTC")))


def random_rows(seed: int, count: int = 60) -> pl.DataFrame:
    """Return rows that are out of order by up to the bound of the watermark."""
    chance = random.Random(seed)
    return rows(*((at + chance.randrange(20), chance.choice("abcde"), at) for at in range(count)))


def count_rows(view: WindowView, poisoned: tuple[str, ...] = ()) -> pl.DataFrame:
    if view.key[0] in poisoned:
        raise ValueError(f"no {view.key[0]} here")
    return pl.DataFrame({"count": [view.elements.height]})


def count_group(
    key: tuple[object, ...], window: Window, left: pl.DataFrame, right: pl.DataFrame, poisoned: tuple[str, ...] = ()
) -> pl.DataFrame:
    if key[0] in poisoned:
        raise ValueError(f"no {key[0]} here at {window.start_ms}")
    return pl.DataFrame({"user": [key[0]], "count": [left.height - right.height]})


def apply(compute: Callable[[WindowView], Any], size_ms: int = 10) -> Topology:
    return Topology(
        "t", stream().key_by("user").window(Tumbling(Milliseconds(size_ms))).apply(compute, COUNT).sink("out")
    )


def co_group(function: Callable[..., Any]) -> Topology:
    joined = stream("a").key_by("user").join(stream("b").key_by("user")).window(Sliding("20ms", "10ms"))
    return Topology("t", joined.apply(function, {"user": pl.String(), "count": pl.Int64()}).sink("out"))


def window_topology(poisoned: tuple[str, ...], kind: str) -> Topology:
    """Return one of several window programs, whose function fails for the poisoned keys."""
    if kind == "co-group":
        return co_group(partial(count_group, poisoned=poisoned))
    windows = (
        stream()
        .key_by("user")
        .window(
            {"tumbling": Tumbling("10ms"), "sliding": Sliding("20ms", "10ms"), "session": Session("5ms")}.get(
                kind, Tumbling("10ms")
            )
        )
    )
    if kind == "retracting":
        early = AfterWatermark(early=Repeatedly(AfterCount(2)), late=AfterCount(1))
        windows = windows.trigger(early).allowed_lateness("50ms").retracting()
    return Topology("t", windows.apply(partial(count_rows, poisoned=poisoned), COUNT).sink("out"))


def letters(result: SimulationResult) -> list[tuple[str, dict[str, Any]]]:
    """Return code and value of each dead letter, in an order that does not depend on shards."""
    found = [(dict(record.headers)["reason_code"].decode(), json.loads(record.value or b"")) for record in result.dead]
    return sorted(found, key=str)


def panes(result: SimulationResult, *, without: tuple[str, ...] = ()) -> list[tuple[object, ...]]:
    return sorted(result["out"].filter(~pl.col("user").is_in(without)).rows(), key=str)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tumbling", "sliding", "session", "retracting", "co-group"])
@pytest.mark.parametrize(("cut_rows", "shards"), [(3, 3), (25, 2)])
def test_failing_keys_do_not_change_the_output_of_other_keys(kind: str, cut_rows: int, shards: int) -> None:
    inputs = {"a": random_rows(1)} | ({"b": random_rows(2, 40)} if kind == "co-group" else {})
    healthy = simulate(window_topology((), kind), inputs, cut_rows=cut_rows, shards=shards)
    harmed = simulate(window_topology(POISONED, kind), inputs, cut_rows=cut_rows, shards=shards)
    assert panes(harmed) == panes(healthy, without=POISONED)
    failed = letters(harmed)
    assert {code for code, _ in failed} == {"failed_pane"}
    lost = healthy["out"].filter(pl.col("user").is_in(POISONED))
    if kind == "retracting":  # a pane that was not emitted is not retracted
        lost = lost.filter(~pl.col("is_retraction"))
    assert sorted(value["user"] for _, value in failed) == sorted(lost["user"])


@pytest.mark.slow
def test_dead_letters_do_not_depend_on_cuts_shards_and_replays() -> None:
    topology, inputs = window_topology(POISONED, "sliding"), {"a": random_rows(3)}
    expected = letters(simulate(topology, inputs))
    assert expected
    for cut_rows, shards in ((1, 3), (7, 2), (7, 2)):
        assert letters(simulate(topology, inputs, cut_rows=cut_rows, shards=shards)) == expected


def test_a_dead_letter_names_step_key_and_window_and_has_the_elements() -> None:
    result = simulate(apply(partial(count_rows, poisoned=("x",))), {"a": rows((1, "x", 1), (2, "y", 5), (3, "x", 2))})
    ((code, value),) = letters(result)
    (record,) = result.dead
    assert code == "failed_pane"
    assert dict(record.headers)["reason"] == b"window-1: count_rows: ValueError: no x here"
    assert (value["user"], value["window_start"], value["pane"], value["element_count"]) == (
        "x",
        "1970-01-01T00:00:00+00:00",
        0,
        2,
    )
    assert [(element["user"], element["n"]) for element in value["elements"]] == [("x", 1), ("x", 2)]
    assert result.counters["window-1.failed"] == 1
    assert result["out"]["user"].to_list() == ["y"]


def test_a_dead_letter_of_a_co_group_has_the_rows_of_both_sides() -> None:
    topology = co_group(partial(count_group, poisoned=("x",)))
    result = simulate(topology, {"a": rows((15, "x", 1)), "b": rows((15, "x", 2), (16, "x", 3))})
    first, second = (value for _, value in letters(result))
    assert (first["left_element_count"], first["right_element_count"]) == (1, 2)
    assert [element["n"] for element in first["right_elements"]] == [2, 3]
    assert first["window_start"] != second["window_start"]


def test_a_dead_letter_has_elements_of_every_type_that_json_can_hold() -> None:
    columns = {
        "exact": pl.col("n").cast(pl.Decimal(12, 2)),
        "listed": pl.concat_list("n"),
        "nested": pl.struct("user", "ts"),
        "day": pl.col("ts").dt.date(),
        "raw": pl.col("user").cast(pl.Binary),
        "hidden": pl.concat_list(pl.col("user").cast(pl.Binary)),
    }
    windows = stream().map(**columns).key_by("user").window(Tumbling("10ms"))
    topology = Topology("t", windows.apply(partial(count_rows, poisoned=("x",)), COUNT).sink("out"))
    ((_, value),) = letters(simulate(topology, {"a": rows((1, "x", 7))}))
    (element,) = value["elements"]
    assert (element["exact"], element["listed"], element["day"], element["raw"]) == ("7.00", [7], "1970-01-01", "x")
    assert element["nested"]["user"] == "x"
    assert "hidden" not in element


def test_a_dead_letter_of_a_large_pane_is_bounded_and_has_the_true_count() -> None:
    events = [(1, "x", n) for n in range(failures.MAX_ELEMENTS + 50)]
    ((_, value),) = letters(simulate(apply(partial(count_rows, poisoned=("x",))), {"a": rows(*events)}))
    assert value["element_count"] == len(events)
    assert [element["n"] for element in value["elements"]] == list(range(failures.MAX_ELEMENTS))


def test_a_dead_letter_of_large_elements_is_bounded_in_bytes() -> None:
    user = "x" * (failures.MAX_ELEMENT_BYTES // 3)
    topology = apply(partial(count_rows, poisoned=(user,)))
    ((_, value),) = letters(simulate(topology, {"a": rows(*((1, user, n) for n in range(9)))}))
    assert (value["element_count"], len(value["elements"])) == (9, 3)


def test_a_dead_letter_has_the_records_of_the_elements_if_the_source_is_raw() -> None:
    windows = stream(raw=True).key_by("user").window(Tumbling("10ms"))
    topology = Topology("t", windows.apply(partial(count_rows, poisoned=("x",)), COUNT).sink("out"))
    event = rows((1, "x", 1)).with_columns(pl.lit(b"the record").alias("@value"))
    ((_, value),) = letters(simulate(topology, {"a": event}))
    assert (value["elements"][0]["@value"], value["elements"][0]["@offset"]) == ("the record", 0)


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (None, "returns NoneType"),
        (5, "returns int"),
        ("ab", "returns str"),
        ({"count": 1}, "returns dict"),
        ([{"count": 1}, {}], "a row that is no mapping with the columns"),
        ([{"count": 1, "more": 2}], "a row that is no mapping with the columns"),
        ([None], "a row that is no mapping with the columns"),
        ([{"count": "one"}], "TypeError"),
        ([{"count": 1.5}], "TypeError"),
        (pl.DataFrame({"other": [1]}), "ColumnNotFoundError"),
        (pl.DataFrame({"count": ["one"]}), "InvalidOperationError"),
        (pl.DataFrame({"count": [float("nan")]}), "InvalidOperationError"),
        (pl.LazyFrame({"count": [1]}), "LazyFrame"),
    ],
)
@pytest.mark.quick_cases(3)
def test_rows_that_do_not_fit_the_declared_columns_are_a_failure(returned: object, reason: str) -> None:
    def compute(view: WindowView) -> object:
        return returned if view.key == ("x",) else [{"count": 1}]

    result = simulate(apply(compute), {"a": rows((1, "x", 1), (2, "y", 5))})
    (record,) = result.dead
    assert reason in dict(record.headers)["reason"].decode()
    assert result["out"].select("user", "count").rows() == [("y", 1)]


@pytest.mark.parametrize("returned", [None, [{"user": "x", "count": 1}], pl.LazyFrame({"user": ["x"], "count": [1]})])
def test_a_co_group_that_returns_no_frame_fails(returned: object) -> None:
    result = simulate(co_group(lambda *_: returned), {"a": rows((15, "x", 1))})
    assert [code for code, _ in letters(result)] == ["failed_pane"] * 2
    assert not result["out"].height


def test_a_function_that_changes_its_elements_does_not_change_the_dead_letter_or_later_panes() -> None:
    def spoil(view: WindowView) -> pl.DataFrame:
        view.elements.drop_in_place("n")
        raise ValueError

    ((_, value),) = letters(simulate(apply(spoil), {"a": rows((1, "x", 7))}))
    assert value["elements"][0]["n"] == 7


def test_a_window_continues_as_if_its_failed_pane_had_been_emitted() -> None:
    def fail_on_three(view: WindowView) -> pl.DataFrame:
        return pl.DataFrame({"count": [100 // (view.elements.height - 3)]})

    early = AfterWatermark(early=Repeatedly(AfterCount(1)))
    windows = stream().key_by("user").window(Tumbling("100ms")).trigger(early)
    topology = Topology("t", windows.apply(fail_on_three, COUNT).sink("out"))
    result = simulate(topology, {"a": rows(*((n, "x", n) for n in range(5)))}, cut_rows=1)
    assert result["out"].filter(pl.col("timing") == "early")["pane"].to_list() == [0, 1, 3, 4]
    assert [value["pane"] for _, value in letters(result)] == [2]


@pytest.mark.slow
def test_a_restart_between_failing_panes_changes_nothing() -> None:
    topology, events = window_topology(POISONED, "tumbling"), random_rows(4)
    whole = simulate(topology, {"a": events}, cut_rows=10, shards=2)
    result, first = SimulationResult(), Simulation(topology, shards=2)
    for start in range(0, events.height, 10):
        first = Simulation(topology, shards=2, blobs=first.blobs)
        result.add(first.cut({"a": events[start : start + 10]}))
    result.add(first.end())
    assert (panes(result), letters(result)) == (panes(whole), letters(whole))


def test_a_lane_can_take_failed_panes_instead_of_the_dead_letters() -> None:
    windows = stream().key_by("user").window(Tumbling("10ms")).failed_panes_to("broken")
    failing = windows.apply(partial(count_rows, poisoned=("x",)), COUNT)
    topology = Topology("t", failing.sink("out"), failing.side("failed_pane").select("user").sink("users"))
    result = simulate(topology, {"a": rows((1, "x", 7))})
    assert (result["broken"]["element_count"].to_list(), result["users"]["user"].to_list()) == ([1], ["x"])
    assert not result.dead


@pytest.mark.parametrize("gap_ms", [MAX_GAP_MS + 1, 2**62, 2**63 - 1])
@pytest.mark.parametrize("kind", ["plain", "early", "revised"])
def test_an_invalid_session_gap_counts_as_no_gap(kind: str, gap_ms: int) -> None:
    windows = stream().key_by("user").window(Session("5ms", "n"))
    if kind == "early":
        windows = windows.trigger(AfterWatermark(early=Repeatedly(AfterCount(9))))
    count = {"count": Count()}
    panes = windows.revise(RevisionPolicy(at_end=True), **count) if kind == "revised" else windows.aggregate(**count)
    result = simulate(Topology("t", panes.sink("out")), {"a": rows((1, "x", gap_ms), (2, "y", 5), (3, "x", 5))})
    ends = result["out"].sort("user").select("user", pl.col("window_end").dt.epoch("ms"), "count")
    assert ends.rows() == [("x", 8, 2), ("y", 7, 1)]


def test_a_fault_of_the_machine_is_not_a_dead_letter() -> None:
    def exhaust(view: WindowView) -> Mapping[str, object]:
        raise MemoryError(view.key)

    with pytest.raises(MemoryError):
        simulate(apply(exhaust), {"a": rows((1, "x", 7))})
