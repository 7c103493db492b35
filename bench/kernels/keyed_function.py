"""Measures a keyed function on one core, without Spark and Kafka.

    taskset -c 0 python -m bench.kernels.keyed_function

The function emits the running total of a key, for every event or every tenth, in cuts of 100,000 events. The figure
includes the commit of each cut's state to memory. The rows are compared with a cumulative sum by Polars.
"""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"

import argparse
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import orjson
import polars as pl

from bench.harness.cpu import load_average
from bench.harness.yardstick import fixed_work_ms
from streamcore.keyed import ProcessContext, ProcessFunction, ValueState
from streamcore.operators.base import MAIN, CutTime
from streamcore.operators.process import ProcessOperator
from streamcore.schema import EVENT_MS
from streamcore.state import MemoryBlobs, StateLog, StateSettings

_PER_CUT = 100_000


class RunningTotal(ProcessFunction):
    """Emits the running total of a key for every event."""

    outputs = {MAIN: {"user": pl.String, "total": pl.Int64}}
    total = ValueState(int, default=0)

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        self.total += event.amount
        yield {"user": event.user, "total": self.total}


class EveryTenth(RunningTotal):
    """Emits the running total of a key for every tenth event."""

    count = ValueState(int, default=0)

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        self.total += event.amount
        self.count += 1
        if self.count % 10 == 0:
            yield {"user": event.user, "total": self.total}


def events(count: int, keys: int) -> pl.DataFrame:
    """Return events of random keys, in order of event time."""
    draw = np.random.default_rng(7)
    users = pl.Series("user", draw.integers(0, keys, count)).cast(pl.String)
    amounts = pl.Series("amount", draw.integers(1, 1_000, count))
    return pl.DataFrame([("user-" + users).alias("user"), amounts, pl.Series(EVENT_MS, np.arange(count))])


def expected_rows(rows: pl.DataFrame, every: int) -> pl.DataFrame:
    """Compute the expected output with window functions of Polars."""
    number = pl.int_range(1, pl.len() + 1).over("user")
    totals = rows.with_columns(total=pl.col("amount").cum_sum().over("user"), number=number)
    return totals.filter(pl.col("number") % every == 0).select("user", "total", EVENT_MS)


def run(operator: ProcessOperator, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Run the cuts, commit their state, and yield the output of each."""
    log, blobs = StateLog(StateSettings()), MemoryBlobs()
    for start in range(0, rows.height, _PER_CUT):
        ports = operator.step([rows[start : start + _PER_CUT]], CutTime(start, start + _PER_CUT, start))
        log.commit(blobs, operator.tables(), {"cut": start})
        if MAIN in ports:
            yield ports[MAIN]


def main() -> None:
    """Measure, compare, and print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--every", type=int, choices=(1, 10), default=1)
    arguments = parser.parse_args()
    rows = events(arguments.events, arguments.keys)
    function = RunningTotal() if arguments.every == 1 else EveryTenth()
    operator = ProcessOperator(function, key=["user"], events={"user": pl.String, "amount": pl.Int64})
    yardstick_ms, begin, cpu = fixed_work_ms(), time.perf_counter(), time.process_time()
    found = list(run(operator, rows))
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu
    result = {
        "workload": "process-in-process",
        "events": arguments.events,
        "keys": arguments.keys,
        "a_row_every": arguments.every,
        "events_per_second": round(arguments.events / seconds),
        "events_per_cpu_second": round(arguments.events / cpu_seconds),
        "output_equals_oracle": pl.concat(found).equals(expected_rows(rows, arguments.every)),
        "output_rows": sum(frame.height for frame in found),
        "yardstick_ms": [round(yardstick_ms, 1), round(fixed_work_ms(), 1)],
        "load_average": load_average(),
    }
    print(orjson.dumps(result).decode())
    if not result["output_equals_oracle"]:
        raise SystemExit("the output differs from the oracle's")


if __name__ == "__main__":
    main()
