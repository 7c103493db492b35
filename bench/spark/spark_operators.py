"""Runs a job with Spark's own stateful operators, for the comparison with Headgate.

It uses Spark's Kafka source and sink (at least once) and the engine's session settings with both of the JVM's
compilers, and prints one line of JSON per batch. ``--variant``: the one of Spark's two Python interfaces that runs the
keyed function.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from bench.harness.jobs import Job, Kind, from_json
from bench.spark.spark_copy import FETCH, FIELDS, JAVA
from streamcore.spark.session import SparkSettings, open_session

if TYPE_CHECKING:
    import pandas as pd

_POLL_S = 0.05
_FUNNEL = ("view", "cart_add", "checkout", "payment")
#: Spark's own Python workers; those of the engine work without pandas.
_OWN_WORKERS = {"spark.python.daemon.module": "pyspark.daemon"}
_NUMBER = {"amount": "decimal(18,2)", "quantity": "long"}
_ZERO = {"amount": Decimal(0), "quantity": 0}


def main() -> None:
    """Run until the process is stopped."""
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "source", "target", "checkpoint", "jars", "job"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--variant", choices=("rows", "pandas"), default="rows")
    arguments = parser.parse_args()
    job = from_json(arguments.job)
    settings = SparkSettings(jars=Path(arguments.jars), java_options=JAVA, extra=_OWN_WORKERS)
    spark = open_session("bench-spark", settings)
    results = _results(_events(spark, job, arguments.bootstrap, arguments.source), job, arguments.variant)
    query = (
        results.select(f.col("user_id").alias("key"), f.to_json(f.struct("*")).alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("kafka.compression.type", "lz4")
        .option("topic", arguments.target)
        .option("checkpointLocation", arguments.checkpoint)
        .outputMode("append")
        .start()
    )
    last_batch = -1
    while query.isActive:
        time.sleep(_POLL_S)
        for progress in query.recentProgress:
            if progress["batchId"] > last_batch:
                last_batch = progress["batchId"]
                _print(progress)
    sys.exit(str(query.exception()))


def _events(spark: SparkSession, job: Job, bootstrap: str, topic: str) -> DataFrame:
    frame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .options(**FETCH)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", job.per_cut)
        .load()
    )
    events = frame.select(f.from_json(f.col("value").cast("string"), FIELDS).alias("e")).select("e.*")
    return events.withColumn("ts", f.timestamp_millis("ts")).withWatermark("ts", f"{job.delay_ms} milliseconds")


def _results(events: DataFrame, job: Job, variant: str) -> DataFrame:
    if job.kind is Kind.PROCESS:
        return _process(events, job, variant)
    if job.kind is Kind.READ:
        return events.where(f.col(job.value) < 0).select("user_id", "ts", job.value)
    if job.kind is Kind.ANALYTICS:
        return _analytics(events, job)
    window = _window(job).alias("window")
    sums = events.groupBy(window, "user_id").agg(f.sum(job.value).alias("revenue"), f.count("*").alias("orders"))
    return sums.select("user_id", f.col("window.start"), f.col("window.end"), "revenue", "orders")


def _analytics(events: DataFrame, job: Job) -> DataFrame:
    """Compute what the sessions app computes. The funnel is a fold over a session's steps, sorted by time."""
    step = f.when(~f.coalesce(f.col("status").isin("declined", "failed"), f.lit(False)), f.col("type"))
    money = f.when(step == "payment", f.col("amount")).when(step == "refund", -f.col("amount"))
    place = f.array_position(f.array(*map(f.lit, _FUNNEL)), step) - 1
    funnel_step_at = f.when(step.isin(*_FUNNEL), f.struct("ts", place.cast("int").alias("place")))
    page_at = f.when(f.col("merchant").isNotNull(), f.struct("ts", "merchant"))
    sessions = events.groupBy(_window(job).alias("window"), "user_id").agg(
        f.max("ts").alias("last"),
        f.coalesce(f.sum(money), f.lit(0)).alias("revenue"),
        f.count("*").alias("orders"),
        f.size(f.collect_set("merchant")).alias("pages"),
        f.min_by("merchant", page_at).alias("first_page"),
        f.max_by("merchant", page_at).alias("last_page"),
        f.coalesce(f.max(f.when(step == "payment", 1)), f.lit(0)).alias("converted"),
        f.sort_array(f.collect_list(funnel_step_at)).alias("taken"),
    )
    funnel_step = f.aggregate(
        "taken", f.lit(0), lambda reached, step_taken: reached + (step_taken["place"] == reached).cast("int")
    )
    names = ("revenue", "orders", "pages", "first_page", "last_page", "converted")
    return sessions.select(
        "user_id", f.col("window.start"), f.col("window.end"), *names, funnel_step.alias("funnel_step")
    )


def _window(job: Job) -> Column:
    if job.kind in (Kind.SESSIONS, Kind.ANALYTICS):
        return f.session_window("ts", f"{job.gap_ms} milliseconds")
    return f.window("ts", f"{job.size_ms} milliseconds", f"{job.slide_ms} milliseconds")


# --- the keyed function ---------------------------------------------------------------------------------------------


def _process(events: DataFrame, job: Job, variant: str) -> DataFrame:
    number = _NUMBER[job.value]
    output = f"user_id string, orders long, revenue {number}"
    keyed = events.select("user_id", f.col(job.value).alias("value")).groupBy("user_id")
    if variant == "pandas":
        return keyed.transformWithStateInPandas(_TotalsInPandas(job), output, "Append", "None")
    return keyed.transformWithState(_Totals(job), output, "Append", "None")


class _Totals(StatefulProcessor):
    """Counts and sums the events of a user, and emits both at every ``every``-th event."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getValueState("total", f"orders long, total {_NUMBER[self.job.value]}")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[str, ...],
        rows: Iterator[Row],
        timerValues: object,  # noqa: ARG002, N803 - Spark's signature
    ) -> Iterator[Row]:
        """Process all rows of one user in one batch."""
        orders, total = self.state.get() or (0, _ZERO[self.job.value])
        for row in rows:
            orders += 1
            total += row.value
            if orders % self.job.every == 0:
                yield Row(user_id=key[0], orders=orders, revenue=total)
        self.state.update((orders, total))

    def close(self) -> None:
        """Do nothing."""


class _TotalsInPandas(_Totals):
    """``_Totals`` for Spark's pandas interface."""

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[str, ...],
        rows: Iterator[pd.DataFrame],
        timerValues: object,  # noqa: ARG002, N803 - Spark's signature
    ) -> Iterator[pd.DataFrame]:
        """Process all rows of one user in one batch."""
        import pandas as pd

        orders, total = self.state.get() or (0, _ZERO[self.job.value])
        totals = []
        for frame in rows:
            for value in frame["value"]:
                orders += 1
                total += value
                if orders % self.job.every == 0:
                    totals.append((key[0], orders, total))
        self.state.update((orders, total))
        if totals:
            yield pd.DataFrame(totals, columns=["user_id", "orders", "revenue"])


def _print(progress: dict[str, object]) -> None:
    sink = progress["sink"]
    assert isinstance(sink, dict), "Spark's progress has a sink"
    cut = {
        "batch": progress["batchId"],
        "events": progress["numInputRows"],
        "lanes": {"results": max(0, sink["numOutputRows"])},
        "milliseconds": progress["durationMs"],
    }
    sys.stdout.buffer.write(orjson.dumps({"cut": cut}) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
