"""Measures windows on one core: the events per second of one operator. Its output is compared with numpy's.

    POLARS_MAX_THREADS=1 taskset -c 0 python -m bench.kernels.windows [tumbling|sliding|sessions] [--state|--unused]

It prints one JSON line for each kind of windows. ``--state``: each cut is also committed to a state log in memory.
``--unused``: measure instead the cost of a late lane and of allowed lateness when no event is late, in alternating
runs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.aggregates import Sum
from streamcore.operators.base import MAIN, CutTime
from streamcore.operators.windows.operator import WindowOperator
from streamcore.schema import EVENT_MS
from streamcore.state import MemoryBlobs, StateLog, StateSettings
from streamcore.watermark import NO_WATERMARK
from streamcore.windowing import (
    Accumulation,
    AfterCount,
    AfterWatermark,
    Assigner,
    Session,
    Sliding,
    Tumbling,
    WindowSpec,
)
from streamcore.windowing.model import END_OF_TIME_MS

EVENTS, KEYS, CUT = 1_000_000, 100_000, 100_000
DISORDER_MS = 5_000
START_MS = 1_760_000_000_000
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
Ints = npt.NDArray[np.int64]
#: Rows (key, start, end, sum), in any order.
Rows = tuple[Ints, Ints, Ints, Ints]


@dataclass(frozen=True)
class Events:
    """Events in order of arrival. An event is at most ``DISORDER_MS`` behind the latest event before it."""

    key: Ints
    event_ms: Ints
    value: Ints

    def frame(self, keys: pl.Series) -> pl.DataFrame:
        return pl.DataFrame({"key": keys.gather(self.key), "v": self.value, EVENT_MS: self.event_ms})


def events_over(span_ms: int, seed: int) -> Events:
    random = np.random.default_rng(seed)
    steady = START_MS + np.linspace(0, span_ms, EVENTS).astype(np.int64)
    late = random.integers(0, DISORDER_MS, EVENTS)
    return Events(random.integers(0, KEYS, EVENTS), steady - late, random.integers(-100, 1_000, EVENTS))


def even_windows(size_ms: int, slide_ms: int) -> Callable[[Events], Rows]:
    def rows(events: Events) -> Rows:
        windows = size_ms // slide_ms
        key, value = np.repeat(events.key, windows), np.repeat(events.value, windows)
        last = np.repeat(events.event_ms // slide_ms, windows)
        window = last - np.tile(np.arange(windows), len(events.key))
        codes, row = np.unique(window * KEYS + key, return_inverse=True)
        sums = np.zeros(len(codes), dtype=np.int64)
        np.add.at(sums, row, value)
        start = codes // KEYS * slide_ms
        return codes % KEYS, start, start + size_ms, sums

    return rows


def session_windows(gap_ms: int) -> Callable[[Events], Rows]:
    def rows(events: Events) -> Rows:
        order = np.lexsort((events.event_ms, events.key))
        key, at_ms = events.key[order], events.event_ms[order]
        new = np.concatenate([[True], (key[1:] != key[:-1]) | (at_ms[1:] - at_ms[:-1] >= gap_ms)])
        first = np.flatnonzero(new)
        last = np.append(first[1:], len(key)) - 1
        return key[first], at_ms[first], at_ms[last] + gap_ms, np.add.reduceat(events.value[order], first)

    return rows


KINDS: Mapping[str, tuple[Assigner, int, Callable[[Events], Rows]]] = {
    "tumbling": (Tumbling(MINUTE_MS), 10 * MINUTE_MS, even_windows(MINUTE_MS, MINUTE_MS)),
    "sliding": (Sliding(4 * MINUTE_MS, MINUTE_MS), 10 * MINUTE_MS, even_windows(4 * MINUTE_MS, MINUTE_MS)),
    "sessions": (Session(30 * MINUTE_MS), 10 * HOUR_MS, session_windows(30 * MINUTE_MS)),
}


def run(kind: str, *, state: bool) -> dict[str, object]:
    """Measure the CPU time of the operator's steps, with ``state`` also of the commits of the log; check the output.

    Another operator runs two cuts first, so that imports are not measured.
    """
    assigner, span_ms, oracle = KINDS[kind]
    events = events_over(span_ms, seed=1)
    names = pl.Series("key", [f"customer-{n:07d}" for n in range(KEYS)])
    rows = events.frame(names)
    feed(assigner, rows[: 2 * CUT : 20], CUT // 20, state=state)
    seconds, found = feed(assigner, rows, CUT, state=state)
    return {
        "bench": "windows_in_process",
        "windows": kind,
        "state": "committed" if state else "changes only",
        "events": EVENTS,
        "keys": KEYS,
        "panes": found.height,
        "events_per_s": round(EVENTS / seconds),
        "right": are_equal(found, oracle(events)),
    }


def measure_unused(kind: str, turns: int = 7) -> dict[str, object]:
    """Return the lowest CPU time of several runs: without a late lane, with one, and with allowed lateness as well."""
    assigner, span_ms, _ = KINDS[kind]
    rows = events_over(span_ms, seed=1).frame(pl.Series("key", range(KEYS)))
    late = WindowSpec(assigner, AfterWatermark(late=AfterCount(1)), Accumulation.DISCARDING, MINUTE_MS)
    variants = {"plain": (None, False), "late_lane": (None, True), "lateness": (late, True)}
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    panes = set()
    for _ in range(turns):
        for name, (spec, late_lane) in variants.items():
            spent, found = feed(assigner, rows, CUT, state=False, spec=spec, late_lane=late_lane)
            seconds[name].append(spent)
            panes.add((found.height, found["sum"].sum()))
    assert len(panes) == 1, "the variants have different panes"
    least = {name: min(times) for name, times in seconds.items()}
    more = {f"{name}_costs_more_by": round(least[name] / least["plain"] - 1, 3) for name in variants if name != "plain"}
    return {"bench": "windows_in_process", "windows": kind, "unused": True, **more}


def feed(
    assigner: Assigner,
    rows: pl.DataFrame,
    size: int,
    *,
    state: bool,
    spec: WindowSpec | None = None,
    late_lane: bool = True,
) -> tuple[float, pl.DataFrame]:
    """Feed all rows in cuts, then the end of the stream. Return the CPU-seconds and all panes."""
    spec = spec or WindowSpec(assigner, AfterWatermark(), Accumulation.DISCARDING)
    schema: dict[str, pl.DataType] = {"key": rows.schema["key"], "v": pl.Int64()}
    operator = WindowOperator(spec, ("key",), schema, {"sum": Sum("v")}, late_lane=late_lane)
    log, blobs = StateLog(StateSettings()), MemoryBlobs()
    watermark_ms, seconds, found = NO_WATERMARK, 0.0, []
    latest_ms = rows[EVENT_MS].cum_max().to_list()
    for first in range(0, rows.height, size):
        last = first + size >= rows.height
        next_ms = END_OF_TIME_MS if last else latest_ms[first + size - 1] - DISORDER_MS
        began = time.process_time()
        ports = operator.step([rows[first : first + size]], CutTime(watermark_ms, next_ms, clock_ms=next_ms))
        if state:
            log.commit(blobs, operator.tables(), {})
        else:
            for table in operator.tables().values():
                table.changes()
        seconds += time.process_time() - began
        watermark_ms = next_ms
        found.append(ports[MAIN])
    return seconds, pl.concat(found)


def are_equal(panes: pl.DataFrame, rows: Rows) -> bool:
    """Return whether the panes are exactly these rows."""
    key = panes["key"].str.slice(9).cast(pl.Int64).to_numpy()
    bounds = [panes[name].dt.timestamp("ms").to_numpy() for name in ("window_start", "window_end")]
    seen, wanted = (np.stack(columns) for columns in ((key, *bounds, panes["sum"].to_numpy()), rows))
    return all(np.array_equal(*pair) for pair in zip(_sort_columns(seen), _sort_columns(wanted), strict=True))


def _sort_columns(columns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return columns[:, np.lexsort(columns[::-1])]


def main(arguments: list[str]) -> None:
    kinds = [argument for argument in arguments if argument in KINDS] or list(KINDS)
    for kind in kinds:
        print(json.dumps(measure_unused(kind) if "--unused" in arguments else run(kind, state="--state" in arguments)))


if __name__ == "__main__":
    main(sys.argv[1:])
