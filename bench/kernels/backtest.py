"""Measures a back-test on one core: the code of `headgate rules backtest` over the events of a Parquet file.

The rules are event rules over two million events, of which one in a hundred matches a rule, or (``windows``) rules over
windows of an hour every five minutes. The hits of every rule are compared with DuckDB's over the generated numbers.
``profile`` prints a CPU profile instead.

    POLARS_MAX_THREADS=1 taskset -c 0 python -m bench.kernels.backtest [100|1000|windows] [profile]
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from bench.harness import rules_oracle as oracle
from bench.harness.events import SCHEMA, EventSet, to_texts
from bench.harness.generated_rules import FIVE, event_rule_id, event_rules, window_control_records, window_rules
from bench.harness.result import Result, show
from headgate.backtest.sources import file_batches
from rulecore.backtest.backtest import Backtest, BacktestReport, BacktestSide
from rulecore.compile.rule import RuleLimits, compile_rule
from rulecore.documents.loading import decode_record
from rulecore.streams import RuleInput
from streamcore.schema import StreamSchema

EVENTS = 2_000_000
WINDOW_EVENTS = 300_000
USERS = 100_000


def write_events(columns: pl.DataFrame, folder: Path) -> Path:
    """Write the events to a Parquet file, with money as decimals and times as timestamps, and return its path."""
    path = folder / "events.parquet"
    frame = to_texts(columns).with_columns(
        pl.col("amount").cast(pl.Decimal(12, 2)), pl.col("risk").cast(pl.Float64), pl.from_epoch("ts", time_unit="ms")
    )
    frame.write_parquet(path)
    return path


def run(path: Path, records: Sequence[tuple[str, bytes]]) -> tuple[BacktestReport, float, float]:
    """Return the report, and the CPU-seconds and wall-clock seconds of reading and matching."""
    schema = StreamSchema.parse(SCHEMA)
    rules = [compile_rule(decode_record(r, len(r)), {schema.name: schema}, RuleLimits()) for _, r in records]
    began, begin = time.perf_counter(), time.process_time()
    source = RuleInput.of_stream(schema, schema.name)
    job = Backtest(source, BacktestSide(tuple(rules)), partitions=[0])
    for _, batch in file_batches({schema.name: [path]}, source, 2**45):
        job.step(batch)
    report = job.report()
    return report, time.process_time() - begin, time.perf_counter() - began


def prepare_event_rules(count: int, folder: Path) -> tuple[Path, Sequence[tuple[str, bytes]], dict[str, int], int]:
    """Return the file, the event rules, the expected number of hits of each rule, and the number of events."""
    columns, rules = EventSet(EVENTS, USERS).columns(), event_rules(count, USERS)
    counted = dict(oracle.event_pairs(columns, rules).group_by("rule").len().iter_rows())
    expected = {event_rule_id(n): counted.get(n, 0) for n in range(count)}
    return write_events(columns, folder), [*rules.control_records()], expected, EVENTS


def prepare_window_rules(folder: Path) -> tuple[Path, Sequence[tuple[str, bytes]], dict[str, int], int]:
    """Return the file, the windowed rules, the expected number of hits of each rule, and the number of events."""
    columns = EventSet(WINDOW_EVENTS, USERS // 10).columns()
    totals = oracle.window_totals(columns, FIVE)
    rules = window_rules({aggregate: oracle.bounds(totals, aggregate.column, 20, 0.01) for aggregate in FIVE})
    counted = dict(oracle.window_firings(totals, rules).group_by("rule").len().iter_rows())
    expected = {rule.rule: counted.get(rule.rule, 0) for rule in rules}
    return write_events(columns, folder), [*window_control_records(rules)], expected, WINDOW_EVENTS


def main(arguments: list[str]) -> None:
    """Run once, compare with the expected hits, and print the result."""
    rule_count = next((a for a in arguments if a != "profile"), "100")
    with tempfile.TemporaryDirectory() as folder:
        path, records, expected, events = (
            prepare_window_rules(Path(folder))
            if rule_count == "windows"
            else prepare_event_rules(int(rule_count), Path(folder))
        )
        if "profile" in arguments:
            with cProfile.Profile() as profile:
                run(path, records)
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
            return
        report, cpu_s, wall_s = run(path, records)
    hits = {name: rule_report.hits for name, rule_report in report.new.items()}
    result: Result = {
        "bench": "backtest in process",
        "rules": len(records),
        "kind": "window" if rule_count == "windows" else "event",
        "events": report.events,
        "alerts": sum(hits.values()),
        "equals_duckdb": hits == expected and report.events == events,
        "events_per_second": round(events / wall_s),
        "events_per_cpu_second": round(events / cpu_s),
        "wall_s": round(wall_s, 2),
        "cpu_s": round(cpu_s, 2),
    }
    show(result)


if __name__ == "__main__":
    main(sys.argv[1:])
