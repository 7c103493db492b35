"""Measures windows on one core: the events per second of one operator. Its output is compared with numpy's.

    POLARS_MAX_THREADS=1 taskset -c 0 python -m bench.kernels.windows [KIND ...] [--state|--unused]

It prints one JSON line for each kind of windows (``KINDS``). ``--state``: each cut is also committed to a state log in
memory. ``--unused``: measure instead the cost of a late lane and of allowed lateness when no event is late, in
alternating runs.
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
    AfterProcessingTime,
    AfterWatermark,
    Assigner,
    CountTumbling,
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


def count_windows(size: int) -> Callable[[Events], Rows]:
    def rows(events: Events) -> Rows:
        order = np.argsort(events.key, kind="stable")
        key, value = events.key[order], events.value[order]
        number, _ = _positions(key)
        first = np.flatnonzero(number % size == 0)
        start = number[first]
        return key[first], start, start + size, np.add.reduceat(value, first)

    return rows


def early_panes(size_ms: int, count: int) -> Callable[[Events], Rows]:
    """Return the panes after every ``count`` elements and at the end, each with all elements so far."""

    def rows(events: Events) -> Rows:
        start = events.event_ms // size_ms * size_ms
        order = np.lexsort((start, events.key))  # stable: in order of arrival within a window
        key, start, value = events.key[order], start[order], events.value[order]
        number, is_last = _positions(key * (2 * START_MS) + start)
        first = np.flatnonzero(number == 0)
        total = np.cumsum(value)
        total -= np.repeat(total[first] - value[first], np.diff(np.append(first, len(key))))
        at = np.concatenate([np.flatnonzero((number + 1) % count == 0), np.flatnonzero(is_last)])
        return key[at], start[at], start[at] + size_ms, total[at]

    return rows


def _positions(sorted_codes: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the position of each row in the run of its code, and whether it is the last of its run."""
    new = np.concatenate([[True], sorted_codes[1:] != sorted_codes[:-1]])
    first = np.flatnonzero(new)
    counts = np.diff(np.append(first, len(sorted_codes)))
    return np.arange(len(sorted_codes)) - np.repeat(first, counts), np.append(new[1:], True)


@dataclass(frozen=True)
class Kind:
    """A kind of windows, the span of its events, and the panes that it must have.

    ``adds_panes``: compare the sums of the panes of each window, for the clock decides how many there are.
    """

    spec: WindowSpec
    span_ms: int
    oracle: Callable[[Events], Rows]
    adds_panes: bool = False


def at_end(assigner: Assigner) -> WindowSpec:
    return WindowSpec(assigner, AfterWatermark(), Accumulation.DISCARDING)


KINDS: Mapping[str, Kind] = {
    "tumbling": Kind(at_end(Tumbling(MINUTE_MS)), 10 * MINUTE_MS, even_windows(MINUTE_MS, MINUTE_MS)),
    "sliding": Kind(at_end(Sliding(4 * MINUTE_MS, MINUTE_MS)), 10 * MINUTE_MS, even_windows(4 * MINUTE_MS, MINUTE_MS)),
    "sessions": Kind(at_end(Session(30 * MINUTE_MS)), 10 * HOUR_MS, session_windows(30 * MINUTE_MS)),
    "sessions-lateness": Kind(
        WindowSpec(Session(30 * MINUTE_MS), AfterWatermark(late=AfterCount(1)), Accumulation.ACCUMULATING, MINUTE_MS),
        10 * HOUR_MS,
        session_windows(30 * MINUTE_MS),
    ),
    "count": Kind(at_end(CountTumbling(5)), 10 * HOUR_MS, count_windows(5)),
    "early-count": Kind(
        WindowSpec(Tumbling(HOUR_MS), AfterWatermark(early=AfterCount(3)), Accumulation.ACCUMULATING),
        10 * HOUR_MS,
        early_panes(HOUR_MS, 3),
    ),
    "early-clock": Kind(
        WindowSpec(
            Tumbling(4 * HOUR_MS), AfterWatermark(early=AfterProcessingTime(10 * MINUTE_MS)), Accumulation.DISCARDING
        ),
        10 * HOUR_MS,
        even_windows(4 * HOUR_MS, 4 * HOUR_MS),
        adds_panes=True,
    ),
}


