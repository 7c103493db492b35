"""Builds the streaming query of an app. Spark provides batches, state and tasks; the runner plans which offsets a batch
reads.

The source of the query emits one placeholder row per task and batch. A task of stage 1 reads its task assignment from a
property of the Spark job, fetches and decodes its records, and emits shuffle blocks, so events never pass through the
JVM as rows. Spark's Kafka source is not used, because moving events as rows between the JVM and Python was the largest
part of the JVM's work.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas import functions as vectorized_functions

from streamcore.app import App
from streamcore.kafka.settings import KafkaSettings
from streamcore.schema_registry.store import SchemaStore
from streamcore.spark.stages import ShardProcessor, Stage1
from streamcore.spark.wire import BLOCK_SCHEMA, OUTPUT_SCHEMA, PackedApp
from streamcore.storage import ObjectStore

# Before it builds a function on Arrow data, pyspark checks the version of pandas, which costs 0.3 seconds of processor
# time to import. Such a function never meets pandas.
vars(vectorized_functions)["require_minimum_pandas_version"] = lambda: None


def build_query(
    spark: SparkSession,
    app: App,
    kafka: KafkaSettings,
    tasks: int,
    initial: ObjectStore | None = None,
    schemas: SchemaStore | None = None,
) -> DataFrame:
    """Return the frame of the app's output, one row per shard and cut (``wire.OUTPUT_SCHEMA``).

    ``tasks``: number of tasks of stage 1. ``initial``: folder with the state that the shards begin with
    (``streamcore.savepoint.initial_state``), or None. ``schemas``: those of a registry, or None.
    """
    last = len(app.stages) - 1
    packed = PackedApp.pack(app)
    batches = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", tasks).option("numPartitions", tasks)
    blocks = batches.load().select("value").mapInArrow(Stage1(packed, kafka, schemas), BLOCK_SCHEMA)
    for stage in range(len(app.stages)):
        schema = OUTPUT_SCHEMA if stage == last else BLOCK_SCHEMA
        processor = ShardProcessor(packed, stage, initial)
        blocks = blocks.groupBy("shard").transformWithState(processor, schema, "Append", "None")
    return blocks
