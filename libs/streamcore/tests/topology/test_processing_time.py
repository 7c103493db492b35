"""Windows, sessions and joins by processing time fire by the clock of the cut, also when no event comes any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.aggregates import Count, Sum
from streamcore.app import EventTime
from streamcore.schema import StreamSchema
from streamcore.topology.simulation import Simulation
from streamcore.topology.stream import Stream, source
from streamcore.topology.topology import Topology
from streamcore.watermark import bounded_out_of_orderness
from streamcore.windowing import Session, Tumbling

FIELDS = {"ts": "timestamp not null", "user": "string not null"}
SIZE_MS, GAP_MS = 10_000, 3_000
BEGIN_MS = 1_700_000_000_000
#: Time without events, with a cut a second, until every window has ended.
SILENCE = [(1_000, "")] * 11

#: Milliseconds since the cut before, and the users of its events, one character each.
Cuts = list[tuple[int, str]]
cuts = st.lists(st.tuples(st.integers(0, 7_000), st.text("abc", max_size=4)), min_size=1, max_size=12)


def stream(name: str) -> Stream:
    schema = StreamSchema.parse({"name": name, "event_time": "ts", "keys": [["user"]], "fields": FIELDS})
    return source(schema, bounded_out_of_orderness(0), time=EventTime.PROCESSING)


A = stream("a")
COUNTS = A.key_by("user").window(Tumbling(SIZE_MS)).late_to("late").aggregate("counts", n=Count())
TOPOLOGY = Topology(
    "t",
    COUNTS.sink("counts"),
    COUNTS.select("n").key_by().window(Tumbling(SIZE_MS)).aggregate("totals", n=Sum("n")).sink("totals"),
    A.key_by("user").window(Session(GAP_MS)).late_to("late").aggregate("sessions", n=Count()).sink("sessions"),
)
JOINED = Topology("j", A.key_by("user").join(stream("b").key_by("user")).left_outer().within(0, 5_000).sink("pairs"))


def rows(users: str) -> pl.DataFrame:
    """Return events of these users, the second half of them from another partition."""
    half = len(users) // 2
    places = [0] * half + [1] * (len(users) - half)
    times = [datetime(1970, 1, 1, tzinfo=UTC)] * len(users)
    frame = pl.DataFrame({"ts": times, "user": [*users], "partition": places})
    return frame.with_columns(pl.col("ts").cast(pl.Datetime("ms", "UTC")), pl.col("user").cast(pl.String))


def clocks(cuts: Cuts) -> Iterator[tuple[int, str]]:
    clock_ms = BEGIN_MS
    for step_ms, users in cuts:
        clock_ms += step_ms
        yield clock_ms, users


def panes(cuts: Cuts, shards: int) -> dict[str, list[tuple[object, ...]]]:
    """Return the panes of each lane, each with the clock of the cut that emits it."""
    simulation = Simulation(TOPOLOGY, shards=shards)
    found: dict[str, list[tuple[object, ...]]] = {"counts": [], "totals": [], "sessions": [], "late": []}
    for clock_ms, users in clocks(cuts):
        result = simulation.cut({"a": rows(users)}, clock_ms=clock_ms)
        for lane, frame in result.lanes.items():
            key = ("user",) if "user" in frame.columns else ()
            times = (pl.col("window_start", "window_end").dt.epoch("ms"), "n") if lane != "late" else ()
            found[lane] += [(clock_ms, *row) for row in frame.select(*key, *times).rows()]
    return {lane: sorted(rows_of_lane, key=str) for lane, rows_of_lane in found.items()}


def expected_counts(cuts: Cuts) -> list[tuple[object, ...]]:
    counts: Counter[tuple[str, int]] = Counter()
    for clock_ms, users in clocks(cuts):
        counts.update((user, clock_ms - clock_ms % SIZE_MS) for user in users)
    return [
        (first_clock(cuts, start_ms + SIZE_MS), user, start_ms, start_ms + SIZE_MS, n)
        for (user, start_ms), n in counts.items()
    ]


def expected_sessions(cuts: Cuts) -> list[tuple[object, ...]]:
    sessions: dict[str, list[list[int]]] = {}
    for clock_ms, users in clocks(cuts):
        for user in users:
            own = sessions.setdefault(user, [])
            if own and clock_ms - own[-1][-1] < GAP_MS:
                own[-1].append(clock_ms)
            else:
                own.append([clock_ms])
    return [
        (first_clock(cuts, times[-1] + GAP_MS), user, times[0], times[-1] + GAP_MS, len(times))
        for user, own in sessions.items()
        for times in own
    ]


def first_clock(cuts: Cuts, at_ms: int) -> int:
    """Return the clock of the first cut at ``at_ms`` or later."""
    return next(clock_ms for clock_ms, _ in clocks(cuts) if clock_ms >= at_ms)


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(cuts, st.integers(1, 4))
def test_each_window_fires_in_the_first_cut_at_its_end(busy: Cuts, shards: int) -> None:
    whole = [*busy, *SILENCE]
    found, counts = panes(whole, shards), expected_counts(whole)
    assert found["counts"] == sorted(counts, key=str)
    assert found["sessions"] == sorted(expected_sessions(whole), key=str)
    totals: Counter[tuple[object, ...]] = Counter()
    for clock_ms, _, start_ms, end_ms, n in counts:
        totals[clock_ms, start_ms, end_ms] += int(str(n))
    assert found["totals"] == sorted(((*window, n) for window, n in totals.items()), key=str), "in the same cut"
    assert not found["late"]


def test_a_join_by_processing_time_gives_up_on_a_partner_by_the_clock() -> None:
    simulation = Simulation(JOINED, shards=2)
    assert simulation.cut({"a": rows("ab")}, clock_ms=BEGIN_MS)["pairs"].is_empty()
    assert simulation.cut({"b": rows("b")}, clock_ms=BEGIN_MS + 5_000)["pairs"]["user"].to_list() == ["b"]
    assert simulation.cut({}, clock_ms=BEGIN_MS + 5_001)["pairs"]["user"].to_list() == ["a"]


#: Milliseconds since the cut before, and the user and the gap of each event of the cut; 0: the gap of the step.
GapCuts = list[tuple[int, list[tuple[str, int]]]]
gap_events = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([0, 1_000, 6_000])), max_size=3)
gap_cuts = st.lists(st.tuples(st.integers(0, 4_000), gap_events), min_size=1, max_size=12)
WITH_GAP = source(
    StreamSchema.parse(
        {"name": "g", "event_time": "ts", "keys": [["user"]], "fields": {**FIELDS, "gap": "long not null"}}
    ),
    time=EventTime.PROCESSING,
)
OWN_GAPS = Topology(
    "g", WITH_GAP.key_by("user").window(Session(GAP_MS, gap_field="gap")).aggregate("own", n=Count()).sink("sessions")
)


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(gap_cuts, st.integers(1, 3), st.booleans())
def test_a_session_by_processing_time_ends_by_the_clock_after_the_gaps_of_its_events(
    busy: GapCuts, shards: int, restarts: bool
) -> None:
    clock_ms, found, simulation = BEGIN_MS, [], Simulation(OWN_GAPS, shards=shards)
    times: dict[str, list[list[int]]] = {}  # by user: start, end and number of events of each session
    clocks_of_cuts = []
    for step_ms, events_of_cut in [*busy, *[(1_000, []) for _ in range(8)]]:
        clock_ms += step_ms
        clocks_of_cuts.append(clock_ms)
        if restarts:
            simulation = Simulation(OWN_GAPS, shards=shards, blobs=simulation.blobs)
        at = datetime(1970, 1, 1, tzinfo=UTC)
        rows_of_cut = [(at, user, gap) for user, gap in events_of_cut]
        schema = pl.Schema({"ts": pl.Datetime("ms", "UTC"), "user": pl.String(), "gap": pl.Int64()})
        result = simulation.cut({"g": pl.DataFrame(rows_of_cut, schema=schema, orient="row")}, clock_ms=clock_ms)
        panes_of_cut = result["sessions"].select("user", pl.col("window_start", "window_end").dt.epoch("ms"), "n")
        found += [(clock_ms, *row) for row in panes_of_cut.rows()]
        for user, gap in events_of_cut:
            end = clock_ms + (gap or GAP_MS)
            own = times.setdefault(user, [])
            if own and clock_ms < own[-1][1]:
                own[-1] = [own[-1][0], max(own[-1][1], end), own[-1][2] + 1]
            else:
                own.append([clock_ms, end, 1])
    wanted = [
        (next(clock for clock in clocks_of_cuts if clock >= end), user, start, end, n)
        for user, own in times.items()
        for start, end, n in own
    ]
    assert sorted(found) == sorted(wanted)
