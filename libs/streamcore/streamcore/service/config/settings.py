"""The settings that every service has."""

from __future__ import annotations

import datetime
import enum
import os
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from streamcore.arguments import APP_NAME_RULE, check_app_name
from streamcore.cuts.cut_clock import MAX_CLOCK_AHEAD_MS
from streamcore.durations import Milliseconds
from streamcore.errors import ConfigError
from streamcore.kafka.delivery import CheckpointingMode
from streamcore.kafka.settings import KafkaSettings
from streamcore.key_space import DEFAULT_KEY_GROUPS, MAX_KEY_GROUPS
from streamcore.limits import MAX_BATCH_VALUES, MAX_EVENT_IDS, MAX_RECORD_VALUES, Limits, StateSettings
from streamcore.lineage import LineageSettings
from streamcore.offsets import PLACE_PATTERN
from streamcore.schema_registry.settings import RegistrySettings
from streamcore.service.config.documents import Document, NotNegative, Positive
from streamcore.service.config.executors import ExecutorsDocument
from streamcore.service.config.telemetry import TelemetryDocument
from streamcore.spark.session import MAX_RETAINED, SparkSettings
from streamcore.storage.location import LocationField, ObjectPath
from streamcore.watermark import WatermarkStrategy

#: Settings that a running process cannot change.
_FIXED = (
    *("app", "checkpoint", "shards", "key_groups", "jars", "parallelism", "driver_memory", "local_dir", "java_options"),
    *("executors", "telemetry", "lineage", "spark", "memory_limit_bytes", "retained_checkpoints"),
)


class CheckpointRetention(enum.StrEnum):
    """The fate of the checkpoint when the app ends, by Flink's names."""

    RETAIN = "retain-on-cancellation"
    DELETE = "delete-on-cancellation"


class RestoreDocument(Document):
    """Decisions of a person about a restore."""

    app: Annotated[
        str | None,
        Field(
            description="App whose savepoints this one may start from, as a fork beside it; its own savepoints come "
            "first."
        ),
    ] = None
    drop: Annotated[
        tuple[str, ...],
        Field(description="Operators or tables whose state a restore drops."),
    ] = ()
    accept: Annotated[
        tuple[str, ...],
        Field(
            description="Differences in spite of which a restore continues: unsettled, topic-gone, control-moved, "
            "time-moved or rewind."
        ),
    ] = ()


def _check_app_name(name: str) -> str:
    try:
        check_app_name(name)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return name


#: The name of an app, checked by the rule for names of topics and folders. A service that has a default for it uses
#: this type again, for another field takes the place of the one here.
AppName = Annotated[str, AfterValidator(_check_app_name)]


