"""Measures what ``deduplicate`` of a stream costs the rules app: ``python -m bench.kernels.duplicates``.

Two apps in one process get the same records, one of them with ``deduplicate``: stage 1 with the decoder, the shuffle
blocks, the shards and the commit of their state to memory; without Spark and Kafka. One rule matches about one event in
a hundred. First the app with ``deduplicate`` takes as many events as it remembers; then both take the measured cuts in
turns, in which one event in a hundred repeats one of three eighths of the remembered ones ago or of the cut before. The
difference of their CPU time is the figure. The oracle is the generator, which knows the rows that it repeats: it names
the events whose alerts each app must write, and the numbers of duplicates. The memory of an id is the growth of the
process from a tenth of the ids to all of them, and what the tables say of themselves.
"""

from __future__ import annotations

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # as in a worker: Spark runs the tasks in parallel

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import orjson
import polars as pl
import pyarrow as pa

from bench.harness.events import BASE_MS, SCHEMA, STREAM, EventSet, to_json
from bench.harness.result import Result, show
from bench.harness.yardstick import Yardstick
from rulecore.factory import LateEventWriter, RulesFactory
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.cuts.cut_clock import CutClock
from streamcore.engine.deduplication.stage import add_deduplication
from streamcore.engine.in_process import InProcessApp, control_record
from streamcore.engine.ingest import Ingest
from streamcore.kernel import DEDUPLICATION
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS, LATE
from streamcore.wire.raw import raw_batch

HORIZON = "12h"
#: The disorder of the events that the watermark waits for. So no copy is late, and each app does the same with it.
DISORDER_MS = 12 * 3_600_000
#: How long an id is remembered: the watermark is this far behind the newest event less the horizon.
SPAN_MS = 12 * 3_600_000 + DISORDER_MS
SHARDS = 4
LIMIT_CENTS = 990_000
CLOCK_MS = BASE_MS + 365 * 24 * 3_600_000

Position = tuple[int, int]


@dataclass(frozen=True, slots=True)
class DrawnCut:
    """The records of a cut, and by position (partition, offset) of those that the rule matches whether each is the
    first of its event. ``same``, ``other``: the numbers of duplicates with the content of the first, and with
    another."""

    batch: pa.RecordBatch
    matched: Mapping[Position, bool]
    same: int
    other: int


