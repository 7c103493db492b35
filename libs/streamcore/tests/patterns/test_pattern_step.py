"""The step ``pattern`` of a topology: equal results for any disorder, cuts, shards and restarts."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

import streamcore as sc
from streamcore.topology.simulation import Simulation, SimulationResult
from tests.harness.patterns.brute_force import BruteForce, Event
from tests.harness.patterns.generated import Case, generate, seeds

#: How many patterns run as a topology; each costs some milliseconds for every cut.
PATTERNS = int(os.environ.get("HEADGATE_PATTERNS", "300")) // 5
DISORDER_MS = 3
KEYS = ("x", "y", "z")
EVENTS = sc.StreamSchema.parse(
    {
        "name": "events",
        "event_time": "at",
        "keys": [["key"]],
        "fields": {
            "at": "timestamp not null",
            "key": "string not null",
            "letter": "string",
            "v": "long",
            "number": "long not null",
        },
    }
)
ROWS = pl.Schema(
    {
        "key": pl.String(),
        "letter": pl.String(),
        "v": pl.Int64(),
        "number": pl.Int64(),
        "at": pl.Datetime("ms", "UTC"),
    }
)
Found = tuple[str, tuple[tuple[str, int], ...]]


def taken(match: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[dict[str, str]]:
    """Return a match as text: steps and the numbers of events, in order."""
    pairs = sorted((event["number"], step) for step, events in match.items() for event in events)
    yield {"taken": " ".join(f"{step}:{number}" for number, step in pairs)}


def topology(case: Case) -> sc.Topology:
    events = sc.source(EVENTS, sc.bounded_out_of_orderness(f"{DISORDER_MS}ms"))
    found = events.key_by("key").pattern(case.pattern).timed_out_to("timed_out")
    return sc.Topology("patterns", found.apply(taken, {"taken": pl.String()}, name="find").sink("matches"))


def rows_of(events: Iterable[tuple[str, int, Event]]) -> pl.DataFrame:
    rows = [(key, letter, v, number, datetime.fromtimestamp(ms / 1000, UTC)) for key, number, (ms, letter, v) in events]
    return pl.DataFrame(rows, schema=ROWS, orient="row")


def disordered(rng: random.Random, streams: Mapping[str, Sequence[Event]]) -> list[tuple[str, int, Event]]:
    """Return the events of all keys, each at most ``DISORDER_MS`` behind one before it; equal times stay in order."""
    events = [(event[0], n, key, event) for key, stream in streams.items() for n, event in enumerate(stream)]
    delay = {(key, ms): ms + rng.uniform(0, DISORDER_MS) for ms, _, key, _ in events}
    events.sort(key=lambda e: (delay[e[2], e[0]], e[1]))
    return [(key, number, event) for _, number, key, event in events]


def run(case: Case, rng: random.Random, arriving: Sequence[tuple[str, int, Event]], *, shards: int) -> SimulationResult:
    """Run the topology in random cuts, with a restart behind some of them."""
    simulation = Simulation(topology(case), shards=shards)
    result = SimulationResult()
    at = 0
    while at < len(arriving):
        size = rng.randint(1, 6)
        result.add(simulation.cut({"events": rows_of(arriving[at : at + size])}))
        at += size
        if rng.random() < 0.4:
            simulation = Simulation(topology(case), shards=shards, blobs=simulation.blobs)
    result.add(simulation.end())
    return result


def found_in(rows: pl.DataFrame) -> list[Found]:
    def parse(text: str) -> tuple[tuple[str, int], ...]:
        pairs = [pair.rsplit(":", 1) for pair in text.split()]
        return tuple((step, int(number)) for step, number in pairs)

    return [(key, parse(text)) for key, text in rows.select("key", "taken").rows()]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_matches_do_not_depend_on_disorder_cuts_shards_and_restarts(part: int) -> None:
    for seed in seeds(part, 4, PATTERNS):
        case, rng = generate(seed), random.Random(seed)
        streams = {key: generate(seed + 1_000_000 * n).events for n, key in enumerate(KEYS)}
        arriving = disordered(rng, streams)
        result = run(case, rng, arriving, shards=rng.choice([1, 2, 3]))
        matches, timed_out = found_in(result["matches"]), {*found_in(result["timed_out"])}
        for key, events in streams.items():
            reference = BruteForce(case.items, events, case.within_ms, end_ms=2**61)
            own = [match for of, match in matches if of == key]
            expected = reference.matches(case.skip, case.skip_step, own)
            assert Counter({*own}) == Counter({*expected}), f"seed {seed}, key {key} {events}\n{case}"
            if case.skip == "no_skip":
                assert {match for of, match in timed_out if of == key} == reference.timed_out(), f"seed {seed}\n{case}"
        assert "find.late" not in result.counters
