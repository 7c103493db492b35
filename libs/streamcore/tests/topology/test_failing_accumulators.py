"""An accumulator that fails loses the element, or the pane, for which it fails, and nothing else."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, ClassVar

import polars as pl
import pytest

from streamcore.aggregates import Accumulator, Count, Custom, RowAccumulator
from streamcore.errors import ConfigError
from streamcore.operators.rolling.totals import RollingSpan
from streamcore.schema import StreamSchema
from streamcore.topology.simulation import Simulation, SimulationResult, simulate
from streamcore.topology.stream import KeyedStream, Stream, source
from streamcore.topology.topology import Topology
from streamcore.topology.windowed_stream import WindowedStream
from streamcore.watermark import bounded_out_of_orderness
from streamcore.windowing import AfterCount, AfterWatermark, KeepCount, Repeatedly, Session, Sliding, Tumbling
from streamcore.windowing.revisions import RevisionPolicy

SCHEMA = StreamSchema.parse(
    {
        "name": "a",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string not null", "n": "long not null"},
    }
)
A = source(SCHEMA, bounded_out_of_orderness("20ms"))
POISONED = ("b", "d")
#: What the poisoned keys have in ``n``; the other keys have less.
POISON = 1_000


class Total(Accumulator):
    """A sum."""

    columns: ClassVar = {"n": pl.Int64()}
    state: ClassVar[pl.DataType] = pl.Int64()
    returns: ClassVar = pl.Int64()

    def create(self) -> Any:
        return 0

    def add(self, state: Any, rows: pl.DataFrame) -> Any:
        return state + rows["n"].sum()

    def merge(self, left: Any, right: Any) -> Any:
        return left + right

    def subtract(self, total: Any, part: Any) -> Any:
        return total - part

    def result(self, state: Any) -> Any:
        return state


class FailsToAdd(Total):
    def add(self, state: Any, rows: pl.DataFrame) -> Any:
        if (rows["n"] >= POISON).any():
            raise ValueError("poison")
        return super().add(state, rows)


class FailsToAddARow(RowAccumulator, Total):
    def add_row(self, state: Any, *values: Any) -> Any:
        return state + 10 // (values[0] < POISON) - 10 + values[0]


class FailsToMerge(Total):
    def merge(self, left: Any, right: Any) -> Any:
        if max(left, right) >= POISON:
            raise ValueError("poison")
        return left + right


class HasNoResult(Total):
    def result(self, state: Any) -> Any:
        if state >= POISON:
            raise ValueError("poison")
        return state


class Spoils(Total):
    """Changes its state in place, and then fails."""

    state: ClassVar[pl.DataType] = pl.List(pl.Int64())

    def create(self) -> Any:
        return []

    def add(self, state: Any, rows: pl.DataFrame) -> Any:
        for n in rows["n"]:
            state.append(n)
            if n >= POISON:
                raise ValueError("poison")
        return state

    def result(self, state: Any) -> Any:
        return sum(state)


class FailsToAddAndToMerge(FailsToMerge):
    """Fails to add 7, and to merge the poison."""

    def add(self, state: Any, rows: pl.DataFrame) -> Any:
        if (rows["n"] == 7).any():
            raise ValueError("seven")
        return super().add(state, rows)


EARLY = AfterWatermark(early=Repeatedly(AfterCount(2)), late=AfterCount(1))
WINDOWS: dict[str, Callable[[KeyedStream], WindowedStream]] = {
    "tumbling": lambda keyed: keyed.window(Tumbling("10ms")),
    "sliding": lambda keyed: keyed.window(Sliding("20ms", "10ms")),
    "late": lambda keyed: keyed.window(Sliding("20ms", "10ms")).allowed_lateness("30ms"),
    "session": lambda keyed: keyed.window(Session("5ms")),
    "retracting": lambda keyed: keyed.window(Session("5ms")).trigger(EARLY).allowed_lateness("30ms").retracting(),
    "evicting": lambda keyed: keyed.window(Tumbling("10ms")).evict(KeepCount(2)),
}
PROGRAMS = [*WINDOWS, "revised", "rolling"]


def program(kind: str, accumulator: Accumulator, rows: Stream = A) -> Topology:
    keyed, total = rows.key_by("user"), Custom(accumulator)
    if kind == "rolling":
        return Topology("t", keyed.rolling(RollingSpan("s", "20ms", "10ms"), total=total).sink("out"))
    if kind == "revised":
        revised = keyed.window(Session("5ms")).revise(RevisionPolicy(at_end=True), total=total, count=Count())
        return Topology("t", revised.sink("out"))
    return Topology("t", WINDOWS[kind](keyed).aggregate(total=total, count=Count()).sink("out"))


def rows(*events: tuple[int, str, int]) -> pl.DataFrame:
    frame = pl.DataFrame([*events], schema={"ts": pl.Int64, "user": pl.String, "n": pl.Int64}, orient="row")
    return frame.with_columns(pl.col("ts").cast(pl.Datetime("ms", "UTC")))


def disordered_times(chance: random.Random, count: int = 60) -> list[int]:
    """Return event times that are out of order by up to the bound of the watermark."""
    return [at + chance.randrange(20) for at in range(count)]


def letters(result: SimulationResult) -> list[tuple[str, str, dict[str, Any]]]:
    """Return code, reason and value of each dead letter, in an order that does not depend on shards."""
    headers = [{name: value.decode() for name, value in record.headers} for record in result.dead]
    values = [json.loads(record.value or b"") for record in result.dead]
    return sorted(((h["reason_code"], h["reason"], v) for h, v in zip(headers, values, strict=True)), key=str)


def panes(result: SimulationResult, *, without: tuple[str, ...] = ()) -> list[tuple[object, ...]]:
    out = result["out"]
    return sorted(out.filter(~pl.col("user").is_in(without)).rows(), key=str) if out.width else []


@pytest.mark.slow
@pytest.mark.parametrize("kind", PROGRAMS)
@pytest.mark.parametrize(("cut_rows", "shards"), [(3, 3), (25, 2)])
def test_an_element_on_which_add_fails_is_a_dead_letter_and_does_not_change_the_rest(
    kind: str, cut_rows: int, shards: int
) -> None:
    chance = random.Random(1)
    events = rows(*((at, chance.choice("abc"), chance.choice((1, 2, POISON))) for at in disordered_times(chance)))
    harmed = simulate(program(kind, FailsToAdd()), {"a": events}, cut_rows=cut_rows, shards=shards)
    healthy = A.filter(pl.col("n") < POISON)
    expected = simulate(program(kind, Total(), healthy), {"a": events}, cut_rows=cut_rows, shards=shards)
    assert panes(harmed) == panes(expected)
    found = letters(harmed)
    assert {(code, reason.split(": ", 1)[1]) for code, reason, _ in found} == {
        ("failed", "total: FailsToAdd.add: ValueError: poison")
    }
    bad = events.filter(pl.col("n") >= POISON)
    assert sorted(value["user"] for _, _, value in found) == sorted(bad["user"])
    assert {value["n"] for _, _, value in found} == {POISON}


@pytest.mark.slow
@pytest.mark.parametrize("kind", PROGRAMS)
def test_failing_keys_do_not_change_the_output_of_other_keys(kind: str) -> None:
    chance = random.Random(2)
    users = [chance.choice("abcde") for _ in range(60)]
    pairs = zip(disordered_times(chance), users, strict=True)
    events = rows(*((at, user, POISON if user in POISONED else 1) for at, user in pairs))
    healthy = simulate(program(kind, Total()), {"a": events}, cut_rows=3, shards=3)
    for accumulator in (HasNoResult(), FailsToMerge()):
        harmed = simulate(program(kind, accumulator), {"a": events}, cut_rows=3, shards=3)
        assert panes(harmed, without=POISONED) == panes(healthy, without=POISONED)
        found = letters(harmed)
        if kind != "evicting" or isinstance(accumulator, HasNoResult):  # a pane that is recomputed is not merged
            assert found
        assert {code for code, _, _ in found} <= {"failed_pane"}
        assert {value["user"] for _, _, value in found} <= {*POISONED}


def test_the_dead_letter_of_a_failed_pane_has_its_key_and_window() -> None:
    result = simulate(program("tumbling", HasNoResult()), {"a": rows((1, "x", POISON), (2, "y", 5))})
    ((code, reason, value),) = letters(result)
    assert (code, reason) == ("failed_pane", "window-1: total: HasNoResult.result: ValueError: poison")
    assert (value["user"], value["window_end"], value["pane"]) == ("x", "1970-01-01T00:00:00.010+00:00", 0)
    assert result["out"].select("user", "total").rows() == [("y", 5)]
    assert result.counters["window-1.failed"] == 1


def test_a_pane_that_failed_stays_failed_across_a_restart() -> None:
    topology = program("tumbling", FailsToMerge())
    simulation, results = Simulation(topology), []
    for event in ((1, "x", POISON), (2, "x", 1), (3, "x", 1), (4, "y", 1)):
        simulation = Simulation(topology, blobs=simulation.blobs)
        results.append(simulation.cut({"a": rows(event)}))
    last = Simulation(topology, blobs=simulation.blobs).end()
    assert not any(result.dead for result in results)
    ((_, reason, value),) = letters(last)
    assert (reason, value["user"]) == ("window-1: total: FailsToMerge.merge: ValueError: poison", "x")
    assert last["out"]["user"].to_list() == ["y"]


def test_a_failed_rolling_total_recovers_when_its_rows_expire_even_after_a_restart() -> None:
    topology = program("rolling", FailsToMerge())
    events = [rows((1, "x", POISON)), rows((2, "x", 1)), rows((15, "x", 2)), rows((45, "y", 1)), rows((46, "x", 3))]
    simulation, totals = Simulation(topology), []
    restarted, totals_restarted = Simulation(topology), []
    for event in events:
        totals.append(simulation.cut({"a": event}))
        restarted = Simulation(topology, blobs=restarted.blobs)
        totals_restarted.append(restarted.cut({"a": event}))
    for one, other in zip(totals, totals_restarted, strict=True):
        assert (panes(one), letters(one)) == (panes(other), letters(other))
    assert letters(totals[0])
    assert totals[-1]["out"].filter(user="x")["total_s"].to_list() == [5]


def test_an_accumulator_that_changes_its_state_before_it_fails_loses_only_the_element() -> None:
    result = simulate(program("tumbling", Spoils()), {"a": rows((1, "x", 1), (2, "x", POISON), (3, "x", 2))})
    assert result["out"].select("total", "count").rows() == [(3, 2)]
    assert [code for code, _, _ in letters(result)] == ["failed"]


def test_a_failing_row_accumulator_loses_only_the_row() -> None:
    result = simulate(program("tumbling", FailsToAddARow()), {"a": rows((1, "x", 1), (2, "x", POISON), (3, "x", 2))})
    assert result["out"].select("total", "count").rows() == [(3, 2)]
    assert [value["n"] for _, _, value in letters(result)] == [POISON]


@pytest.mark.parametrize(
    ("method", "returned", "code"),
    [
        ("add", None, "failed_pane"),  # None is a state; the result of it fails
        ("add", "text", "failed"),
        ("add", 1.5, "failed"),
        ("merge", "text", "failed_pane"),
        ("result", "text", "failed_pane"),
        ("result", float("nan"), "failed_pane"),
        ("result", [1], "failed_pane"),
    ],
)
@pytest.mark.quick_cases(2)
def test_a_value_of_a_wrong_type_is_a_failure(
    method: str, returned: object, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(Total):
        def result(self, state: Any) -> Any:
            return state + 1

    monkeypatch.setattr(Wrong, method, lambda *_: returned)
    result = simulate(program("tumbling", Wrong()), {"a": rows((1, "x", 1), (2, "x", 1))}, cut_rows=1)
    assert {found for found, _, _ in letters(result)} == {code}
    assert not panes(result)


def test_an_accumulator_whose_create_fails_is_rejected_where_it_is_written() -> None:
    class CannotBegin(Total):
        def create(self) -> Any:
            return "nothing"

    with pytest.raises(ConfigError, match=r"Custom\(CannotBegin\): CannotBegin\.create: TypeError"):
        program("tumbling", CannotBegin())


def test_a_dead_letter_has_the_whole_element_and_its_record() -> None:
    raw = source(SCHEMA, bounded_out_of_orderness("20ms"), raw=True)
    event = rows((1, "x", POISON)).with_columns(pl.lit(b"the record").alias("@value"))
    (letter,) = simulate(program("tumbling", FailsToAdd(), raw), {"a": event}).dead
    assert (letter.value, dict(letter.headers)["source_offset"]) == (b"the record", b"0")


def test_failed_elements_and_failed_panes_have_a_lane_each() -> None:
    windows = A.key_by("user").window(Tumbling("10ms")).failed_to("elements").failed_panes_to("panes")
    topology = Topology("t", windows.aggregate(total=Custom(FailsToAddAndToMerge())).sink("out"))
    result = simulate(topology, {"a": rows((1, "a", 1), (2, "a", 7), (1, "b", POISON), (2, "b", POISON))}, cut_rows=1)
    assert result["out"]["total"].to_list() == [1]
    assert result["elements"].select("user", "n").rows() == [("a", 7)]
    assert result["panes"]["user"].to_list() == ["b"]
    assert not result.dead
