"""Measures deduplication on one core, in rows per second: ``python -m bench.kernels.deduplication``.

It prints a JSON line for each kind of id. A million ids are in state. In the measured cuts, half of the rows are new,
and half repeat a row within the horizon. As many ids expire as are added. The operator and the commit of its state are
measured separately. The oracle is the generator of the stream, which knows the rows that it repeats.
"""

from __future__ import annotations

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # as in a worker: Spark runs the tasks in parallel

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.harness.result import Result, show
from bench.harness.yardstick import Yardstick
from streamcore.operators.base import MAIN, CutTime
from streamcore.operators.deduplication.operator import DUPLICATES, Deduplicate, Deduplication
from streamcore.schema import EVENT_MS
from streamcore.state import MemoryBlobs, StateLog, StateSettings

HORIZON_MS = 3_600_000
STATE = 1_000_000
ROW = "row"


@dataclass(frozen=True, slots=True)
class DrawnCut:
    """One cut. For each row: the number of its event, its event time, and whether it is the first row of the event."""

    events: npt.NDArray[np.int64]
    event_ms: npt.NDArray[np.int64]
    first: npt.NDArray[np.bool_]


def draw(cuts: int, rows: int) -> Iterator[DrawnCut]:
    """Yield the cuts. Events are numbered by time.

    A horizon has ``STATE`` events, and a repeated event is one of the last three quarters of a horizon.
    """
    generator, first_number = np.random.default_rng(7), 0
    for _ in range(cuts):
        new = np.arange(first_number, first_number + rows // 2)
        span = min(first_number, STATE * 3 // 4)
        count = rows - len(new)
        old = generator.integers(first_number - span, first_number, count) if first_number else new[:count]
        events = np.concatenate([new, old])
        order = generator.permutation(rows)
        if not first_number:  # the first cut has each event twice, the new row before its repetition
            order = np.arange(rows)
        first = (np.arange(rows) < len(new))[order]
        first_number += len(new)
        yield DrawnCut(events[order], events[order] * HORIZON_MS // STATE, first)


def frame(drawn: DrawnCut, ids: str) -> pl.DataFrame:
    """Return the operator's input: id, two columns of payload, event time."""
    number = pl.Series("id", drawn.events)
    scattered = pl.Series("id", (drawn.events.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64))
    if ids == "uuid":
        text = [f"{n & (2**64 - 1):016x}-{m:019d}" for n, m in zip(scattered.to_list(), number.to_list(), strict=True)]
        column = pl.Series("id", text)
    else:
        column = ("e" + number.cast(pl.String).str.zfill(11)).alias("id") if ids == "text" else scattered
    row = np.arange(len(drawn.events))
    return pl.DataFrame(
        [column, pl.Series(ROW, row), pl.Series("amount", row / 7), pl.Series(EVENT_MS, drawn.event_ms)]
    )


def measure(ids: str, cuts: int, rows: int) -> Result:
    """Measure one kind of id. Raise ``AssertionError`` if the operator emits a row on the wrong port."""
    operator = Deduplicate(Deduplication(("id",), HORIZON_MS), frame(next(draw(1, 2)), ids).schema)
    log, blobs, watermark = StateLog(StateSettings()), MemoryBlobs(), -(2**62)
    step_s, commit_s, written = [], [], []
    fill = 2 * STATE // rows
    for drawn in draw(fill + cuts, rows):
        batch, after = frame(drawn, ids), int(drawn.event_ms.max()) - 1_000
        begin = time.process_time()
        out = operator.step([batch], CutTime(watermark, after, 0))
        middle = time.process_time()
        written.append(log.commit(blobs, operator.tables(), {}))
        step_s.append(middle - begin)
        commit_s.append(time.process_time() - middle)
        check(out[MAIN][ROW].to_numpy(), drawn.first)
        check(out[DUPLICATES][ROW].to_numpy(), ~drawn.first)
        watermark = after
    metrics = operator.metrics()
    assert metrics["duplicates"] == (fill + cuts) * rows // 2
    total = sum(step_s[fill:])
    return {
        "workload": "deduplicate-in-process",
        "ids": ids,
        "rows": cuts * rows,
        "rows_per_cut": rows,
        "duplicates_per_row": 0.5,
        "ids_in_state": metrics["ids"],
        "rows_per_cpu_second": round(cuts * rows / total),
        "rows_per_cpu_second_with_commit": round(cuts * rows / (total + sum(commit_s[fill:]))),
        "cut_cpu_ms": {"median": _ms(statistics.median(step_s[fill:])), "largest": _ms(max(step_s[fill:]))},
        "commit_cpu_ms": {"median": _ms(statistics.median(commit_s[fill:])), "largest": _ms(max(commit_s[fill:]))},
        "written_bytes_per_cut": round(statistics.mean(written[fill:])),
    }


def check(rows: npt.NDArray[np.int64], wanted: npt.NDArray[np.bool_]) -> None:
    assert np.array_equal(rows, np.flatnonzero(wanted)), "a row is on the wrong port"


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.kernels.deduplication", description=__doc__)
    parser.add_argument("--cuts", type=int, default=40)
    parser.add_argument("--rows", type=int, default=100_000, help="rows a cut")
    arguments = parser.parse_args()
    for ids in ("number", "text", "uuid"):
        with Yardstick() as yardstick:
            result = measure(ids, arguments.cuts, arguments.rows)
            show(result | yardstick.figures())
    return 0


if __name__ == "__main__":
    sys.exit(main())
