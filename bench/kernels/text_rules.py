"""Measures rules on texts on one core: Sigma rules in SigmaHQ's forms, and events of about 700 bytes.

The matcher takes batches of three sizes; a back-test reads the same events from a Parquet file. Some events are
compared with the reference evaluator.

    POLARS_MAX_THREADS=1 taskset -c 0 python -m bench.kernels.text_rules [1000|10000]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

from bench.harness.result import Result, show
from headgate.backtest.sources import file_batches
from rulecore.backtest.backtest import Backtest, BacktestSide
from rulecore.compile.rule import CompiledRule
from rulecore.language import evaluate
from rulecore.matching.matcher import EventMatcher
from rulecore.streams import RuleInput
from tests.harness.apps.sigma_set import STREAM, import_cases, process_events, sigma_cases

EVENTS = 20_000
BATCHES = {20_000: EVENTS, 1_000: EVENTS, 100: 3_000}
ROUNDS = 5
COMPARED = 200_000  # pairs of a rule and an event


def match_us(matcher: EventMatcher[CompiledRule], events: pl.DataFrame, batch: int) -> float:
    """Return the median of the microseconds of CPU for each event."""
    spent = []
    for _ in range(ROUNDS):
        parts = [events[start : start + batch] for start in range(0, events.height, batch)]
        begin = time.process_time()
        for part in parts:
            matcher.match(part)
        spent.append((time.process_time() - begin) / events.height * 1e6)
    return round(statistics.median(spent), 1)


def backtest_us(rules: list[CompiledRule], events: pl.DataFrame) -> float:
    """Return the microseconds of CPU for each event of a back-test, with reading the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.parquet"
        events.with_columns(pl.from_epoch("ts", time_unit="ms")).write_parquet(path)
        source = RuleInput.of_stream(STREAM, STREAM.name)
        job = Backtest(source, BacktestSide(tuple(rules)), partitions=[0])
        begin = time.process_time()
        for _, batch in file_batches({STREAM.name: [path]}, source, 2**45):
            job.step(batch)
        job.report()
        return round((time.process_time() - begin) / events.height * 1e6, 1)


def main(arguments: list[str]) -> None:
    """Run once, and print the result."""
    count = int(next(iter(arguments), "1000"))
    cases = sigma_cases(count, seed=1)
    rules = import_cases(cases)
    events = process_events(cases, EVENTS + count, seed=2, share=0.05)[count:]
    begin = time.process_time()
    matcher = EventMatcher(rules)
    built = time.process_time() - begin
    few = events[: max(1, COMPARED // count)]
    found = matcher.match(few)
    conditions = [one.where for one in rules if one.where is not None]
    wanted = {
        (row, number)
        for row, event in enumerate(few.iter_rows(named=True))
        for number, condition in enumerate(conditions)
        if evaluate(condition, event) is True
    }
    matches = matcher.match(events)
    result: Result = {
        "bench": "text rules in process",
        "rules": count,
        "events": events.height,
        "matches": len(matches.row),
        "candidates_per_event": round(float(matches.candidates.sum()) / events.height, 2),
        "equals_reference": set(zip(found.row.tolist(), found.rule.tolist(), strict=True)) == wanted,
        "index_cpu_s": round(built, 2),
        "us_per_event": {str(n): match_us(matcher, events[:rows], n) for n, rows in BATCHES.items()},
        "backtest_us_per_event": backtest_us(rules, events),
    }
    show(result)


if __name__ == "__main__":
    main(sys.argv[1:])
