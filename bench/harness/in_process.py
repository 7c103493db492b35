"""Measures a job in one process and one thread, without Spark, Kafka and JSON.

There are two figures: the operator, with the state of each cut committed to memory; and the whole topology in a
simulation, which adds the shuffle, the ordering of a shard's rows, and the watermark. The measurement runs in a child
process, because Polars reads ``POLARS_MAX_THREADS`` when it is loaded.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace

import orjson
import polars as pl

from bench.harness import operator_oracle
from bench.harness.events import SCHEMA, EventSet, to_json, to_texts
from bench.harness.jobs import Job, Kind, apply_options, from_json
from bench.harness.result import Result, show
from bench.harness.yardstick import Yardstick
from bench.spark.throughput import compare
from bench.spark.topologies import LANE, topology
from streamcore.limits import StateSettings
from streamcore.operators.base import MAIN, CutTime
from streamcore.schema import EVENT_MS, StreamSchema
from streamcore.state.blob_store import MemoryBlobs
from streamcore.state.state_log import StateLog
from streamcore.topology.kernel import StatelessStageRunner
from streamcore.topology.nodes import polars_dtype
from streamcore.topology.simulation import Simulation
from streamcore.watermark import NO_WATERMARK
from streamcore.wire.raw import RAW_KEY, RAW_OFFSET, RAW_PARTITION, RAW_VALUE

_PER_CUT = 100_000
_STREAM = StreamSchema.parse(SCHEMA)


def measure_in_process(workload: str, job: Job, count: int, options: Mapping[str, object]) -> list[Result]:
    """Run the job in a child process; return one result with both figures."""
    job = apply_options(replace(job, per_cut=_PER_CUT), options)
    command = [sys.executable, "-m", "bench.harness.in_process", "--workload", workload, "--job", job.to_json()]
    environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
    child = subprocess.run([*command, "--events", str(count)], stdout=subprocess.PIPE, env=environment, check=True)
    return [orjson.loads(child.stdout)]


def main() -> None:
    """Measure one job, as the child process."""
    parser = argparse.ArgumentParser()
    for name in ("workload", "job"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--events", required=True, type=int)
    arguments = parser.parse_args()
    job, result = from_json(arguments.job), {"workload": arguments.workload, "events": arguments.events}
    events = job.events(arguments.events)
    with Yardstick() as yardstick:
        for name, run in (("operator", _run_operator), ("simulation", _run_simulation)):
            result |= _measure(name, run(job, events), job, events)
        show(result | {"job": asdict(job), "keys": events.users, **yardstick.figures()})


def _measure(name: str, outputs: Iterator[pl.DataFrame], job: Job, events: EventSet) -> Result:
    """Return the CPU-seconds of an iterator after its first item, and compare its rows with the oracle's.

    The iterator prepares its input before it yields the first item, an empty frame.
    """
    next(outputs)
    begin = time.process_time()
    rows = pl.concat(outputs)
    seconds = time.process_time() - begin
    columns = events.columns()
    latest_ms = columns["ts"].to_numpy().max()
    wanted = operator_oracle.expected_rows(job, columns, watermark_ms=latest_ms - job.delay_ms, touching_merge=False)
    values = rows.write_ndjson().encode().splitlines()
    checked = compare(operator_oracle.read_rows(job, values), wanted)
    per_million = round(seconds * 1e6 / events.events, 2)
    return {f"{name}_cpu_seconds_per_million": per_million, "rows": checked["alerts"], "checked": True}


def _run_operator(job: Job, events: EventSet) -> Iterator[pl.DataFrame]:
    """Yield the output of the job's operator, which commits its state after each cut."""
    plan = topology("bench", job)
    (node,) = plan.stateful_nodes
    operator, log, blobs = node.create_operator(), StateLog(StateSettings()), MemoryBlobs()
    head = StatelessStageRunner(plan)
    cuts = [rows for cut in split_into_cuts(job, events) for rows in head.rows(0, cut).rows.values()]
    yield pl.DataFrame()
    watermark_ms = NO_WATERMARK
    for cut in cuts:
        next_ms = max(watermark_ms, _latest_event_ms(cut) - job.delay_ms)
        rows = operator.step([cut], CutTime(watermark_ms, next_ms, 0))[MAIN]
        log.commit(blobs, operator.tables(), {"cut": next_ms})
        watermark_ms = next_ms
        yield rows.rename({"window_start": "start", "window_end": "end"}, strict=False)


def _run_simulation(job: Job, events: EventSet) -> Iterator[pl.DataFrame]:
    """Yield the output of the topology in a simulation."""
    simulation = Simulation(topology("bench", job))
    cuts = [cut.drop(EVENT_MS) for cut in split_into_cuts(job, events)]
    yield pl.DataFrame()
    for cut in cuts:
        yield simulation.cut({_STREAM.name: cut})[LANE]


def split_into_cuts(job: Job, events: EventSet) -> list[pl.DataFrame]:
    """Return the events in order of event time, as a frame per cut with the columns that a topology reads.

    Events of the job ``analytics`` carry their records, as in the sessions app.
    """
    frame = events.columns()
    fields = [pl.col(field.name).cast(polars_dtype(field.type)) for field in _STREAM.fields if field.name != "ts"]
    times = [pl.col("ts").cast(pl.Datetime("ms", "UTC")), pl.col("ts").alias(EVENT_MS)]
    rows = to_texts(frame).select(*fields, *times)
    if job.kind is Kind.ANALYTICS:
        place = [pl.lit(0, pl.Int32).alias(RAW_PARTITION), pl.int_range(pl.len()).alias(RAW_OFFSET)]
        record: list[pl.Expr | pl.Series] = [
            pl.lit(None, pl.Binary).alias(RAW_KEY),
            to_json(frame).cast(pl.Binary).alias(RAW_VALUE),
        ]
        rows = rows.with_columns(*record, *place)
    return [rows[start : start + job.per_cut] for start in range(0, rows.height, job.per_cut)]


def _latest_event_ms(cut: pl.DataFrame) -> int:
    latest = cut[EVENT_MS].max()
    assert isinstance(latest, int), "a cut has events"
    return latest


if __name__ == "__main__":
    main()
