"""Measures many windowed rules on one core: the events per second of one group. Firings are compared with numpy's.

    POLARS_MAX_THREADS=1 taskset -c 0 python -m bench.kernels.windowed_rules [--rules 100,1000] [--state]

It prints one JSON line for each number of rules, then one with the ratio of the last to the first. The rules share
twenty aggregates (five functions over four filters); each compares one or two of them with its own thresholds, and few
fire. ``--state``: each cut is also committed to a state log in memory.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.firing import RuleFiring
from rulecore.groups.base import CutContext, GroupId
from rulecore.groups.registry import make_group
from rulecore.settings import GroupSettings
from streamcore.key_space import KeySpace
from streamcore.schema import EVENT_MS, StreamSchema
from streamcore.state import KeyValueTable, MemoryBlobs, StateLog, StateSettings
from streamcore.watermark import NO_WATERMARK

EVENTS, KEYS, CUT = 400_000, 20_000, 20_000
HOUR_MS = 3_600_000
START_MS = 1_760_000_400_000
SPAN_MS = 2 * HOUR_MS
Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

SCHEMA = StreamSchema.parse(
    {
        "name": "pay",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {
            "ts": "timestamp not null",
            "user": "string",
            "type": "long",
            "amount": "decimal(12,2)",
            "n": "long",
        },
    }
)
TYPES = 4
FUNCTIONS = ("count(*)", "sum(amount)", "avg(amount)", "max(amount)", "min(n)")


@dataclass(frozen=True)
class Clause:
    """The condition ``FUNCTIONS[function] > bound``. The bound is in physical units: hundredths for money."""

    function: int
    bound: float

    @property
    def text(self) -> str:
        money = self.function in (1, 2, 3)
        return (
            f"{FUNCTIONS[self.function]} > {self.bound / 100:.2f}"
            if money
            else f"{FUNCTIONS[self.function]} > {self.bound:g}"
        )


@dataclass(frozen=True)
class Spec:
    """A rule over the events of one type."""

    name: str
    type: int
    clauses: tuple[Clause, ...]


def generate_specs(count: int, share: float) -> list[Spec]:
    """Return ``count`` rules over all filters and functions, which together fire in about ``share`` of the windows."""
    random = np.random.default_rng(count)
    highest = _highest()
    share = share / count
    found = []
    for number in range(count):
        kind, first = number % TYPES, number // TYPES % len(FUNCTIONS)
        chosen = [first] if number % 2 else [first, int(random.integers(len(FUNCTIONS)))]
        low = 1 - share if len(chosen) == 1 else 1 - share**0.5
        positions = (random.uniform(low, 1.0, len(chosen)) * len(highest[0])).astype(np.int64)
        clauses = tuple(Clause(f, round(float(highest[f][p]))) for f, p in zip(chosen, positions, strict=True))
        found.append(Spec(f"r{number}", kind, clauses))
    return found


def compile_specs(specs: Sequence[Spec]) -> list[CompiledRule]:
    documents = (
        {
            "id": spec.name,
            "version": 1,
            "owner": "o",
            "on": "pay",
            "where": f"type = {spec.type}",
            "group_by": ["user"],
            "within": {"tumbling": "1h"},
            "having": " and ".join(clause.text for clause in spec.clauses),
            "then": {"severity": "low", "message": "m"},
        }
        for spec in specs
    )
    return [compile_rule(Rule.model_validate(d), {"pay": SCHEMA}, RuleLimits()) for d in documents]


@dataclass(frozen=True)
class Events:
    """Events in order of event time, which is the order of arrival."""

    key: Ints
    event_ms: Ints
    type: Ints
    amount: Ints
    n: Ints

    def frame(self) -> pl.DataFrame:
        names = pl.Series("user", [f"customer-{n:07d}" for n in range(KEYS)])
        columns = {"ts": self.event_ms, "user": names.gather(self.key), "type": self.type, "amount": self.amount}
        return pl.DataFrame(columns | {"n": self.n, EVENT_MS: self.event_ms})


def events() -> Events:
    random = np.random.default_rng(1)
    times = START_MS + np.linspace(0, SPAN_MS - 1, EVENTS).astype(np.int64)
    key = random.integers(0, KEYS, EVENTS)
    amount = random.integers(0, 100_000, EVENTS)
    return Events(key, times, random.integers(0, TYPES, EVENTS), amount, random.integers(0, 1_000, EVENTS))


@dataclass(frozen=True)
class RunningAggregates:
    """The aggregates after each event of one type, ordered by key, window and arrival.

    ``row``: the index of the event. ``window``: the number of its window.
    """

    row: Ints
    window: Ints
    values: tuple[Doubles, ...]

    @classmethod
    def compute(cls, data: Events, kind: int) -> RunningAggregates:
        rows = np.flatnonzero(data.type == kind)
        window = data.key[rows] * 1_000 + (data.event_ms[rows] // HOUR_MS - START_MS // HOUR_MS)
        rows = rows[np.argsort(window, kind="stable")]
        window = np.sort(window, kind="stable")
        frame = pl.DataFrame({"w": window, "amount": data.amount[rows], "n": data.n[rows]})
        count, total = pl.int_range(1, pl.len() + 1).over("w"), pl.col("amount").cum_sum().over("w")
        most, least = pl.col("amount").cum_max().over("w"), pl.col("n").cum_min().over("w")
        every = [count, total, total / count, most, least]
        values = frame.select(e.cast(pl.Float64).alias(str(i)) for i, e in enumerate(every))
        return cls(rows, window, tuple(values[str(i)].to_numpy() for i in range(len(every))))

    def first(self, spec: Spec) -> set[tuple[str, int]]:
        """Return the rule with the row of the first event in each window for which the rule is true."""
        true = np.logical_and.reduce([self.values[c.function] > c.bound for c in spec.clauses])
        hits = np.flatnonzero(true)
        _, first = np.unique(self.window[hits], return_index=True)
        return {(spec.name, int(row)) for row in self.row[hits[first]]}


def _highest() -> list[Doubles]:
    """Return, for each function, the sorted highest values of the windows of one type."""
    running = RunningAggregates.compute(events(), 0)
    first = np.flatnonzero(np.diff(running.window, prepend=-1))
    return [np.sort(np.maximum.reduceat(values, first)) for values in running.values]


def expected_firings(specs: Sequence[Spec], data: Events) -> set[tuple[str, int]]:
    running = [RunningAggregates.compute(data, kind) for kind in range(TYPES)]
    return set().union(*(running[spec.type].first(spec) for spec in specs))


def run(count: int, share: float, turns: int, *, state: bool) -> dict[str, object]:
    """Measure the lowest CPU time of the group's steps over several runs, and check the firings."""
    specs, data = generate_specs(count, share), events()
    rules, rows = compile_specs(specs), data.frame()
    feed(rules, rows[:CUT], state=state)
    seconds, firings, size = min((feed(rules, rows, state=state) for _ in range(turns)), key=lambda turn: turn[0])
    found = {(f.rule.rule.id, row) for row, f in firings}
    return {
        "bench": "windowed_rules_in_process",
        "rules": count,
        "aggregates": len({s.column for r in rules for s in r.aggregates}),
        "events": EVENTS,
        "firings": len(firings),
        "state": "committed" if state else "changes only",
        "state_bytes_a_pane": round(size),
        "cpu_seconds_per_million": round(seconds * 1e6 / EVENTS, 2),
        "events_per_s": round(EVENTS / seconds),
        "right": found == expected_firings(specs, data) and len(found) == len(firings),
    }


