"""Measures the engine of patterns: the CPU time for each key that a cut touches, by the shape of the pattern.

Cuts of 20,000 rows of 20,000 keys, a minute of event time each. The matches are compared with those of the same engine
that runs one key after the other, which the tests compare with a definition; the ratio is of the two.

    POLARS_MAX_THREADS=1 taskset -c 0 python -m bench.kernels.patterns [SHAPE ...]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from bench.harness.result import show
from streamcore.limits import PatternLimits
from streamcore.patterns.automaton import Automaton, compile_pattern
from streamcore.patterns.engine import FEWEST_RUNS, MatchEngine, PatternEvents
from streamcore.patterns.expressions import candidate, matched
from streamcore.patterns.pattern import Pattern, skip_past_last_event

KEYS, CUT, CUTS, WARM, MINUTE = 20_000, 20_000, 12, 3, 60_000
VALUES = {"kind": pl.Int64(), "v": pl.Int64()}
A, B, C = (pl.col("kind") == n for n in range(3))
FIRST = Pattern.begin("a").where(A)
SHAPES = {
    "followed_by": FIRST.followed_by("b").where(B).within("10m"),
    "followed_by_any": FIRST.followed_by_any("b").where(B).followed_by("c").where(C).within("10m"),
    "one_or_more": FIRST.one_or_more().followed_by("b").where(B).within("10m"),
    "greedy": Pattern.begin("a", skip_past_last_event())
    .where(A)
    .one_or_more()
    .greedy()
    .followed_by("b")
    .where(B)
    .within("10m"),
    "optional": FIRST.followed_by("c").where(C).optional().followed_by("b").where(B).within("10m"),
    "last": FIRST.followed_by("b").where(B).where(candidate("v") > matched("a").last("v")).within("10m"),
    "falling": FIRST.where((matched("a").count() == 0) | (candidate("v") < matched("a").last("v")))
    .times_or_more(2)
    .followed_by("b")
    .where(B)
    .within("10m"),
    "timed_out": FIRST.followed_by("b").where(B).within("2m"),
}


@dataclass
class RunCosts:
    """The CPU time and the output of a run."""

    cpu_s: float = 0.0
    touched: int = 0
    partials: int = 0
    found: list[tuple[object, ...]] = field(default_factory=list)


def run(automaton: Automaton, *, timed_out: bool, fewest_runs: int) -> RunCosts:
    """Run all cuts; the first ones, in which partial matches become many, are not measured."""
    engine, costs = MatchEngine({"key": pl.Int64()}, VALUES, PatternLimits()), RunCosts()
    engine.fewest_runs = fewest_runs
    engine.set_patterns({0: automaton}, frozenset([0]) if timed_out else frozenset())
    for number, batch in enumerate(_cuts(engine, automaton)):
        began = time.process_time()
        matches = engine.run(batch, number * MINUTE)
        engine.store.partials.changes()
        spent = time.process_time() - began
        nodes = engine.store.nodes
        keys = engine.store.keys.frame(np.array([m.key_slot for m in matches], np.int64))["key"].to_list()
        costs.found += [
            (key, m.time_ms, m.timed_out, *nodes.event[[*m.nodes]].tolist())
            for key, m in zip(keys, matches, strict=True)
        ]
        engine.store.events.changes()  # forgets keys and nodes
        if number >= WARM:
            costs.cpu_s += spent
            costs.touched += len(np.unique(batch.key_slots))
    costs.partials = len(engine.store)
    return costs


def _cuts(engine: MatchEngine, automaton: Automaton) -> Iterator[PatternEvents]:
    random = np.random.default_rng(1)
    for number in range(CUTS):
        kind = random.choice(4, CUT, p=[0.3, 0.02, 0.05, 0.63])
        values = {"key": random.integers(0, KEYS, CUT), "kind": kind, "v": random.integers(0, 10, CUT)}
        rows = pl.DataFrame(values).filter(pl.col("kind") < 3)
        rows = rows[np.argsort(engine.store.keys.assign(rows), kind="stable")]
        bits = np.zeros(rows.height, np.int64)
        for leaf, condition in enumerate(automaton.leaves):
            if leaf not in automaton.iterative:
                bits |= rows.select(condition).to_series().cast(pl.Int64).to_numpy() << leaf
        zeros, events = np.zeros(rows.height, np.int64), np.arange(rows.height)
        slots = engine.store.keys.assign(rows)
        yield PatternEvents(slots, zeros + number * MINUTE, rows.select([*VALUES]), zeros, events, bits)


def main() -> None:
    """Run each shape in columns and one key after the other, and print both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("shapes", nargs="*", default=[*SHAPES])
    for name in parser.parse_args().shapes:
        automaton = compile_pattern(SHAPES[name])
        timed_out = name == "timed_out"
        costs = run(automaton, timed_out=timed_out, fewest_runs=FEWEST_RUNS)
        single = run(automaton, timed_out=timed_out, fewest_runs=sys.maxsize)
        if sorted(costs.found) != sorted(single.found):
            raise SystemExit(f"wrong: {name} finds {len(costs.found)} matches, and {len(single.found)} key by key")
        show(
            {
                "bench": "patterns in process",
                "shape": name,
                "cpu_us_per_key_touched": round(costs.cpu_s / costs.touched * 1e6, 2),
                "key_by_key_cpu_us": round(single.cpu_s / single.touched * 1e6, 2),
                "ratio": round(costs.cpu_s / single.cpu_s, 2),
                "matches": len(costs.found),
                "partials_per_key": round(costs.partials / KEYS, 2),
            }
        )


if __name__ == "__main__":
    main()
