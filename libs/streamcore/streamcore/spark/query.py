"""One app, one streaming query. Spark gives batches, state and tasks; the runner decides which offsets a batch reads.

The source of the query is one empty row a task and batch. A task of stage 1 reads its assignment from a property of the
job, fetches and decodes its records and emits shuffle blocks, so an event never passes the JVM as a row. Spark's own
Kafka source is not used: moving events as rows from one language to the other was the largest part of the JVM's work.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from streamcore.app import App
from streamcore.kafka.settings import KafkaSettings
from streamcore.spark.stages import ShardProcessor, Stage1
from streamcore.spark.wire import BLOCK_SCHEMA, OUTPUT_SCHEMA, PackedApp
from streamcore.storage import ObjectStore


def build_query(
    spark: SparkSession, app: App, kafka: KafkaSettings, tasks: int, initial: ObjectStore | None = None
) -> DataFrame:
    """Return the app's output, one row a shard and cut (``wire.OUTPUT_SCHEMA``).

    ``initial``: where shards find what they begin with (``streamcore.savepoint.initial_state``).
    """
    last = len(app.stages) - 1
    packed = PackedApp.pack(app)
    batches = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", tasks).option("numPartitions", tasks)
    blocks = batches.load().select("value").mapInArrow(Stage1(packed, kafka), BLOCK_SCHEMA)
    for stage in range(len(app.stages)):
        schema = OUTPUT_SCHEMA if stage == last else BLOCK_SCHEMA
        processor = ShardProcessor(packed, stage, initial)
        blocks = blocks.groupBy("shard").transformWithState(processor, schema, "Append", "None")
    return blocks