def feed(
    rules: Sequence[CompiledRule], rows: pl.DataFrame, *, state: bool
) -> tuple[float, list[tuple[int, RuleFiring]], float]:
    """Feed all rows in cuts. Return the CPU-seconds, the firings with their rows, and the bytes of a pane in memory."""
    group = make_group(GroupId.for_rule(rules[0]), SCHEMA, GroupSettings())  # type: ignore[arg-type]
    group.set_rules(rules, KeyValueTable(), NO_WATERMARK, NO_WATERMARK)
    log, blobs = StateLog(StateSettings()), MemoryBlobs()
    watermark_ms, seconds, found = NO_WATERMARK, 0.0, []
    for first in range(0, rows.height, CUT):
        cut = rows[first : first + CUT]
        next_ms = int(cut[EVENT_MS][-1])
        moment = CutContext(0, KeySpace(), "pay", next_ms, watermark_ms, next_ms)
        began = time.process_time()
        firings, failures = group.add(cut, moment)
        group.close(moment)
        if state:
            log.commit(blobs, group.tables(), {})
        else:
            for table in group.tables().values():
                table.changes()
        seconds += time.process_time() - began
        assert not failures
        found += [(first + f.row, f) for f in firings if f.row is not None]
        watermark_ms = next_ms
    kept = group.tables()[f"panes:{GroupId.for_rule(rules[0])}"].rows(0, 1)
    return seconds, found, (len(kept.columns) - 3) * 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", default="100,1000")
    parser.add_argument("--share", type=float, default=0.05, help="share of the windows in which any rule fires")
    parser.add_argument(
        "--turns", type=int, default=3, help="number of runs; the figures are of the one with the least CPU time"
    )
    parser.add_argument("--state", action="store_true")
    options = parser.parse_args()
    results = [run(int(n), options.share, options.turns, state=options.state) for n in options.rules.split(",")]
    for result in results:
        print(json.dumps(result))
    first, last = (results[i]["cpu_seconds_per_million"] for i in (0, -1))
    print(json.dumps({"bench": "windowed_rules_in_process", "ratio": round(last / first, 2)}))  # type: ignore[operator]


if __name__ == "__main__":
    main()
