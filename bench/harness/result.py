"""Computes the figures of a measurement, and prints them as one JSON object."""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import orjson

from bench.harness.child import Child, CutSample, number
from bench.harness.cpu import Cpu

Figure = int | float | str | bool | None | Mapping[str, "Figure"] | Sequence["Figure"]
Result = dict[str, Figure]

_COLD_SHARE = 0.25


def show(result: Result) -> None:
    """Print a result as one line on standard output."""
    sys.stdout.buffer.write(orjson.dumps(result) + b"\n")
    sys.stdout.buffer.flush()


def steady_part(cuts: Sequence[CutSample]) -> tuple[Cpu, int, float, int]:
    """Return CPU time, events, seconds and number of cuts of the steady part. It begins after the first quarter of
    the events."""
    filled = [c for c in cuts if c.events]
    done = list(itertools.accumulate(c.events for c in filled))
    warm = [c for c, events in zip(filled, done, strict=True) if events >= done[-1] * _COLD_SHARE]
    if len(warm) < 2:
        return Cpu(), 0, 0.0, 0
    begin, end = warm[0], warm[-1]
    return end.cpu - begin.cpu, sum(c.events for c in warm[1:]), end.at_s - begin.at_s, len(warm) - 1


def throughput(child: Child, events: int) -> Result:
    """Return the figures of a run over a backlog: those of the whole run, from the start of the process, and those of
    its steady part."""
    cuts = [c for c in child.cuts if c.events]
    cpu, steady_events, seconds, count = steady_part(cuts)
    last = cuts[-1]
    return {
        "seconds": round(last.at_s - child.started_s, 1),
        "cpu_seconds_per_million": last.cpu.per_million(events)["total"],
        "events_per_second": round(events / (last.at_s - child.started_s)),
        "cpu_seconds_per_million_steady": cpu.per_million(steady_events)["total"] if steady_events else None,
        "events_per_second_steady": round(steady_events / seconds) if seconds else None,
        "steady": {
            "events": steady_events,
            "cuts": count,
            "cpu_seconds_per_million": cpu.per_million(steady_events) if steady_events else None,
        },
        "cuts": len(cuts),
    }


_PHASES = {
    "offsets": "latestOffset",
    "planning": "queryPlanning",
    "get_batch": "getBatch",
    "write_ahead_log": "walCommit",
    "commit_log": "commitOffsets",
}


def phases(child: Child, cuts: Sequence[CutSample]) -> Result:
    """Return the median milliseconds of each phase of these cuts.

    ``run``: both stages with their tasks and the commit of the state; ``transaction``: the output to Kafka; ``other``:
    Spark's remaining time.
    """
    spark = child.spark
    rows: list[dict[str, float]] = []
    for cut in cuts:
        progress = spark.get(cut.batch)
        if progress is None or not isinstance(durations := progress["durationMs"], dict):
            continue
        row = {name: float(durations.get(spark_name, 0)) for name, spark_name in _PHASES.items()}
        row["run"], row["transaction"] = number(cut.report, "run_ms"), number(cut.report, "commit_ms")
        row["whole"] = float(durations.get("triggerExecution", 0))
        row["other"] = row["whole"] - sum(v for n, v in row.items() if n != "whole")
        rows.append(row)
    if not rows:
        return {}
    return {name: round(statistics.median(r[name] for r in rows), 1) for name in rows[0]}


def spread(values: Sequence[float]) -> Result:
    """Return the number of values, and their mean, percentiles and maximum in their unit."""
    if not len(values):
        return {"n": 0}
    array = np.asarray(values)
    points = {f"p{q}": round(float(np.percentile(array, q)), 1) for q in (10, 50, 90, 99)}
    return {"n": len(array), "mean": round(float(array.mean()), 1), **points, "max": round(float(array.max()), 1)}
