"""Measures the sessions app's kernel in process, in CPU-seconds per million events.

    POLARS_MAX_THREADS=1 taskset -c 0 python -m bench.kernels.sessions [--events N] [--early]

It measures the operator alone with the aggregates of the app (``headgate_sessions.plan``), with the state of
each cut committed to memory; the additional cost of each aggregate; and the whole topology in a simulation. Sessions
are compared with DuckDB's.

``--early``: the operator also emits changed sessions every second of the clock, and a cut is a second.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from bench.harness import operator_oracle
from bench.harness.events import SCHEMA
from bench.harness.in_process import split_into_cuts
from bench.harness.jobs import ANALYTICS, Job
from bench.harness.result import Figure, show
from bench.harness.yardstick import Yardstick
from bench.spark.throughput import compare
from bench.spark.topologies import sessions_settings, topology
from headgate_sessions.plan import build_plan
from streamcore.aggregates import Aggregate, Count
from streamcore.durations import Milliseconds
from streamcore.limits import StateSettings
from streamcore.operators.base import MAIN, CutTime
from streamcore.operators.windows.revised_operator import RevisedWindows
from streamcore.schema import StreamSchema
from streamcore.state.blob_store import MemoryBlobs
from streamcore.state.state_log import StateLog
from streamcore.topology.kernel import StatelessStageRunner
from streamcore.topology.simulation import Simulation
from streamcore.watermark import NO_WATERMARK
from streamcore.windowing import Accumulation, AfterWatermark, RevisionPolicy, Session, WindowSpec

_PER_CUT = 100_000


def main() -> None:
    """Measure, compare with DuckDB, and print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--early", action="store_true")
    arguments = parser.parse_args()
    job = replace(ANALYTICS, per_cut=_PER_CUT)
    cuts = split_into_cuts(job, job.events(arguments.events))
    million = arguments.events / 1e6
    policy = RevisionPolicy(1_000, at_end=True) if arguments.early else RevisionPolicy()
    aggregates = build_plan(sessions_settings(job), StreamSchema.parse(SCHEMA)).aggregates
    with Yardstick() as yardstick:
        seconds, records = _run_operator(job, cuts, policy, aggregates)
        single = {
            name: _run_operator(job, cuts, policy, {name: aggregate})[0] for name, aggregate in aggregates.items()
        }
        count_only = _run_operator(job, cuts, policy, {"events": Count()})[0]
        simulated, checked = _run_simulation(job, cuts, arguments.events)
        show(
            {
                "bench": "sessions_in_process",
                "events": arguments.events,
                "early": arguments.early,
                "records": records,
                "operator_cpu_seconds_per_million": round(seconds / million, 2),
                "by_aggregate": {name: round((spent - count_only) / million, 2) for name, spent in single.items()},
                "sessions_alone": round(count_only / million, 2),
                "simulation_cpu_seconds_per_million": round(simulated / million, 2),
                "rows": checked,
                "checked": True,
                **yardstick.figures(),
            }
        )


def _run_operator(
    job: Job, cuts: list[pl.DataFrame], policy: RevisionPolicy, aggregates: Mapping[str, Aggregate]
) -> tuple[float, int]:
    """Return the CPU-seconds of all steps and commits, and the number of emitted rows."""
    plan = topology("bench", job)
    (node,) = plan.stateful_nodes
    schema = node.keyed[0].schema
    spec = WindowSpec(Session(Milliseconds(job.gap_ms)), AfterWatermark(), Accumulation.ACCUMULATING)
    operator = RevisedWindows(spec, policy, ("user_id",), schema, aggregates)
    log, blobs, head = StateLog(StateSettings()), MemoryBlobs(), StatelessStageRunner(plan)
    watermark_ms, seconds, records = NO_WATERMARK, 0.0, 0
    for number, cut in enumerate(cuts):
        (rows,) = head.rows(0, cut).rows.values()
        latest_ms = cut["__event_ms"].max()
        assert isinstance(latest_ms, int), "a cut has events"
        begin = time.process_time()
        emitted = operator.step([rows], CutTime(watermark_ms, latest_ms - job.delay_ms, number * 1_000))[MAIN]
        log.commit(blobs, operator.tables(), {})
        seconds += time.process_time() - begin
        watermark_ms = latest_ms - job.delay_ms
        records += emitted.height
    return seconds, records


def _run_simulation(job: Job, cuts: list[pl.DataFrame], events: int) -> tuple[float, Figure]:
    """Return the CPU-seconds of the whole topology, after a comparison of its rows with the oracle's."""
    simulation = Simulation(topology("bench", job))
    (source,) = simulation.topology.sources
    inputs = [cut.drop("__event_ms") for cut in cuts]
    begin = time.process_time()
    found = [simulation.cut({source.name: cut})["results"] for cut in inputs]
    seconds = time.process_time() - begin
    columns = job.events(events).columns()
    watermark_ms = int(columns["ts"].to_numpy().max()) - job.delay_ms
    wanted = operator_oracle.expected_rows(job, columns, watermark_ms=watermark_ms, touching_merge=False)
    rows = pl.concat([frame for frame in found if frame.width])
    checked = compare(operator_oracle.read_rows(job, rows.write_ndjson().encode().splitlines()), wanted)
    return seconds, checked["alerts"]


if __name__ == "__main__":
    main()
