"""One app, one streaming query. Spark gives batches, state and tasks; what a batch reads is decided by the runner.

The source of the query is one empty row a task and batch. A task of stage 1 learns its share of the cut from a property
of the job, fetches it, decodes it and hands out parcels, so an event never passes the JVM as a row. Spark's own Kafka
source is not used: moving events as rows from one language to the other was the largest part of what the JVM did.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, GroupedData, SparkSession

from streamcore.app import App
from streamcore.kafka.settings import KafkaSettings
from streamcore.location import Location, for_spark
from streamcore.spark.processor import INITIAL, OUTPUT, PARCEL, PackedApp, ShardProcessor, Stage1


def build_query(
    spark: SparkSession, app: App, kafka: KafkaSettings, tasks: int, initial: Location | None = None
) -> DataFrame:
    """The app's output, one row a shard and cut (``processor.OUTPUT``).

    ``initial``: the state that shards find before batch 0, a file a stage (``streamcore.savepoint.restoring``).
    """
    last = len(app.stages) - 1
    packed = PackedApp.of(app)
    batches = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", tasks).option("numPartitions", tasks)
    parcels = batches.load().select("value").mapInArrow(Stage1(packed, kafka), PARCEL)
    for stage in range(len(app.stages)):
        schema = OUTPUT if stage == last else PARCEL
        given = None if initial is None else _initial(spark, initial, stage)
        processor = ShardProcessor(packed, stage)
        parcels = parcels.groupBy("shard").transformWithState(processor, schema, "Append", "None", given)
    return parcels


def _initial(spark: SparkSession, folder: Location, stage: int) -> GroupedData:
    return spark.read.schema(INITIAL).parquet(for_spark(folder / f"stage-{stage}.parquet")).groupBy("shard")
