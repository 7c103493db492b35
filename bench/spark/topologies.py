"""Runs a job as a Headgate topology, and prints one line of JSON per cut."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from bench.harness.events import SCHEMA
from bench.harness.jobs import Job, Kind, from_json
from headgate.demo.shop.session_columns import shop_entries
from headgate_sessions.app import build_sessions
from headgate_sessions.plan import build_plan
from headgate_sessions.session_records import session_rows
from headgate_sessions.settings import SessionsSettings
from rulecore.mapping.failed_rows import keep_valid
from streamcore.aggregates import Count, Sum
from streamcore.durations import Milliseconds
from streamcore.errors import Retryable
from streamcore.kafka.settings import KafkaSettings
from streamcore.keyed import ProcessContext, ProcessFunction, ValueState
from streamcore.limits import Limits
from streamcore.operators.base import MAIN
from streamcore.schema import StreamSchema
from streamcore.spark.launch import run_app
from streamcore.spark.session import SparkSettings
from streamcore.topology.stream import Stream, source
from streamcore.topology.topology import Topology
from streamcore.watermark import bounded_out_of_orderness
from streamcore.windowing import Assigner, Session, Sliding, Tumbling

LANE = "results"
_PRELOAD = (
    "streamcore.topology.kernel",
    "streamcore.operators.windows.operator",
    "streamcore.operators.process",
    "streamcore.operators.windows.revised_operator",
)
_STREAM = StreamSchema.parse(SCHEMA)


def topology(name: str, job: Job) -> Topology:
    """Build the topology of a job, with the output columns of Spark's side."""
    is_raw = job.kind is Kind.ANALYTICS  # as in the sessions app
    events = source(_STREAM, bounded_out_of_orderness(Milliseconds(job.delay_ms)), raw=is_raw)
    return Topology(name, _results(events, job).sink(LANE, key="user_id"))


def _results(events: Stream, job: Job) -> Stream:
    if job.kind is Kind.ANALYTICS:
        return _analytics(events, job)
    if job.kind is Kind.READ:
        return events.filter(pl.col(job.value) < 0).select("user_id", "ts", job.value)
    if job.kind is Kind.PROCESS:
        values = events.select("user_id", pl.col(job.value).alias("value"))
        return values.key_by("user_id").process(_FUNCTIONS[job.value](job.every))
    sums = events.key_by("user_id").window(_assigner(job)).aggregate(revenue=Sum(job.value), orders=Count())
    return sums.select(
        "user_id",
        pl.col("window_start").alias("start"),
        pl.col("window_end").alias("end"),
        "revenue",
        "orders",
    )


def _analytics(events: Stream, job: Job) -> Stream:
    """Compute the sessions with the sessions app, as one record per session."""
    settings = sessions_settings(job)
    plan = build_plan(settings, _STREAM)
    computed = keep_valid(events.flat_map(plan.events), [])
    return session_rows(build_sessions(computed, settings, plan), plan).select(
        "user_id",
        pl.col("started_at").alias("start"),
        (pl.col("ended_at") + pl.duration(milliseconds=job.gap_ms)).alias("end"),
        "revenue",
        pl.col("events").alias("orders"),
        "pages",
        "first_page",
        "last_page",
        pl.col("converted").cast(pl.Int8),
        "funnel_step",
    )


def sessions_settings(job: Job) -> SessionsSettings:
    """Return the settings of the sessions app for the benchmark's events."""
    settings = {
        "kafka": {"bootstrap": "unused:1"},
        "checkpoint": "unused",
        "jars": "unused",
        "stream": {"schema_file": "unused", "topic": "unused"},
        **shop_entries("merchant"),
        "dashboard_metrics": None,
        "gap": {"gap_ms": job.gap_ms},
        "lateness_ms": 0,
        "early_ms": 0,
        "deduplicate_ms": 0,
    }
    return SessionsSettings.model_validate(settings)


def _assigner(job: Job) -> Assigner:
    if job.kind is Kind.SESSIONS:
        return Session(Milliseconds(job.gap_ms))
    return (
        Tumbling(Milliseconds(job.size_ms))
        if job.size_ms == job.slide_ms
        else Sliding(Milliseconds(job.size_ms), Milliseconds(job.slide_ms))
    )


# --- the keyed function ---------------------------------------------------------------------------------------------


class _Totals(ProcessFunction):
    """Counts and sums the events of a user, and emits both at every ``every``-th event."""

    orders = ValueState(int, default=0)
    total: Any

    def __init__(self, every: int) -> None:
        self.every = every

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:  # noqa: ARG002 - the contract's
        self.orders += 1
        self.total += event.value
        if self.orders % self.every == 0:
            yield {"user_id": event.user_id, "orders": self.orders, "revenue": self.total}


class _Amounts(_Totals):
    outputs = {MAIN: {"user_id": pl.String, "orders": pl.Int64, "revenue": pl.Decimal(18, 2)}}  # noqa: RUF012 - no code changes it
    total = ValueState(pl.Decimal(18, 2), default=Decimal(0))


class _Quantities(_Totals):
    outputs = {MAIN: {"user_id": pl.String, "orders": pl.Int64, "revenue": pl.Int64}}  # noqa: RUF012 - no code changes it
    total = ValueState(int, default=0)


_FUNCTIONS = {"amount": _Amounts, "quantity": _Quantities}


def main() -> None:
    """Run the topology until the process is stopped."""
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "source", "name", "checkpoint", "jars", "job"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("parallelism", "shards"):
        parser.add_argument(f"--{name}", required=True, type=int)
    arguments = parser.parse_args()
    job = from_json(arguments.job)
    app = topology(arguments.name, job).app(
        topics={str(SCHEMA["name"]): arguments.source},
        shards=arguments.shards,
        limits=Limits(events_per_cut=job.per_cut),
    )
    spark = SparkSettings(
        jars=Path(arguments.jars),
        master=f"local[{arguments.parallelism}]",
        parallelism=arguments.parallelism,
        preload=_PRELOAD,
    )
    from streamcore.engine.report import Listeners
    from streamcore.spark.runner import RunSettings

    kafka = KafkaSettings(arguments.bootstrap)
    run = RunSettings(kafka, Path(arguments.checkpoint), spark, markers_topic=f"{arguments.name}.markers")
    run_app(app, run, Listeners(lambda report: _print({"cut": dataclasses.asdict(report)}), failure=_print_retry))


def _print_retry(error: Retryable) -> None:
    sys.stderr.write(f"trying again: {error}\n")
    sys.stderr.flush()


def _print(document: dict[str, object]) -> None:
    sys.stdout.buffer.write(orjson.dumps(document, default=str) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