class ServiceSettings(Document):
    """Settings that every service has. The server and keys of a bucket come from the environment (``storage.s3``)."""

    #: Modules that a worker needs, imported before the first one is forked.
    preload: ClassVar[tuple[str, ...]] = ()

    app: Annotated[
        AppName,
        Field(description=f"Name of the app; its topics and folders begin with it: {APP_NAME_RULE}."),
    ]
    kafka: Annotated[KafkaSettings, Field(description="How to reach Kafka.")]
    schema_registry: Annotated[
        RegistrySettings | None,
        Field(description="How to reach the schema registry; needed by the format registry."),
    ] = None
    checkpoint: Annotated[
        LocationField,
        Field(
            description="Folder of the checkpoint, or s3://bucket/prefix; its server and keys come from the "
            "environment."
        ),
    ]
    jars: Annotated[
        Path | None,
        Field(description="Folder of further jars; needed where Spark's own do not include Kafka's."),
    ] = None
    shards: Annotated[
        Positive,
        Field(description="Number of shards of the state. Another number is an upgrade, from a savepoint."),
    ] = 4
    key_groups: Annotated[
        Positive,
        Field(
            le=MAX_KEY_GROUPS,
            description="Number of key groups, which are divided among the shards; the most shards that the app can "
            "have. Another number is an upgrade, too.",
        ),
    ] = DEFAULT_KEY_GROUPS
    parallelism: Annotated[
        Positive,
        Field(description="Number of Spark partitions; best the number of cores of all executors."),
    ] = 2
    driver_memory: Annotated[str, Field(description="Memory of the driver's JVM, such as 1g.")] = "1g"
    memory_limit_bytes: Annotated[
        Positive | None,
        Field(
            description="Memory that the driver, its JVM and their Python workers may take together: the service warns "
            "at 80 % of it. Without it, the limit of the container counts."
        ),
    ] = None
    state_memory_bytes: Annotated[
        Positive | None,
        Field(
            description="Memory that the keyed tables of one worker may take, in bytes: the keys least recently used "
            "beyond it are kept on the local disk. Without it all keys are in memory."
        ),
    ] = None
    trigger_ms: Annotated[
        NotNegative,
        Field(
            description="Checkpoint interval: shortest time between the starts of two batches, in milliseconds; 0 "
            "starts at once."
        ),
    ] = 0
    checkpointing_mode: Annotated[
        CheckpointingMode,
        Field(
            description="exactly-once: the records of a batch are one Kafka transaction, which a read_committed reader "
            "sees when it ends. at-least-once: they are written without a transaction and visible before the batch is "
            "committed; nothing is lost, and a batch that runs again after a crash writes its records again. Tables of "
            "sinks keep the guarantee of their sink."
        ),
    ] = CheckpointingMode.EXACTLY_ONCE
    checkpoint_retention: Annotated[
        CheckpointRetention,
        Field(
            description="retain-on-cancellation: the checkpoint is kept, and the next start continues there. "
            "delete-on-cancellation: the app deletes it when its input ends (ending_offsets, files), after a drain "
            "command, and after Ctrl-C (SIGINT); never after a failure, nor after SIGTERM, which a machine sends when "
            "it shuts down. The next start then begins anew. Savepoints and output stay. Not for an app that an "
            "operator promotes: there deletionPolicy decides."
        ),
    ] = CheckpointRetention.RETAIN
    retained_checkpoints: Annotated[
        int,
        Field(
            ge=2,
            le=MAX_RETAINED,
            description="Number of checkpoints that are kept, one a batch: the state after each of the last batches.",
        ),
    ] = 20
    starting_offsets: Annotated[
        Annotated[str, Field(pattern=PLACE_PATTERN)],
        Field(
            description="Where the first start begins in a topic: earliest, latest, an offset of every partition, or a "
            "time with its zone such as 2026-12-01T08:00:00Z, by the timestamps of the records."
        ),
    ] = "earliest"
    ending_offsets: Annotated[
        Annotated[str, Field(pattern=PLACE_PATTERN)] | None,
        Field(
            description="Where the topics end, in the forms of starting_offsets, as it is at the first start: the app "
            "reads so far, closes all windows and stops. Without it topics have no end."
        ),
    ] = None
    max_out_of_orderness_ms: Annotated[
        NotNegative,
        Field(description="Event time in milliseconds by which events may arrive out of order; later ones are late."),
    ] = 10_000
    idle_timeout_ms: Annotated[
        Positive,
        Field(
            description="Time in milliseconds without events after which a partition no longer holds back the "
            "watermark."
        ),
    ] = 30_000
    max_future_ms: Annotated[
        Positive,
        Field(description="Milliseconds by which an event's time may be ahead of the clock; others are rejected."),
    ] = 300_000
    min_event_time: Annotated[
        datetime.date | None,
        Field(
            description="The earliest day (UTC) of an event that is plausible, such as 1990-01-01; earlier events are "
            "dead letters. Without it those are whose time is a number of ten digits in a wrong unit: seconds that are "
            "read as milliseconds."
        ),
    ] = None
    max_event_ids: Annotated[
        Positive,
        Field(
            description="Most event ids that one shard remembers of a stream with `deduplicate`, at about 60 bytes "
            "each; beyond it the oldest are forgotten, and an event as old as these is late.",
            le=MAX_EVENT_IDS,
        ),
    ] = 10_000_000
    max_clock_ahead_ms: Annotated[
        Positive,
        Field(
            description="Milliseconds by which the clock of the last cut may be ahead of the machine's clock at the "
            "start; with more the start is rejected, because one of both clocks is wrong."
        ),
    ] = MAX_CLOCK_AHEAD_MS
    max_record_bytes: Annotated[
        Positive,
        Field(description="Largest size of a record in bytes; larger ones are rejected."),
    ] = 256 * 1024
    max_record_values: Annotated[
        Positive,
        Field(
            description="Most values in the arrays and maps of a record; one with more is rejected. An element that is "
            "a struct also counts as each of its declared members, and an entry of a map as key and value."
        ),
    ] = MAX_RECORD_VALUES
    max_batch_values: Annotated[
        Positive,
        Field(
            description="Most values in the arrays and maps of the records that a task decodes and holds at once, "
            "counted likewise; records with more together are decoded and packed in parts (`divided_batches` in "
            "`headgate_counters`). A value takes about 35 bytes."
        ),
    ] = MAX_BATCH_VALUES
    events_per_cut: Annotated[
        Positive,
        Field(description="Largest number of events in a batch."),
    ] = 200_000
    empty_cut_interval_ms: Annotated[
        Positive,
        Field(
            description="Milliseconds after which a batch begins without new input, so that the clock advances: timers "
            "of processing time and idle_timeout_ms wait so long at most. Each such batch costs processor time: with "
            "a longer interval an app without input costs less.",
            le=60_000,
        ),
    ] = 1_000
    control_records_per_cut: Annotated[
        Positive,
        Field(
            description="Largest number of control records in a batch: rules, lists and deletions. The first batch of "
            "a new app or of a restore takes all that are there."
        ),
    ] = 1_000
    output_partitions: Annotated[
        Positive,
        Field(description="Partitions of the topics that the service creates."),
    ] = 4
    output_retention_ms: Annotated[
        Positive,
        Field(description="Retention of the topics that the service creates, in milliseconds."),
    ] = 7 * 86_400_000
    local_dir: Annotated[
        Path | None,
        Field(description="Folder for Spark's temporary files and for cold keys; without it the system's."),
    ] = None
    java_options: Annotated[tuple[str, ...], Field(description="Further options of the JVM.")] = ()
    executors: Annotated[
        ExecutorsDocument | None,
        Field(description="Executor pods; without it the driver does all work."),
    ] = None
    telemetry: Annotated[TelemetryDocument, Field(description="Metrics, traces and logs.")] = TelemetryDocument()
    lineage: Annotated[
        LineageSettings | None,
        Field(description="Where lineage is sent as OpenLineage events; without it none is."),
    ] = None
    spark: Annotated[dict[str, str], Field(description="Further settings of Spark, by name.")] = Field(
        default_factory=dict
    )
    savepoints: Annotated[
        str | None,
        Field(
            description="Folder of the savepoints, or s3://bucket/prefix; without it the folder savepoints beside the "
            "checkpoint."
        ),
    ] = None
    restore: Annotated[RestoreDocument, Field(description="Decisions for a restore.")] = RestoreDocument()

    def fixed_differences(self, other: ServiceSettings) -> tuple[str, ...]:
        """Return the names of the settings that differ from ``other`` and that a running process cannot change."""
        return tuple(name for name in _FIXED if getattr(self, name) != getattr(other, name))

    @property
    def savepoints_root(self) -> str:
        """The folder of the savepoints: by default ``savepoints`` beside the checkpoint."""
        return self.savepoints or str(self.checkpoint.parent / "savepoints")

    @property
    def control_topic(self) -> str:
        """The control topic of the app."""
        return f"{self.app}.control"

    @property
    def markers_topic(self) -> str:
        """The topic of the app's markers."""
        return f"{self.app}.markers"

    def lane_topic(self, lane: str) -> str:
        """Return the topic of a lane."""
        return f"{self.app}.{lane}"

    @property
    def watermark(self) -> WatermarkStrategy:
        """The watermark strategy of every stream."""
        return WatermarkStrategy(Milliseconds(self.max_out_of_orderness_ms), Milliseconds(self.idle_timeout_ms))

    @property
    def spark_session(self) -> SparkSettings:
        """The settings of the Spark session; ``ConfigError`` if there are executors and no pod (see ``executors``)."""
        executors = None if self.executors is None else self.executors.to_executors(os.environ)
        return SparkSettings(
            jars=self.jars,
            # A task that fails runs once more: a worker that was killed costs its task, not the query.
            master=f"local[{self.parallelism},2]",
            parallelism=self.parallelism,
            driver_memory=self.driver_memory,
            local_dir=self.local_dir,
            java_options=self.java_options,
            preload=self.preload,
            executors=executors,
            objects=isinstance(self.checkpoint, ObjectPath),
            retained_checkpoints=self.retained_checkpoints,
            json_logs=self.telemetry.logs == "json",
            extra=self.spark,
        )

    @property
    def state(self) -> StateSettings:
        """The settings of the state. Executors write files of cold keys to Spark's folder in their own container."""
        folder = self.local_dir if self.executors is None else None
        return StateSettings(memory_bytes=self.state_memory_bytes, local_dir=None if folder is None else str(folder))

    @property
    def limits(self) -> Limits:
        """The limits of records and cuts."""
        return Limits(
            self.max_record_bytes,
            self.max_future_ms,
            self.events_per_cut,
            control_records_per_cut=self.control_records_per_cut,
            max_event_ids=self.max_event_ids,
            max_record_values=self.max_record_values,
            max_batch_values=self.max_batch_values,
            empty_cut_interval_ms=self.empty_cut_interval_ms,
            min_event_ms=_epoch_ms(self.min_event_time),
        )


def _epoch_ms(day: datetime.date | None) -> int | None:
    return None if day is None else (day - datetime.date(1970, 1, 1)).days * 86_400_000
