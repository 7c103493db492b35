"""Builds the streaming query of an app. Spark provides batches, state and tasks; the runner plans which offsets a batch
reads.

The source of the query emits one placeholder row per task and batch. A task of stage 1 reads its task assignment from a
property of the Spark job, fetches and decodes its records, and emits shuffle blocks, so events never pass through the
JVM as rows. A block of a direct exchange goes to its stage around the stages before: both read the one shuffle of
stage 1. Spark's Kafka source is not used, because moving events as rows between the JVM and Python was the largest
part of the JVM's work.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas import functions as vectorized_functions

from streamcore.app import App
from streamcore.engine.block_kind import BlockKind
from streamcore.kafka.settings import KafkaSettings
from streamcore.schema_registry.store import SchemaStore
from streamcore.spark.session import RETAINED
from streamcore.spark.stages import FileStage, ShardProcessor, Stage1
from streamcore.spark.wire import BLOCK_SCHEMA, OUTPUT_SCHEMA, PackedApp, StageFolder
from streamcore.state.cut_files import MIN_RETAINED
from streamcore.storage import ObjectStore

# Before it builds a function on Arrow data, pyspark checks the version of pandas, which costs 0.3 seconds of processor
# time to import. Such a function never meets pandas.
vars(vectorized_functions)["require_minimum_pandas_version"] = lambda: None


def build_query(
    spark: SparkSession,
    app: App,
    kafka: KafkaSettings,
    tasks: int,
    folder: ObjectStore,
    initial: ObjectStore | None = None,
    schemas: SchemaStore | None = None,
) -> DataFrame:
    """Return the frame of the app's output, one row per shard and cut (``wire.OUTPUT_SCHEMA``).

    ``tasks``: number of tasks of stage 1. ``folder``: of the state of the stages before the last. ``initial``: folder
    with the state that the shards begin with (``streamcore.savepoint.initial_state``), or None. ``schemas``: those of a
    registry, or None.
    """
    last = len(app.stages) - 1
    retained = count_retained(spark)
    packed = PackedApp.pack(app)
    batches = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", tasks).option("numPartitions", tasks)
    blocks = batches.load().select("value").mapInArrow(Stage1(packed, kafka, schemas), BLOCK_SCHEMA)
    direct, shuffled = find_direct_kinds(app), blocks.repartition("shard")
    blocks = shuffled
    if direct:
        blocks = shuffled.where(_select(sorted(kind for kinds in direct.values() for kind in kinds), "NOT"))
    for stage in range(last):
        processor = FileStage(packed, stage, StageFolder.of(folder, stage, retained), initial)
        blocks = blocks.mapInArrow(processor, BLOCK_SCHEMA).repartition("shard")
        if stage + 1 in direct:
            blocks = blocks.union(shuffled.where(_select(direct[stage + 1])))
    keyed = blocks.groupBy("shard")
    return keyed.transformWithState(ShardProcessor(packed, last, initial), OUTPUT_SCHEMA, "Append", "None")


def count_retained(spark: SparkSession) -> int:
    """Return the number of batches whose state stays."""
    return max(MIN_RETAINED, int(spark.conf.get(RETAINED) or MIN_RETAINED))


def find_direct_kinds(app: App) -> dict[int, list[int]]:
    """Return the kinds of the blocks that go around stages, by the stage to which they go."""
    kinds: dict[int, list[int]] = {}
    for index, exchange in enumerate(app.exchanges):
        if exchange.direct and exchange.stage:
            # A union in front of another shuffle would put its rows into other partitions than those of its shards.
            assert exchange.stage == len(app.stages) - 1, f"direct exchange {index} goes to the last stage"
            kinds.setdefault(exchange.stage, []).append(BlockKind.ROWS + index)
    return kinds


def _select(kinds: Sequence[int], negation: str = "") -> str:
    """Return the condition for blocks of these kinds or, with a negation, of all others.

    It names the number of the task, so Spark takes it for one that may change, and does not push it below the shuffle:
    two shuffles with conditions of their own would be two runs of stage 1.
    """
    return f"if(spark_partition_id() >= 0, {negation} kind IN ({', '.join(map(str, kinds))}), false)"
