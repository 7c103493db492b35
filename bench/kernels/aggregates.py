"""Measures aggregates on one core: the CPU milliseconds of each, as JSON lines.

    POLARS_MAX_THREADS=1 taskset -c 0 python -m bench.kernels.aggregates [NAME ...]

A million rows in random order are aggregated to 100,000 groups (``group_ms``), the partials of two halves of the rows
are merged (``merge_ms``), and results are computed from the partials of all rows (``result_ms``).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import orjson
import polars as pl

from streamcore.aggregates import (
    Aggregate,
    ApproxDistinct,
    Collect,
    Count,
    CountDistinct,
    First,
    Last,
    Max,
    Mean,
    Min,
    Quantiles,
    StdDev,
    Sum,
    TopN,
)
from streamcore.schema import EVENT_MS

ROWS, GROUPS, ROUNDS = 1_000_000, 100_000, 3
ALL: list[Aggregate] = [
    Count(),
    Count("whole"),
    *(
        aggregate(column)
        for aggregate in (Sum, Mean, StdDev, Min, Max)
        for column in ("whole", "huge", "price", "wide", "real")
    ),
    Sum("holed"),
    *(aggregate("text") for aggregate in (Min, First, Last)),
    First("whole"),
    Last("whole"),
    Collect("whole"),
    TopN("text", by="price", n=3),
    CountDistinct("whole"),
    ApproxDistinct("whole"),
    Quantiles("real", (0.5, 0.95)),
]


def rows() -> pl.DataFrame:
    """Return columns of integers (small, large, with nulls), decimals (of 18 and 38 digits), floats and text."""
    random = np.random.default_rng(0)
    whole = random.integers(-1_000_000, 1_000_000, ROWS)
    return pl.DataFrame(
        {
            EVENT_MS: random.integers(0, 10_000, ROWS),
            "whole": whole,
            "huge": random.integers(-(2**63), 2**63 - 1, ROWS),
            "holed": pl.Series(whole).set(pl.Series(whole % 10 == 0), None),
            "price": pl.Series(whole).cast(pl.Decimal(18, 2)),
            "wide": pl.Series(whole).cast(pl.Decimal(38, 2)),
            "real": random.random(ROWS),
            "text": pl.Series(whole % 50_000).cast(pl.String),
        }
    )


def best_ms(step: Callable[[], object]) -> float:
    """Return the lowest CPU time of ``ROUNDS`` calls, in milliseconds."""
    times: list[float] = []
    for _ in range(ROUNDS):
        start = time.process_time()
        step()
        times.append(time.process_time() - start)
    return round(min(times) * 1_000, 1)


def measure(aggregate: Aggregate, frame: pl.DataFrame, group: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    """Measure one aggregate, and print its figures. ``group``: the number of each row's group."""
    numbers = np.arange(ROWS)
    half = ROWS // 2
    partials = aggregate.aggregate_groups(frame, numbers, group, GROUPS)
    early = aggregate.aggregate_groups(frame[:half], numbers[:half], group[:half], GROUPS)
    late = aggregate.aggregate_groups(frame[half:], numbers[half:], group[half:], GROUPS)
    figures = {
        "group_ms": best_ms(lambda: aggregate.aggregate_groups(frame, numbers, group, GROUPS)),
        "merge_ms": best_ms(lambda: aggregate.merge(early, late)),
        "result_ms": best_ms(lambda: aggregate.result(partials, frame.schema)),
    }
    print(orjson.dumps({"aggregate": str(aggregate)} | figures).decode(), flush=True)


def main(names: list[str]) -> None:
    frame = rows()
    group = np.random.default_rng(1).integers(0, GROUPS, ROWS)
    for aggregate in ALL:
        if not names or type(aggregate).__name__ in names:
            measure(aggregate, frame, group)


if __name__ == "__main__":
    main(sys.argv[1:])
