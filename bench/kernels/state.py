"""Measures bytes per key and window, and the cost of cuts that touch few keys: ``python -m bench.kernels.state``.

One operator on one shard computes an hourly sum for each key, and each key has an open window. Each measured cut has
events of one key in a hundred, drawn at random. The time of a cut covers the operator's step and the commit of its
tables. The sums at the end are compared with numpy's. The ratio is the CPU time of a cut with 1,000,000 keys divided by
that with 100,000.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import polars as pl

from bench.harness.result import Result, show
from streamcore.aggregates import Count, Sum
from streamcore.operators.base import MAIN, CutTime
from streamcore.operators.windows.operator import WindowOperator
from streamcore.schema import EVENT_MS
from streamcore.state import MemoryBlobs, StateLog, StateSettings
from streamcore.watermark import END_OF_TIME_MS, NO_WATERMARK
from streamcore.windowing import Accumulation, AfterWatermark, Tumbling, WindowSpec

HOUR_MS = 3_600_000
CUTS = 64
SHARE = 100


@dataclass(frozen=True)
class _TouchedKeys:
    """The keys that each cut touches, and the amounts that it adds to them."""

    keys: list[np.ndarray[tuple[int], np.dtype[np.int64]]]
    amounts: list[np.ndarray[tuple[int], np.dtype[np.int64]]]


def measure(keys: int) -> Result:
    """Measure an operator with this many keys."""
    spec = WindowSpec(Tumbling(HOUR_MS), AfterWatermark(), Accumulation.ACCUMULATING)
    schema: dict[str, pl.DataType] = {"key": pl.Int64(), "amount": pl.Int64()}
    aggregates = {"total": Sum("amount"), "rows": Count()}
    operator = WindowOperator(spec, ("key",), schema, aggregates, late_lane=False)
    log, blobs = StateLog(StateSettings()), MemoryBlobs()
    touched = _draw(keys)
    spent, written = [], []
    for batch in range(len(touched.keys)):
        rows = _rows(touched.keys[batch], touched.amounts[batch])
        started = time.process_time()
        operator.step([rows], CutTime(NO_WATERMARK, NO_WATERMARK, 0))
        written.append(log.commit(blobs, operator.tables(), {}))
        spent.append(time.process_time() - started)
    panes = operator.step([_rows(*_no_rows())], CutTime(NO_WATERMARK, END_OF_TIME_MS, 0))[MAIN]
    _check(panes, touched, keys)
    stored = sum(map(len, blobs.blobs.values()))
    log_bytes = sum(len(blob) for name, blob in blobs.blobs.items() if name.startswith("log/"))
    return {
        "workload": "state-in-process",
        "keys": keys,
        "touched_a_cut": keys // SHARE,
        "cpu_ms_a_cut": round(1000 * float(np.median(spent[-CUTS:])), 2),
        "cpu_ms_worst_cut": round(1000 * max(spent[-CUTS:]), 2),
        "bytes_written_a_cut": round(float(np.median(written[-CUTS:]))),
        "bytes_a_key_and_window": round((stored - log_bytes) / keys, 1),
        "bytes_of_log": log_bytes,
    }


def _draw(keys: int) -> _TouchedKeys:
    random = np.random.default_rng(5)
    first = [np.arange(start, min(keys, start + 100_000)) for start in range(0, keys, 100_000)]
    later = [random.integers(0, keys, keys // SHARE) for _ in range(2 * CUTS)]
    touched = [*first, *later]
    return _TouchedKeys(touched, [random.integers(1, 1000, len(cut_keys)) for cut_keys in touched])


def _no_rows() -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    return np.empty(0, np.int64), np.empty(0, np.int64)


def _rows(
    keys: np.ndarray[tuple[int], np.dtype[np.int64]], amounts: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> pl.DataFrame:
    return pl.DataFrame({"key": keys, "amount": amounts, EVENT_MS: np.full(len(keys), 1_000, np.int64)})


def _check(panes: pl.DataFrame, touched: _TouchedKeys, keys: int) -> None:
    touched_keys, amounts = np.concatenate(touched.keys), np.concatenate(touched.amounts)
    wanted = np.bincount(touched_keys, weights=amounts, minlength=keys).astype(np.int64)
    found = np.zeros(keys, np.int64)
    found[panes["key"].to_numpy()] = panes["total"].to_numpy()
    assert panes.height == keys, f"{panes.height} panes of {keys} keys"
    assert (found == wanted).all(), "the sums differ from numpy's"
    assert panes["rows"].sum() == len(touched_keys), "rows were lost or counted twice"


def main() -> None:
    """Measure both sizes, and print the results and their ratio."""
    small, large = measure(100_000), measure(1_000_000)
    show(small)
    show(large)
    ratio = float(str(large["cpu_ms_a_cut"])) / float(str(small["cpu_ms_a_cut"]))
    show({"workload": "state-in-process", "cpu_ratio_1000000_to_100000_keys": round(ratio, 2)})


if __name__ == "__main__":
    main()
