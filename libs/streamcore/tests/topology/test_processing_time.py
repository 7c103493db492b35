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
