"""The options of a pattern step: its time, its key, its limits, its function and its lanes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
import polars as pl
import pytest

import streamcore as sc
from streamcore.errors import ConfigError
from streamcore.topology.patterns.pattern_stream import PatternStream
from streamcore.topology.simulation import Simulation, SimulationResult

EVENTS = sc.StreamSchema.parse(
    {
        "name": "events",
        "event_time": "at",
        "keys": [["key"]],
        "fields": {"at": "timestamp not null", "key": "string", "letter": "string", "n": "long not null"},
    }
)
#: Time in milliseconds, key and letter of an event.
Arriving = tuple[int, str, str]
A_THEN_B = sc.Pattern.begin("a").where(pl.col("letter") == "a").followed_by("b").where(pl.col("letter") == "b")
MANY_A = (
    sc.Pattern.begin("a", sc.skip_past_last_event())
    .where(pl.col("letter") == "a")
    .one_or_more()
    .greedy()
    .followed_by("b")
    .where(pl.col("letter") == "b")
)


def rows_of(events: Sequence[Arriving], first: int) -> pl.DataFrame:
    rows = [(datetime.fromtimestamp(ms / 1000, UTC), *rest, first + n) for n, (ms, *rest) in enumerate(events)]
    schema = {"at": pl.Datetime("ms", "UTC"), "key": pl.String(), "letter": pl.String(), "n": pl.Int64()}
    return pl.DataFrame(rows, schema=schema, orient="row")


def keyed(*key: str) -> sc.KeyedStream:
    return sc.source(EVENTS, sc.bounded_out_of_orderness("0ms")).key_by(*key)


def from_to(found: PatternStream) -> sc.Stream:
    return found.select("find", first=sc.matched("a").first("n"), last=sc.matched("b").last("n"))


def run(
    stream: sc.Stream,
    cuts: Sequence[Sequence[Arriving]],
    clocks_ms: Sequence[int] = (),
    *,
    restart: bool = False,
    shards: int = 2,
) -> SimulationResult:
    """Run the cuts, the last one at the end of all streams. Numbers of events go on from cut to cut."""
    topology = sc.Topology("t", stream.sink("matches"))
    simulation, result, count = Simulation(topology, shards=shards), SimulationResult(), 0
    clocks = [*clocks_ms, *[clocks_ms[-1] if clocks_ms else 0] * (len(cuts) + 1 - len(clocks_ms))]
    for events, clock_ms in zip(cuts, clocks, strict=False):
        if restart:
            simulation = Simulation(topology, shards=shards, blobs=simulation.blobs)
        result.add(simulation.cut({"events": rows_of(events, count)}, clock_ms=clock_ms))
        count += len(events)
    result.add(simulation.end(clock_ms=clocks[len(cuts)]))
    return result


def found_in(result: SimulationResult, lane: str = "matches") -> list[tuple[Any, ...]]:
    return sorted(result[lane].select("first", "last").rows(), key=str)


# --- processing time ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("restart", [False, True])
def test_in_processing_time_the_order_is_that_of_arrival_and_limits_are_by_the_clock(*, restart: bool) -> None:
    pattern = A_THEN_B.within("10ms")
    stream = from_to(keyed("key").pattern(pattern).in_processing_time().timed_out_to("over").late_to("late"))
    cuts = [[(90, "x", "a")], [(5, "x", "b")], [(1, "y", "a")], [], [(2, "y", "b")], [(3, "y", "a"), (3, "y", "b")]]
    result = run(stream, cuts, [1_000, 1_009, 1_020, 1_030, 1_031, 1_040], restart=restart)
    assert found_in(result) == [(0, 1), (4, 5)]
    assert found_in(result, "over") == [(2, None)]
    assert result["late"].is_empty()


def test_by_the_clock_the_time_of_a_match_is_over_at_its_limit() -> None:
    stream = from_to(keyed("key").pattern(A_THEN_B.within("10ms")).in_processing_time())
    for later_ms, expected in ((9, [(0, 1)]), (10, [])):
        assert found_in(run(stream, [[(1, "x", "a")], [(1, "x", "b")]], [500, 500 + later_ms])) == expected


# --- keys ---------------------------------------------------------------------------------------------------------


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("restart", [False, True])
def test_without_a_key_all_events_are_one_sequence(*, restart: bool) -> None:
    cuts: list[list[Arriving]] = [[(1, "x", "a")], [(2, "y", "b")], [(3, "y", "a"), (4, "x", "b")]]
    result = run(from_to(keyed().pattern(A_THEN_B)), cuts, restart=restart)
    assert found_in(result) == [(0, 1), (2, 3)]
    assert result["matches"].columns == ["first", "last"]
    assert found_in(run(from_to(keyed("key").pattern(A_THEN_B)), cuts, restart=restart)) == [(0, 3)]


def test_null_is_a_key_of_its_own() -> None:
    events: list[Any] = [(1, None, "a"), (2, "x", "b"), (3, None, "b")]
    assert found_in(run(from_to(keyed("key").pattern(A_THEN_B)), [events])) == [(0, 2)]


# --- limits -------------------------------------------------------------------------------------------------------

AAAB: list[Arriving] = [(1, "x", "a"), (2, "x", "a"), (3, "x", "a"), (4, "y", "a"), (5, "x", "b"), (6, "y", "b")]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("size", [1, 2, 6])
def test_beyond_the_limit_of_a_key_the_oldest_partial_matches_are_dropped_and_counted(size: int) -> None:
    cuts = [AAAB[at : at + size] for at in range(0, 6, size)]
    for restart in (False, True):
        result = run(
            from_to(keyed("key").pattern(A_THEN_B, limits=sc.PatternLimits(partials_per_key=2))), cuts, restart=restart
        )
        assert found_in(result) == [(1, 4), (2, 4), (3, 5)]
        assert result.counters["find.partials_dropped"] == 1


def test_beyond_the_limit_of_all_keys_no_partial_match_begins_in_a_cut() -> None:
    limited = from_to(keyed("key").pattern(A_THEN_B, limits=sc.PatternLimits(partials=2)))
    cuts: list[list[Arriving]] = [[(1, "x", "a")], [(2, "x", "a")], [(3, "y", "a")], [(5, "x", "b"), (6, "y", "b")]]
    result = run(limited, [*cuts, []], shards=1)
    assert found_in(result) == [(0, 3), (1, 3)]
    assert result.counters["find.partials_dropped"] == 1


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("size", [1, 2, 6])
def test_a_partial_match_that_is_too_long_is_dropped_and_counted(size: int) -> None:
    cuts = [AAAB[at : at + size] for at in range(0, 6, size)]
    result = run(from_to(keyed("key").pattern(MANY_A, limits=sc.PatternLimits(length=2))), cuts, restart=True)
    assert (2, 4) in found_in(result)
    assert (3, 5) in found_in(result)
    assert (0, 4) not in found_in(result)
    assert result.counters["find.partials_dropped"] == 2


@pytest.mark.parametrize(("limits", "expected"), [({"waiting_per_key": 2}, 2), ({"waiting": 2}, 3)])
def test_beyond_the_limit_the_latest_new_events_do_not_wait_and_are_counted(
    limits: Mapping[str, int], expected: int
) -> None:
    events: list[Arriving] = [(8, "x", "a"), (8, "x", "a"), (8, "x", "b"), (8, "y", "a"), (8, "x", "b")]
    stream = from_to(keyed("key").pattern(A_THEN_B, limits=sc.PatternLimits(**limits)))
    for restart in (False, True):
        result = run(stream, [events, [(9, "x", "b")]], restart=restart, shards=1)
        assert found_in(result) == [(0, 5), (1, 5)]
        assert result.counters["find.waiting_dropped"] == expected


# --- functions ----------------------------------------------------------------------------------------------------


def first_letters(match: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[dict[str, Any]]:
    if match["a"][0]["n"] == 2:
        raise ValueError("no match of event 2")
    yield {"first": match["a"][0]["n"], "last": None if match["b"][0]["n"] == 5 else match["b"][0]["n"]}


def wrong_columns(match: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[dict[str, Any]]:
    yield {"first": match["a"][0]["n"]}


APPLIED = {"first": pl.Int64(), "last": pl.Int64()}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("size", [1, 2, 6])
def test_a_match_on_which_the_function_raises_is_a_dead_letter_and_others_are_emitted(size: int) -> None:
    cuts = [AAAB[at : at + size] for at in range(0, 6, size)]
    result = run(keyed("key").pattern(A_THEN_B).apply(first_letters, APPLIED, name="find"), cuts, restart=True)
    assert found_in(result) == [(0, 4), (1, 4), (3, None)]
    (letter,) = result.dead
    headers = dict(letter.headers)
    assert headers["reason"] == b"find: first_letters: ValueError: no match of event 2"
    assert headers["reason_code"] == b"failed_match"
    row = orjson.loads(letter.value or b"")
    assert row["key"] == "x"
    assert {step: [event["n"] for event in events] for step, events in orjson.loads(row["match"]).items()} == {
        "a": [2],
        "b": [4],
    }
    assert result.counters["find.failed"] == 1


def test_rows_with_other_columns_than_the_declared_ones_are_dead_letters_too() -> None:
    result = run(keyed("key").pattern(A_THEN_B).apply(wrong_columns, APPLIED, name="find"), [AAAB[3:]])
    (letter,) = result.dead
    assert b"it returned a row with ['first'], and the declared columns are" in dict(letter.headers)["reason"]


def test_failed_events_and_matches_can_have_a_lane_of_their_own() -> None:
    last = sc.matched("a").last("at")
    ahead = last + (sc.candidate("at") - last) * (sc.candidate("n") * 10**12)  # beyond the year 9999 it raises
    found = keyed("key").pattern(A_THEN_B.where(ahead > last)).failed_to("events").failed_matches_to("odd")
    stream = found.apply(first_letters, APPLIED, name="find")
    result = run(stream, [[*AAAB, (7, "z", "a"), (1_000_000, "z", "b")]])
    assert result["events"].select("key", "letter", "n").rows() == [("z", "b", 7)]
    assert not result.dead
    assert result["odd"].select("key", "failed_reason").rows() == [
        ("x", "first_letters: ValueError: no match of event 2")
    ]


# --- late events --------------------------------------------------------------------------------------------------


def test_a_late_event_takes_no_part_and_goes_to_its_lane_with_the_reason() -> None:
    stream = from_to(keyed("key").pattern(A_THEN_B).late_to("late"))
    result = run(stream, [[(1, "x", "a"), (50, "x", "x")], [(2, "x", "b")], [(60, "x", "b")]])
    assert found_in(result) == [(0, 3)]
    assert result["late"].select("key", "n").rows() == [("x", 2)]
    assert result.counters["find.late"] == 1


# --- errors -------------------------------------------------------------------------------------------------------


def test_an_argument_of_another_type_is_rejected_with_what_to_write() -> None:
    odd: Any = "a then b"
    with pytest.raises(ConfigError, match=r"pattern: takes a Pattern, not a str; write such as Pattern\.begin"):
        keyed("key").pattern(odd)
    with pytest.raises(ConfigError, match=r"pattern: limits: takes a PatternLimits, not a str"):
        keyed("key").pattern(A_THEN_B, limits=odd)
    with pytest.raises(ConfigError, match=r"apply: takes a function, not .*; write a function of a match"):
        keyed("key").pattern(A_THEN_B).apply(odd, APPLIED)
    with pytest.raises(ConfigError, match=r"select: give at least one column, such as"):
        keyed("key").pattern(A_THEN_B).select("find")
    with pytest.raises(ConfigError, match=r"select: column v: the stream has no column 'w'; it has"):
        keyed("key").pattern(A_THEN_B).select("find", v=sc.matched("a").last("w"))
