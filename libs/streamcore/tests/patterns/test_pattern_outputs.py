"""What a pattern step does with rows that it cannot take: failing conditions and functions, limits, wrong patterns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest

import streamcore as sc
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.errors import ConfigError
from streamcore.patterns import engine
from streamcore.topology.patterns.pattern_stream import PatternStream
from streamcore.topology.simulation import Simulation
from streamcore.wire.lanes import DEAD_LETTERS, Record

T0 = 1_790_000_000_000
EVENTS = sc.StreamSchema.parse(
    {
        "name": "events",
        "event_time": "at",
        "keys": [["key"]],
        "fields": {"at": "timestamp not null", "key": "string not null", "v": "long not null", "text": "string"},
    }
)
ROWS: Mapping[str, pl.DataType] = {"values": pl.String()}
#: Too large for a float when it is multiplied so often.
HUGE = 10**18


def power(times: int) -> Any:
    """Return a value that is a whole number of any size until a float is added to it."""
    value = sc.candidate("v")
    for _ in range(times):
        value = value * sc.candidate("v")
    return value + 0.5


#: A second value of a key that is greater than the first; the comparison fails for a huge one.
RISE = (
    sc.Pattern.begin("low", sc.skip_past_last_event())
    .where(pl.col("v") < 10)
    .followed_by("high")
    .where(power(17) > sc.matched("low").last("v"))
    .within("10m")
)


def values_of(match: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[dict[str, str]]:
    yield {"values": " ".join(f"{step}:{event['v']}" for step, events in match.items() for event in events)}


def fail_on_six(match: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[dict[str, str]]:
    if any(event["v"] == 6 for events in match.values() for event in events):
        raise ValueError("six")
    yield from values_of(match)


def find(pattern: sc.Pattern, *, raw: bool = True) -> PatternStream:
    return sc.source(EVENTS, sc.bounded_out_of_orderness("0s"), raw=raw).key_by("key").pattern(pattern)


def app_of(stream: sc.Stream, blobs: Any = (), shards: int = 2) -> InProcessApp:
    return InProcessApp(
        sc.Topology("t", stream.sink("matches")).app(topics={"events": "e"}, shards=shards), dict(blobs)
    )


def record(offset: int, key: str, v: int) -> RawRecord:
    value = json.dumps({"at": T0 + 1_000 * offset, "key": key, "v": v, "text": "t"}, separators=(",  ", " : "))
    return RawRecord(0, 0, offset, value.encode(), b"k%d" % offset)


def run(stream: sc.Stream, sent: Sequence[RawRecord], size: int, *, restart: bool) -> list[Record]:
    """Return all output; time passes the last record."""
    app, output = app_of(stream), []
    end = record(600, "end", 99)
    for at in range(0, len(sent), size):
        output += app.cut(sent[at : at + size], T0)
        if restart:
            app = app_of(stream, app.blobs)
    return output + app.cut([end], T0 + 600_000)


def rows_in(output: Sequence[Record], lane: str = "matches") -> list[dict[str, Any]]:
    return sorted((json.loads(r.value or b"") for r in output if r.lane == lane), key=str)


@pytest.mark.parametrize("fewest_runs", [0, engine.FEWEST_RUNS])
@pytest.mark.parametrize(("size", "restart"), [(9, False), (1, False), (2, True)])
def test_a_condition_that_fails_makes_its_record_a_dead_letter_and_changes_no_other_match(
    fewest_runs: int, size: int, restart: bool
) -> None:
    values = [("x", 1), ("y", 2), ("x", HUGE), ("z", HUGE), ("y", 20), ("x", 30)]
    sent = [record(n, *one) for n, one in enumerate(values)]
    with patch.object(engine, "FEWEST_RUNS", fewest_runs):
        output = run(find(RISE).apply(values_of, ROWS), sent, size, restart=restart)
    assert [row["values"] for row in rows_in(output)] == ["low:1 high:30", "low:2 high:20"]
    (letter,) = [r for r in output if r.lane == DEAD_LETTERS]  # no condition of key z reads its value
    headers = {name: value.decode() for name, value in letter.headers}
    assert (letter.key, letter.value, headers["source_offset"]) == (sent[2].key, sent[2].value, "2")
    assert headers["reason"] == "pattern-1: pattern condition: OverflowError: int too large to convert to float"


def test_a_match_whose_function_fails_is_a_dead_letter_and_others_go_on() -> None:
    sent = [record(n, key, v) for n, (key, v) in enumerate([("x", 6), ("x", 20), ("x", 7), ("x", 21)])]
    output = run(find(RISE).apply(fail_on_six, ROWS), sent, 2, restart=True)
    assert [row["values"] for row in rows_in(output)] == ["low:7 high:21"]
    (letter,) = [r for r in output if r.lane == DEAD_LETTERS]
    assert "fail_on_six: ValueError: six" in dict(letter.headers)["reason"].decode()


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (sc.candidate("text") > sc.matched("low").last("v"), "cannot be computed"),
        (sc.candidate("v") + sc.matched("low").last("v"), "write a condition, which is true or false"),
        (sc.candidate("vv") > 1, "the stream has no columns ['vv']"),
        (sc.matched("low").sum("text") > sc.candidate("v"), "sum of 'text', which is String"),
    ],
)
def test_a_condition_that_its_columns_do_not_allow_is_refused(condition: Any, words: str) -> None:
    pattern = sc.Pattern.begin("low").followed_by("high").where(condition).within("10m")
    with pytest.raises(ConfigError) as error:
        find(pattern).apply(values_of, ROWS)
    assert words in str(error.value)
    assert "pattern" in str(error.value)


def rows_of(*values: tuple[str, int, int]) -> pl.DataFrame:
    """Return rows of key, second and value."""
    return pl.DataFrame(
        [{"at": T0 + 1_000 * second, "key": key, "v": v, "text": None} for key, second, v in values],
        schema={"at": pl.Int64(), "key": pl.String(), "v": pl.Int64(), "text": pl.String()},
    ).with_columns(pl.col("at").cast(pl.Datetime("ms", "UTC")))


def bounded(pattern: sc.Pattern, **limits: int) -> sc.Topology:
    keyed = sc.source(EVENTS, sc.bounded_out_of_orderness("1m")).key_by("key")
    matches = keyed.pattern(pattern, limits=sc.PatternLimits(**limits)).apply(values_of, ROWS, name="find")
    return sc.Topology("t", matches.sink("matches"))


#: Any value, then one of at least 10: as many partial matches as there are values before.
ANY_HIGH = sc.Pattern.begin("low").where(pl.col("v") < 10).followed_by_any("high").where(pl.col("v") >= 10)


def test_of_more_partial_matches_than_a_key_may_have_the_first_are_dropped_and_counted() -> None:
    rows = rows_of(("x", 0, 1), ("x", 1, 2), ("x", 2, 3), ("y", 2, 4), ("x", 3, 10), ("y", 3, 11))
    result = sc.simulate(bounded(ANY_HIGH.within("10m"), partials_per_key=2), {"events": rows})
    assert sorted(result["matches"]["values"]) == ["low:2 high:10", "low:3 high:10", "low:4 high:11"]
    assert result.counters["find.partials_dropped"] == 1


def test_a_partial_match_with_more_events_than_a_match_may_have_is_dropped_and_counted() -> None:
    lows = sc.Pattern.begin("low").where(pl.col("v") < 10).one_or_more().greedy()
    pattern = lows.followed_by("high").where(pl.col("v") >= 10).within("10m")
    rows = rows_of(*[("x", second, second) for second in range(1, 5)], ("x", 5, 10))
    result = sc.simulate(bounded(pattern, length=3), {"events": rows})
    assert sorted(result["matches"]["values"]) == ["low:3 low:4 high:10", "low:4 high:10"]
    assert result.counters["find.partials_dropped"] == 2


def test_of_more_events_than_may_wait_for_the_watermark_the_latest_are_dropped_and_counted() -> None:
    simulation = Simulation(bounded(ANY_HIGH.within("10m"), waiting_per_key=2))
    result = simulation.cut({"events": rows_of(("x", 2, 10), ("x", 3, 11), ("x", 1, 1), ("y", 3, 3))})
    result.add(simulation.end())
    assert result["matches"]["values"].to_list() == ["low:1 high:10"]
    assert result.counters["find.waiting_dropped"] == 1


def test_in_processing_time_events_count_in_order_of_arrival_and_their_time_is_that_of_the_clock() -> None:
    stream = find(ANY_HIGH.within("10s"), raw=False).in_processing_time().apply(values_of, ROWS)
    topology = sc.Topology("t", stream.sink("matches"))
    simulation = Simulation(topology)
    result = simulation.cut({"events": rows_of(("x", 60, 1))}, clock_ms=T0)
    result.add(simulation.cut({"events": rows_of(("x", 0, 10))}, clock_ms=T0 + 5_000))  # an earlier event time
    simulation = Simulation(topology, blobs=simulation.blobs)
    result.add(simulation.cut({"events": rows_of(("x", 1, 11))}, clock_ms=T0 + 10_000))  # too late for the first
    result.add(simulation.end(clock_ms=T0 + 20_000))
    assert result["matches"]["values"].to_list() == ["low:1 high:10"]


def test_a_pattern_of_a_stream_without_key_looks_at_all_events() -> None:
    matches = sc.source(EVENTS, sc.bounded_out_of_orderness("0s")).key_by().pattern(ANY_HIGH.within("10m"))
    topology = sc.Topology("t", matches.apply(values_of, ROWS).sink("matches"))
    result = sc.simulate(topology, {"events": rows_of(("x", 0, 1), ("y", 1, 10))}, shards=3)
    assert result["matches"]["values"].to_list() == ["low:1 high:10"]
