"""Measures an absence rule over a million keys on one core: ``python -m bench.kernels.absence``, one JSON line.

Each key has an event, and one key in a hundred never has another. Then come idle cuts, in which the watermark advances
and no deadline passes, full cuts with events of the other keys, and a cut in which the silent keys alert, each at its
deadline. The oracle is the generator of the stream, which knows each silent key and the time of its last event.
"""

from __future__ import annotations

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # as in a worker: Spark runs the tasks in parallel

import argparse
import statistics
import sys
import time

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.harness.result import Result, show
from bench.harness.yardstick import Yardstick
from rulecore.compile.rule import RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.firing import RuleFiring
from rulecore.groups.absence.group import AbsenceGroup
from rulecore.groups.base import CutContext, GroupId
from rulecore.settings import GroupSettings
from streamcore.key_space import KeySpace
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.state import KeyValueTable, MemoryBlobs, StateLog, StateSettings
from streamcore.watermark import NO_WATERMARK

EVERY_MS = 3_600_000
CUT_MS = 120_000
SILENT = 100  # one key in this many is silent

SCHEMA = StreamSchema.parse(
    {
        "name": "beats",
        "event_time": "ts",
        "keys": [["device"]],
        "fields": {"ts": "timestamp not null", "device": "string", "kind": "string"},
    }
)


def frame(devices: npt.NDArray[np.int64], event_ms: npt.NDArray[np.int64]) -> pl.DataFrame:
    """Return the input of the group. One event in four is not of the expected kind."""
    rows = np.arange(len(devices))
    kind = pl.Series("kind", np.where(rows % 4 == 3, "noise", "beat"))
    return pl.DataFrame(
        [
            pl.Series("ts", event_ms),
            ("d" + pl.Series("device", devices).cast(pl.String).str.zfill(9)).alias("device"),
            kind,
            pl.Series(PARTITION, np.zeros(len(rows), np.int32)),
            pl.Series(OFFSET, rows),
            pl.Series(EVENT_MS, event_ms),
        ]
    )


class Run:
    """A group of absence rules with its state log and watermark."""

    def __init__(self, keys: int) -> None:
        document = {
            "id": "quiet",
            "version": 1,
            "owner": "bench",
            "on": "beats",
            "group_by": ["device"],
            "expect": {"where": "kind = 'beat'", "every": "1h"},
            "then": {"severity": "low", "message": "{device} since {last_seen}"},
        }
        rule = compile_rule(Rule.model_validate(document), {"beats": SCHEMA}, RuleLimits())
        group = GroupId.for_rule(rule)
        assert group is not None
        self.group = AbsenceGroup(group, SCHEMA, GroupSettings(population=keys))
        self.group.set_rules([rule], KeyValueTable(), NO_WATERMARK, NO_WATERMARK)
        self.log, self.blobs = StateLog(StateSettings()), MemoryBlobs()
        self.watermark_ms = NO_WATERMARK
        self.firings: list[RuleFiring] = []

    def cut(self, events: pl.DataFrame | None, watermark_ms: int) -> tuple[float, float, int]:
        """Run a cut. Return the CPU-seconds of the cut, those of writing its state, and the bytes written."""
        context = CutContext(0, KeySpace(), "beats", 0, self.watermark_ms, watermark_ms)
        begin = time.process_time()
        if events is not None:
            self.group.add(events, context)
        self.firings += self.group.close(context)[0]
        middle = time.process_time()
        written = self.log.commit(self.blobs, self.group.tables(), {"watermark": watermark_ms})
        self.watermark_ms = watermark_ms
        return middle - begin, time.process_time() - middle, written


def measure(keys: int, cuts: int, rows: int) -> Result:
    """Measure the cuts. Raise ``AssertionError`` unless exactly the silent keys alert, each at its deadline."""
    run, generator = Run(keys), np.random.default_rng(7)
    first_ms = generator.integers(0, CUT_MS, keys)
    for start in range(0, keys, rows):  # each key has two events, of which at least one is of the expected kind
        devices = np.repeat(np.arange(start, min(keys, start + rows)), 2)
        run.cut(frame(devices, first_ms[devices]), 0)
    run.cut(None, CUT_MS)  # sets the deadlines
    idle = [run.cut(None, CUT_MS + n) for n in range(1, 21)]
    active = np.flatnonzero(np.arange(keys) % SILENT > 0)
    busy, has_event = [], np.zeros(keys, dtype=bool)
    for number in range(1, cuts + 1):
        devices = generator.choice(active, rows)
        events = frame(devices, number * CUT_MS + generator.integers(0, CUT_MS, rows))
        busy.append(run.cut(events, number * CUT_MS))
        has_event[devices[np.arange(rows) % 4 != 3]] = True
    assert not run.firings, "no key is silent for an hour yet"
    last_ms = EVERY_MS + CUT_MS
    alerting = run.cut(None, last_ms)
    check(run.firings, {int(n): int(first_ms[n]) + EVERY_MS for n in np.flatnonzero(~has_event)})
    total = sum(step for step, _, _ in busy)
    return {
        "workload": "absence-in-process",
        "keys": keys,
        "rows": cuts * rows,
        "rows_per_cut": rows,
        "cpu_seconds_per_million_events": round(total * 1e6 / (cuts * rows), 2),
        "with_commit": round((total + sum(commit for _, commit, _ in busy)) * 1e6 / (cuts * rows), 2),
        "idle_cut_cpu_ms": {"median": _ms(statistics.median(s for s, _, _ in idle)), "largest": _ms(max(idle)[0])},
        "idle_commit_cpu_ms": _ms(statistics.median(c for _, c, _ in idle)),
        "alerts": len(run.firings),
        "alerting_cut_cpu_ms": _ms(alerting[0]),
        "written_bytes_per_cut": round(statistics.mean(w for _, _, w in busy)),
    }


def check(firings: list[RuleFiring], wanted: dict[int, int]) -> None:
    """Raise ``AssertionError`` unless the alerts are the expected ones. ``wanted``: the deadline of each silent key."""
    assert len(firings) == len(wanted), "a key has too many alerts or none"
    assert {int(str(f.key["device"])[1:]): f.time_ms for f in firings} == wanted, (
        "the keys or times of the alerts are wrong"
    )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.kernels.absence", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--rows", type=int, default=100_000, help="rows a cut")
    arguments = parser.parse_args()
    with Yardstick() as yardstick:
        show(measure(arguments.keys, arguments.cuts, arguments.rows) | yardstick.figures())
    return 0


if __name__ == "__main__":
    sys.exit(main())
