"""One app, one streaming query: events, control and heartbeat in one cut, under one offset log.

The clock is the batch's own timestamp, which Spark writes to the offset log with the offsets and reads back when it
runs the batch again. The ``rate`` source only makes sure that an idle app gets a cut a second.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows it by

from streamcore.app import CONTROL, HEARTBEAT, App
from streamcore.spark.processor import OUTPUT, PARCEL, PackedApp, ShardProcessor, Stage1


def build_query(
    spark: SparkSession, app: App, kafka: Mapping[str, str], parallelism: int, starting: str = "earliest"
) -> DataFrame:
    """The app's output, one row a shard and cut (``processor.OUTPUT``). ``kafka``: options of the Kafka source."""
    packed = PackedApp.of(app)
    raw = _events(spark, app, kafka, starting).unionByName(_control(spark, app, kafka)).unionByName(_heartbeat(spark))
    parcels = raw.coalesce(parallelism).mapInArrow(Stage1(packed), PARCEL)
    return parcels.groupBy("shard").transformWithState(ShardProcessor(packed), OUTPUT, "Update", "None")


def _clock() -> Column:
    """The batch's timestamp in milliseconds, folded over nothing: what a higher-order function holds is interpreted.

    Elsewhere Spark writes the timestamp, as a number, into the source of the code that it generates for the plan, and
    that code is compiled anew in every cut, first by Spark and then, loop by loop, by the JVM.
    """
    nothing = F.array().cast("array<long>")
    return F.aggregate(nothing, F.unix_millis(F.current_timestamp()), lambda clock_ms, _: clock_ms).alias("clock_ms")


def _events(spark: SparkSession, app: App, kafka: Mapping[str, str], starting: str) -> DataFrame:
    reader = (
        spark.readStream.format("kafka")
        .options(**kafka)
        .option("subscribe", ",".join(app.topics))
        .option("startingOffsets", starting)
        .option("maxOffsetsPerTrigger", app.limits.events_per_cut)
        .option("failOnDataLoss", "true")
        .name("events")
    )
    index = F.lit(0)
    for number, topic in enumerate(app.topics[1:], start=1):
        index = F.when(F.col("topic") == topic, F.lit(number)).otherwise(index)
    return _kafka_columns(reader.load(), index)


def _control(spark: SparkSession, app: App, kafka: Mapping[str, str]) -> DataFrame:
    """Always from the beginning and never limited: a cut holds every change that was there when it was planned."""
    reader = (
        spark.readStream.format("kafka")
        .options(**kafka)
        .option("subscribe", app.control_topic)
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "false")  # compaction removes superseded records, which is no loss
        .name("control")
    )
    return _kafka_columns(reader.load(), F.lit(CONTROL))


def _kafka_columns(frame: DataFrame, source: Column) -> DataFrame:
    return frame.select(
        source.cast("int").alias("source"),
        F.col("partition"),
        F.col("offset"),
        F.unix_millis("timestamp").alias("ingest_ms"),
        _clock(),
        F.col("key"),
        F.col("value"),
    )


def _heartbeat(spark: SparkSession) -> DataFrame:
    reader = spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).name("heartbeat")
    return reader.load().select(
        F.lit(HEARTBEAT).alias("source"),
        F.lit(0).alias("partition"),
        F.col("value").alias("offset"),
        F.lit(0).cast("long").alias("ingest_ms"),
        _clock(),
        F.lit(None).cast("binary").alias("key"),
        F.lit(None).cast("binary").alias("value"),
    )
