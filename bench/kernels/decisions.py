"""Measures what a decision policy costs the rules app: ``python -m bench.kernels.decisions``.

Two apps in one process get the same records in turns, one of them with a policy: stage 1 with the decoder, the shuffle
blocks, the shards, and the merge of the driver; without Spark and Kafka. Three rules fire at one event in a hundred or
fewer. The difference of the CPU time, by event and by decision, is the figure. The oracle is the generator, which knows
the amounts: the events with a decision and the score of each.
"""

from __future__ import annotations

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # as in a worker: Spark runs the tasks in parallel

import argparse
import statistics
import time
from dataclasses import dataclass, field

import numpy as np
import orjson
import pyarrow as pa

from bench.harness.events import BASE_MS, SCHEMA, STREAM, EventSet, to_json
from bench.harness.result import Result, show
from rulecore.alerts.decisions import DECISION_PARTS, merge_decisions
from rulecore.factory import RulesFactory
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.cuts.cut_clock import CutClock
from streamcore.engine.in_process import InProcessApp, control_record
from streamcore.engine.ingest import Ingest
from streamcore.engine.merged_lanes import merge_records
from streamcore.schema import StreamSchema
from streamcore.wire.lanes import DECISIONS
from streamcore.wire.raw import raw_batch

SHOP = StreamSchema.parse(SCHEMA)
LIMITS = (9_900, 9_933, 9_966)
CLOCK_MS = BASE_MS + 365 * 24 * 3_600_000
POLICY = {
    "decision_policy": "bench",
    "version": 1,
    "owner": "bench",
    "on": STREAM,
    "decide": {"order": ["block", "review"], "default": "review", "bands": {"block": 30}},
}


@dataclass
class Side:
    """An app, with the CPU-seconds of its cuts. ``scores``: of the decisions, by partition and offset."""

    decides: bool
    seconds: list[float] = field(default_factory=list)
    scores: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kernel, source = RulesFactory((RuleStream(SHOP, STREAM),)), Source(SHOP, STREAM)
        self.app = App("bench", (source,), "control", {}, (kernel,), merges={DECISION_PARTS: merge_decisions})
        self.ingest, self.process = Ingest(self.app), InProcessApp(self.app)
        controls = [control_record(n, f"above-{limit}", rule(limit)) for n, limit in enumerate(LIMITS)]
        if self.decides:
            controls.append(control_record(len(LIMITS), "decision-policy/bench", orjson.dumps(POLICY)))
        self.process.cut(controls, CLOCK_MS)

    def cut(self, number: int, batch: pa.RecordBatch) -> None:
        """Run a cut, and keep the scores of its decisions."""
        begin = time.process_time()
        blocks = [*self.ingest.process([batch], CutClock.at(CLOCK_MS + number), dict.fromkeys(range(4), 0))]
        outputs = self.process.run(blocks)
        records = merge_records(self.app, (record for output in outputs for record in output.all_records()))
        self.seconds.append(time.process_time() - begin)
        for one in (orjson.loads(record.value or b"") for record in records if record.lane == DECISIONS):
            self.scores[one["source"]["partition"], one["source"]["offset"]] = one["score"]


def rule(limit: int) -> bytes:
    """Return the record of a rule on amounts above a limit."""
    document = {"id": f"above-{limit}", "version": 1, "owner": "bench", "on": STREAM, "where": f"amount > {limit}"}
    then = {"severity": "low", "outcome": "review", "score": 10, "message": "{amount}"}
    return orjson.dumps(document | {"then": then})


def measure(cuts: int, rows: int) -> Result:
    """Return the CPU of both apps and what each decision costs."""
    sides, expected, offset = (Side(decides=False), Side(decides=True)), dict[tuple[int, int], int](), 0
    for number in range(cuts):
        frame = EventSet(rows, seed=number).columns()
        values, places = to_json(frame).to_list(), np.arange(offset, offset + rows)
        for place, cents in zip(places.tolist(), frame["amount"].to_list(), strict=True):
            if score := 10 * sum(cents > limit * 100 for limit in LIMITS):
                expected[0, place] = score
        offset += rows
        zeros = np.zeros(rows, np.int32)
        batch = raw_batch(zeros, zeros, places, [None] * rows, values, [None] * rows)
        for side in sides if number % 2 else sides[::-1]:
            side.cut(number, batch)
    without, decided = sides
    assert decided.scores == expected, "the decisions of the generator"
    assert without.scores == {}
    differences = [b - a for a, b in zip(without.seconds[1:], decided.seconds[1:], strict=True)]
    middle = statistics.median(differences)
    return {
        "workload": "decisions",
        "events": cuts * rows,
        "decisions_per_million": round(len(expected) / (cuts * rows) * 1e6),
        "cpu_seconds_per_million": {
            "without": round(statistics.median(without.seconds[1:]) / rows * 1e6, 3),
            "difference": round(middle / rows * 1e6, 3),
        },
        "microseconds_per_decision": round(middle * 1e6 / (len(expected) / cuts), 1),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=21)
    parser.add_argument("--rows", type=int, default=50_000)
    options = parser.parse_args()
    show(measure(options.cuts, options.rows))
