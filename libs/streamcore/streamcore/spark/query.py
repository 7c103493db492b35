"""One app, one streaming query. Spark gives batches, state and tasks; what a batch reads is decided by the runner.

The source of the query is one empty row a task and batch. A task of stage 1 learns its share of the cut from a property
of the job, fetches it, decodes it and hands out parcels, so an event never passes the JVM as a row. Spark's own Kafka
source is not used: moving events as rows from one language to the other was the largest part of what the JVM did.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from streamcore.app import App
from streamcore.kafka.settings import KafkaSettings
from streamcore.spark.processor import OUTPUT, PARCEL, PackedApp, ShardProcessor, Stage1
from streamcore.storage import Folder


def build_query(
    spark: SparkSession, app: App, kafka: KafkaSettings, tasks: int, initial: Folder | None = None
) -> DataFrame:
    """The app's output, one row a shard and cut (``processor.OUTPUT``).

    ``initial``: where shards find what they begin with (``streamcore.savepoint.initial``).
    """
    last = len(app.stages) - 1
    packed = PackedApp.of(app)
    batches = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", tasks).option("numPartitions", tasks)
    parcels = batches.load().select("value").mapInArrow(Stage1(packed, kafka), PARCEL)
    for stage in range(len(app.stages)):
        schema = OUTPUT if stage == last else PARCEL
        processor = ShardProcessor(packed, stage, initial)
        parcels = parcels.groupBy("shard").transformWithState(processor, schema, "Append", "None")
    return parcels