def draw(ids: int, cuts: int, rows: int) -> Iterator[DrawnCut]:
    """Yield the cuts that fill a horizon, then the measured ones, which have duplicates."""
    fill = ids // rows
    old: dict[int, pl.DataFrame] = {}  # a few rows of each of the last cuts
    offsets = np.zeros(4, np.int64)
    for number in range(fill + cuts):
        generator = np.random.default_rng(number)
        frame = (
            EventSet(rows, seed=number)
            .columns()
            .with_columns(
                number=pl.col("number") + number * rows,
                ts=BASE_MS + (pl.col("number") + number * rows) * SPAN_MS // ids,
                first=pl.lit(value=True),
            )
        )
        same = other = 0
        if number >= fill:
            repeated = pl.concat([old[number - fill * 3 // 8], old[number - 1]]).with_columns(
                first=pl.lit(value=False),
                # A copy may come in any partition; one in ten has another quantity.
                partition=pl.Series(generator.integers(0, 4, rows // 100, dtype=np.int32)),
                quantity=pl.col("quantity") + pl.Series((np.arange(rows // 100) % 10 == 0).astype(np.int32) * 50),
            )
            other = int((np.arange(rows // 100) % 10 == 0).sum())
            same = rows // 100 - other
            order = generator.permutation(rows)
            frame = pl.concat([frame[: rows - repeated.height], repeated])[order]
        old[number] = frame.filter("first")[: rows // 200]
        old.pop(number - fill, None)
        partition = frame["partition"].to_numpy()
        offset = np.empty(rows, np.int64)
        for one in range(4):
            here = partition == one
            offset[here] = offsets[one] + np.arange(here.sum())
            offsets[one] += here.sum()
        hits = np.flatnonzero(frame["amount"].to_numpy() > LIMIT_CENTS)
        places = zip(
            partition[hits].tolist(), offset[hits].tolist(), frame["first"].to_numpy()[hits].tolist(), strict=True
        )
        matched = {(p, o): first for p, o, first in places}
        values = to_json(frame.drop("first")).to_list()
        batch = raw_batch(np.zeros(rows, np.int32), partition, offset, [None] * rows, values, [None] * rows)
        yield DrawnCut(batch, matched, same, other)


@dataclass(frozen=True, slots=True)
class Memory:
    """Ids, and bytes: of their tables, of the stored state, of the process without the latter."""

    ids: int
    tables: int
    stored: int
    process: int


@dataclass
class Side:
    """An app, with the CPU-seconds of its measured cuts."""

    app: App
    seconds: list[float] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    cuts: int = 0

    def __post_init__(self) -> None:
        self.ingest, self.process = Ingest(self.app), InProcessApp(self.app)
        rule = {"id": "large", "version": 1, "owner": "bench", "on": STREAM, "where": f"amount > {LIMIT_CENTS // 100}"}
        then = {"severity": "high", "message": "{amount}"}
        self.process.cut([control_record(0, "large", orjson.dumps(rule | {"then": then}))], CLOCK_MS)

    def cut(self, batch: pa.RecordBatch) -> set[Position]:
        """Run a cut; return the positions of the events that raise an alert."""
        self.cuts += 1
        begin = time.process_time()
        blocks = [*self.ingest.process([batch], CutClock.at(CLOCK_MS + self.cuts), dict.fromkeys(range(4), 0))]
        outputs = self.process.run(blocks)
        records = [record for output in outputs for record in output.all_records()]
        self.seconds.append(time.process_time() - begin)
        self.counters = Counter()
        for output in outputs:
            self.counters.update(output.metrics.counters)
        assert not any(record.lane == LATE for record in records), "no event is late"
        sources = [orjson.loads(r.value or b"")["source"] for r in records if r.lane == ALERTS]
        found = [(source["partition"], source["offset"]) for source in sources]
        assert len(set(found)) == len(found), "an alert is there twice"
        return set(found)

    def memory(self) -> Memory:
        """Return what the ids take now."""
        stored = sum(len(blob) for blobs in self.process.blobs.values() for blob in blobs.blobs.values())
        return Memory(self.count("ids"), self.count("bytes"), stored, resident_bytes() - stored)

    def count(self, name: str) -> int:
        """Return a counter of the last cut."""
        return self.counters[f"{DEDUPLICATION}.{STREAM}.{name}"]


def new_app(document: Mapping[str, object]) -> App:
    """Return the rules app of a stream."""
    schema = StreamSchema.parse(document)
    streams = (RuleStream(schema, STREAM),)
    lanes = {name: f"bench.{name}" for name in ("alerts", "shadow", "status", "late", "deadletters")}
    source = Source(schema, STREAM, watermark=WatermarkStrategy(DISORDER_MS))
    app = App("bench", (source,), "bench.control", lanes, (RulesFactory(streams),), shards=SHARDS)
    return add_deduplication(app, LateEventWriter(streams))


def measure(ids: int, cuts: int, rows: int) -> Result:
    """Measure both apps. Raise ``AssertionError`` if one writes other alerts, or counts others, than the generator."""
    once, each = Side(new_app({**SCHEMA, "deduplicate": HORIZON})), Side(new_app(SCHEMA))
    fill = ids // rows
    first = last = once.memory()
    for number, drawn in enumerate(draw(ids, cuts, rows)):
        if number == fill // 10:  # what the work itself takes is in both
            first = once.memory()
        if number == fill:
            last = once.memory()
        assert once.cut(drawn.batch) == {place for place, first in drawn.matched.items() if first}
        assert (once.count("duplicates"), once.count("other_content")) == (drawn.same + drawn.other, drawn.other)
        if number >= fill:
            assert each.cut(drawn.batch) == drawn.matched.keys()
    with_s, without_s = once.seconds[fill:], each.seconds
    return {
        "workload": "deduplicate-in-process",
        "events": cuts * rows,
        "rows_per_cut": rows,
        "ids_remembered": last.ids,
        "cpu_seconds_per_million": {
            "with": _per_million(with_s, rows),
            "without": _per_million(without_s, rows),
            "deduplicate": _per_million([a - b for a, b in zip(with_s, without_s, strict=True)], rows),
        },
        "cut_cpu_ms": {"median": round(1000 * statistics.median(with_s)), "largest": round(1000 * max(with_s))},
        "bytes_per_id": {
            "tables": round(last.tables / last.ids, 1),
            "process": round((last.process - first.process) / (last.ids - first.ids), 1),
            "stored": round(last.stored / last.ids, 1),
        },
        "checked": True,
    }


def _per_million(seconds: list[float], rows: int) -> float:
    return round(statistics.mean(seconds) * 1e6 / rows, 2)


def resident_bytes() -> int:
    """Return the memory of this process that is no mapped file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) * 1024


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.kernels.duplicates", description=__doc__)
    parser.add_argument("--ids", type=int, default=10_000_000, help="ids that are remembered")
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--rows", type=int, default=200_000, help="rows a cut")
    arguments = parser.parse_args()
    with Yardstick() as yardstick:
        result = measure(arguments.ids, arguments.cuts, arguments.rows)
        show(result | yardstick.figures())
    return 0


if __name__ == "__main__":
    sys.exit(main())
