"""Measures the interval join on one core, without Spark and Kafka: two streams of orders and payments.

Each side has half a million rows over a hundred thousand keys, and a row has about one partner. State is committed to
memory after every cut. The output is compared with DuckDB's over the whole input. The figures are wall-clock and
CPU times. CPU times vary less when other programs use the machine.

    POLARS_MAX_THREADS=1 taskset -c 0 python -m bench.kernels.joins
"""

from __future__ import annotations

import time

import duckdb
import numpy as np
import polars as pl

from bench.harness.result import show
from streamcore.operators.base import MAIN, CutTime
from streamcore.operators.joins.interval import IntervalJoin, IntervalJoinSpec, JoinInterval
from streamcore.operators.joins.output_columns import JoinKeys
from streamcore.schema import EVENT_MS
from streamcore.state import MemoryBlobs, StateLog, StateSettings
from streamcore.watermark import NO_WATERMARK
from streamcore.windowing.model import END_OF_TIME_MS

ROWS = 500_000
KEYS = 100_000
CUT_ROWS = 50_000  # of both inputs together
SPAN_MS = 3_600_000
DISORDER_MS = 5_000
SPEC = IntervalJoinSpec(JoinKeys.on("account"), JoinInterval(-360_000, 360_000))


def stream(name: str, seed: int) -> pl.DataFrame:
    """Return rows in order of arrival: event times over an hour, up to ``DISORDER_MS`` out of order."""
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(0, SPAN_MS, ROWS))
    arrival = np.argsort(times + random.integers(0, DISORDER_MS, ROWS), kind="stable")
    return pl.DataFrame(
        [
            pl.Series("account", [f"account-{n:06d}" for n in random.integers(0, KEYS, ROWS).tolist()]),
            pl.Series(f"{name}_id", np.arange(ROWS)),
            pl.Series("amount", random.random(ROWS).round(2)),
            pl.Series(EVENT_MS, times[arrival]),
        ]
    )


def cuts(left: pl.DataFrame, right: pl.DataFrame) -> list[tuple[pl.DataFrame, pl.DataFrame, CutTime]]:
    """Return the input in cuts with their times. The watermark follows the input that is further behind."""
    half, result, before = CUT_ROWS // 2, [], NO_WATERMARK
    for start in range(0, ROWS, half):
        pair = left[start : start + half], right[start : start + half]
        seen = [frame[: start + half][EVENT_MS].to_numpy().max() for frame in (left, right)]
        after = END_OF_TIME_MS if start + half >= ROWS else int(min(seen)) - DISORDER_MS
        result.append((*pair, CutTime(before, after, 0)))
        before = after
    return result


def expected_pairs(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs of ids that DuckDB joins."""
    low, high = SPEC.interval.lower_ms, SPEC.interval.upper_ms
    query = (
        f"select l.order_id, r.payment_id from l join r on l.account = r.account and "
        f"r.{EVENT_MS} between l.{EVENT_MS} + {low} and l.{EVENT_MS} + {high} order by all"
    )
    with duckdb.connect() as connection:
        connection.register("l", left.to_arrow())
        connection.register("r", right.to_arrow())
        return pl.DataFrame(connection.sql(query).to_arrow_table())


def main() -> None:
    """Run once, compare with DuckDB, and print the result."""
    left, right = stream("order", 1), stream("payment", 2)
    work = cuts(left, right)
    join = IntervalJoin(SPEC, left.schema, right.schema)
    log, blobs = StateLog(StateSettings()), MemoryBlobs()
    output, step_s, commit_s, wall_s, most_kept, written = [], 0.0, 0.0, 0.0, 0, 0
    for left_rows, right_rows, cut_time in work:
        began, begin = time.perf_counter(), time.process_time()
        output.append(join.step([left_rows, right_rows], cut_time)[MAIN])
        middle = time.process_time()
        written += log.commit(blobs, join.tables(), {})
        step_s += middle - begin
        commit_s += time.process_time() - middle
        wall_s += time.perf_counter() - began
        counts = join.metrics()
        most_kept = max(most_kept, counts["left_kept"] + counts["right_kept"])
    found = pl.concat(output).select("order_id", "payment_id").sort("order_id", "payment_id")
    show(
        {
            "bench": "interval join in process",
            "events": 2 * ROWS,
            "cuts": len(work),
            "pairs": found.height,
            "equals_duckdb": found.equals(expected_pairs(left, right)),
            "events_per_second": round(2 * ROWS / wall_s),
            "events_per_cpu_second": round(2 * ROWS / (step_s + commit_s)),
            "wall_s": round(wall_s, 2),
            "step_cpu_s": round(step_s, 2),
            "commit_cpu_s": round(commit_s, 2),
            "most_rows_kept": most_kept,
            "state_bytes_written": written,
        }
    )


if __name__ == "__main__":
    main()
