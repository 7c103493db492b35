"""Generated patterns give the matches that their definition gives, however the events are divided into calls."""

from __future__ import annotations

import os
import random
from collections import Counter

import numpy as np
import polars as pl
import pytest

from streamcore.limits import PatternLimits
from streamcore.patterns.automaton import Automaton, compile_pattern
from streamcore.patterns.column_tables import build_families
from streamcore.patterns.engine import Match, MatchEngine, PatternEvents
from tests.harness.patterns.brute_force import BruteForce, Event, Taken
from tests.harness.patterns.generated import Case, generate, generate_alike, seeds
from tests.harness.run import profiles

#: How many patterns are generated.
PATTERNS = int(os.environ.get("HEADGATE_PATTERNS", profiles.cases(300)))
VALUES = {"letter": pl.String(), "v": pl.Int64(), "number": pl.Int64()}


def batch(automaton: Automaton, events: list[tuple[int, Event]]) -> PatternEvents:
    """Return events of one key with their bits. ``events``: with their numbers."""
    rows = [(letter, v, number) for number, (_, letter, v) in events]
    frame = pl.DataFrame(rows, schema=VALUES, orient="row")
    bits = np.zeros(len(events), np.int64)
    for leaf, condition in enumerate(automaton.leaves):
        if leaf not in automaton.iterative:
            bits |= frame.select(condition).to_series().cast(pl.Int64).to_numpy() << leaf
    ms = np.array([e[0] for _, e in events], np.int64)
    zeros = np.zeros(len(events), np.int64)
    return PatternEvents(zeros, ms, frame, zeros, np.arange(len(events)), bits)


def run(case: Case, rng: random.Random, end_ms: int, *, columns: bool) -> tuple[list[Taken], set[Taken]]:
    """Return the matches and the timed-out partial matches of the engine, with random calls.

    ``columns``: patterns run in columns, also a single run.
    """
    automaton = compile_pattern(case.pattern)
    engine = MatchEngine({"key": pl.String()}, VALUES, PatternLimits())
    engine.set_patterns({0: automaton}, timed_out=frozenset([0]))
    engine.fewest_runs = 0 if columns else engine.fewest_runs
    engine.store.keys.assign(pl.DataFrame({"key": ["k"]}))
    numbered = list(enumerate(case.events))
    matches: list[Taken] = []
    timed_out: set[Taken] = set()

    def note(found: list[Match]) -> None:
        nodes = engine.store.nodes
        for match in found:
            taken = tuple((automaton.steps[nodes.step[n]], nodes.value("number", n)) for n in match.nodes)
            if match.timed_out:
                timed_out.add(taken)
            else:
                matches.append(taken)

    while numbered:
        count = rng.randint(1, len(numbered))
        part, numbered = numbered[:count], numbered[count:]
        until = min(numbered[0][1][0] - 1, part[-1][1][0] + rng.randint(0, 3)) if numbered else part[-1][1][0]
        note(engine.run(batch(automaton, part), until))
        for table in (engine.store.partials, engine.store.events):
            table.changes()
    note(engine.run(None, end_ms))
    return matches, timed_out


def run_alike(
    cases: list[Case], rng: random.Random, end_ms: int, *, emits: bool
) -> tuple[list[list[Taken]], list[list[Taken]]] | None:
    """Return the matches and the timed-out partial matches of patterns that are a family, in columns; None if they are
    none. ``emits``: whether what times out is emitted."""
    automata = {number: compile_pattern(case.pattern) for number, case in enumerate(cases)}
    expressions: dict[str, pl.Expr] = {}
    for one in automata.values():
        texts = [str(leaf) for leaf in one.leaves]  # equal for equal conditions, as those of a family must be
        expressions |= {texts[n]: leaf for n, leaf in enumerate(one.leaves) if n not in one.iterative}
        one.leaves = tuple(texts)
    families = build_families(automata)
    if len(families) != 1 or len(families[0].members) < len(cases):
        return None
    engine = MatchEngine({"key": pl.String()}, VALUES, PatternLimits())
    number, family = len(cases), families[0]
    engine.set_patterns(automata, frozenset(automata if emits else ()), families={number: family})
    engine.fewest_runs = 0
    engine.store.keys.assign(pl.DataFrame({"key": ["k"]}))
    left = [*enumerate(cases[0].events)]
    found: list[list[Taken]] = [[] for _ in cases]
    timed_out: list[list[Taken]] = [[] for _ in cases]
    while left:
        count = rng.randint(1, len(left))
        part, left = left[:count], left[count:]
        frame = pl.DataFrame([(letter, v, n) for n, (_, letter, v) in part], schema=VALUES, orient="row")
        bits = np.full(count, 1 << 62)  # an event that satisfies nothing is seen, too
        for leaf, text in enumerate(family.leaves):
            if text in expressions:
                bits |= frame.select(expressions[text]).to_series().cast(pl.Int64).to_numpy() << leaf
        zeros, ms = np.zeros(count, np.int64), np.array([event[0] for _, event in part], np.int64)
        until = left[0][1][0] - 1 if left else end_ms
        events = PatternEvents(zeros, ms, frame, zeros + number, np.arange(count), bits)
        for match in engine.run(events, until):
            nodes, steps = engine.store.nodes, automata[match.pattern].steps
            kind = timed_out if match.timed_out else found
            kind[match.pattern].append(tuple((steps[nodes.step[n]], nodes.value("number", n)) for n in match.nodes))
        for table in (engine.store.partials, engine.store.events):
            table.changes()
    return found, timed_out


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("part", range(5))
def test_patterns_that_share_partial_matches_find_what_each_finds(part: int) -> None:
    shared = reading = expired = 0
    for seed in seeds(part, 5, PATTERNS):
        cases = generate_alike(seed, 4)
        end_ms = cases[0].events[-1][0] + random.Random(seed).choice([0, 2, 100])
        emits = cases[0].within_ms is not None and cases[0].skip == "no_skip"
        found = run_alike(cases, random.Random(seed), end_ms, emits=emits)
        if found is None or any(item.group for item in cases[0].items):
            continue
        shared += 1
        reading += any(condition.kind for condition in cases[0].conditions.values())
        for case, own, timed_out in zip(cases, *found, strict=True):
            reference = BruteForce(case.items, case.events, case.within_ms, end_ms=end_ms)
            expected = reference.matches(case.skip, case.skip_step, own)
            assert Counter(own) == Counter(expected), f"seed {seed}\n{case}"
            if emits:
                assert {*timed_out} == reference.timed_out(), f"seed {seed}\n{case}"
                expired += len(timed_out)
    assert shared >= PATTERNS // 25
    assert reading >= PATTERNS // 100, "some have conditions over earlier events"
    assert expired >= PATTERNS // 50, "some emit what times out"


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("part", range(10))
def test_matches_are_those_of_the_definition(part: int, columns: bool) -> None:
    for seed in seeds(part, 10, PATTERNS):
        case = generate(seed)
        end_ms = case.events[-1][0] + random.Random(seed).choice([0, 2, 100])
        found, timed_out = run(case, random.Random(seed), end_ms, columns=columns)
        reference = BruteForce(case.items, case.events, case.within_ms, end_ms=end_ms)
        expected = reference.matches(case.skip, case.skip_step, found)
        if any(item.group for item in case.items):  # its rounds may be divided in several ways, with one match each
            found, expected = [*set(found)], [*set(expected)]
        assert Counter(found) == Counter(expected), f"seed {seed}\n{case}"
        if case.skip == "no_skip":
            assert timed_out == reference.timed_out(), f"seed {seed}\n{case}"