def run(kind: str, *, state: bool) -> dict[str, object]:
    """Measure the CPU time of the operator's steps, with ``state`` also of the commits of the log; check the output.

    Another operator runs two cuts first, so that imports are not measured.
    """
    measured = KINDS[kind]
    events = events_over(measured.span_ms, seed=1)
    names = pl.Series("key", [f"customer-{n:07d}" for n in range(KEYS)])
    rows = events.frame(names)
    feed(measured.spec, rows[: 2 * CUT : 20], CUT // 20, state=state)
    seconds, found = feed(measured.spec, rows, CUT, state=state)
    return {
        "bench": "windows_in_process",
        "windows": kind,
        "state": "committed" if state else "changes only",
        "events": EVENTS,
        "keys": KEYS,
        "panes": found.height,
        "events_per_s": round(EVENTS / seconds),
        "right": are_equal(found, measured.oracle(events), adds_panes=measured.adds_panes),
    }


def measure_unused(kind: str, turns: int = 7) -> dict[str, object]:
    """Return the lowest CPU time of several runs: without a late lane, with one, and with allowed lateness as well."""
    plain, span_ms = KINDS[kind].spec, KINDS[kind].span_ms
    rows = events_over(span_ms, seed=1).frame(pl.Series("key", range(KEYS)))
    late = WindowSpec(plain.assigner, AfterWatermark(late=AfterCount(1)), Accumulation.DISCARDING, MINUTE_MS)
    variants = {"plain": (plain, False), "late_lane": (plain, True), "lateness": (late, True)}
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    panes = set()
    for _ in range(turns):
        for name, (spec, late_lane) in variants.items():
            spent, found = feed(spec, rows, CUT, state=False, late_lane=late_lane)
            seconds[name].append(spent)
            panes.add((found.height, found["sum"].sum()))
    assert len(panes) == 1, "the variants have different panes"
    least = {name: min(times) for name, times in seconds.items()}
    more = {f"{name}_costs_more_by": round(least[name] / least["plain"] - 1, 3) for name in variants if name != "plain"}
    return {"bench": "windows_in_process", "windows": kind, "unused": True, **more}


def feed(
    spec: WindowSpec, rows: pl.DataFrame, size: int, *, state: bool, late_lane: bool = True
) -> tuple[float, pl.DataFrame]:
    """Feed all rows in cuts, then the end of the stream. Return the CPU-seconds and all panes."""
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


def are_equal(panes: pl.DataFrame, wanted_rows: Rows, *, adds_panes: bool) -> bool:
    """Return whether the panes are exactly these rows."""
    window = [name for name in panes.columns if name.startswith("window_")]
    if adds_panes:
        panes = panes.group_by("key", *window).agg(pl.col("sum").sum())
    key = panes["key"].str.slice(9).cast(pl.Int64).to_numpy()
    bounds = [panes[name].to_physical().to_numpy() for name in window]
    seen, wanted = (np.stack(columns) for columns in ((key, *bounds, panes["sum"].to_numpy()), wanted_rows))
    return all(np.array_equal(*pair) for pair in zip(_sort_columns(seen), _sort_columns(wanted), strict=True))


def _sort_columns(columns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return columns[:, np.lexsort(columns[::-1])]


def main(arguments: list[str]) -> None:
    for kind in [argument for argument in arguments if argument in KINDS] or KINDS:
        print(json.dumps(measure_unused(kind) if "--unused" in arguments else run(kind, state="--state" in arguments)))


if __name__ == "__main__":
    main(sys.argv[1:])
