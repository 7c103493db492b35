"""The settings that every service has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from streamcore.limits import Limits
from streamcore.location import LocationField, ObjectPath
from streamcore.service.documents import Document, KafkaDocument, NotNegative, Positive
from streamcore.service.executors import ExecutorsDocument
from streamcore.service.telemetry import TelemetryDocument
from streamcore.spark.session import SparkSettings
from streamcore.watermark import WatermarkStrategy

_FIXED = (
    *("app", "checkpoint", "shards", "jars", "parallelism", "driver_memory", "local_dir", "java_options"),
    *("executors", "telemetry", "spark"),
)


class RestoreDocument(Document):
    """What somebody decided for a restore: operators or tables whose state goes, and what is gone on in spite of
    (``streamcore.savepoint.plan.ACCEPTABLE``)."""

    drop: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()


class ServiceSettings(Document):
    """A service. ``shards`` is fixed by the first start; ``parallelism`` is best the number of cores, of all executors
    where there are some. ``checkpoint``, ``savepoints``: a folder, or ``s3://bucket/prefix``, whose server and keys the
    environment names (``streamcore.storage.s3``). ``jars``: a folder of further jars, where Spark's own do not hold
    them."""

    #: Modules that a worker needs, imported before the first one is forked.
    preload: ClassVar[tuple[str, ...]] = ()

    app: str
    kafka: KafkaDocument
    checkpoint: LocationField
    jars: Path | None = None
    shards: Positive = 4
    parallelism: Positive = 2
    driver_memory: str = "1g"
    trigger_ms: NotNegative = 0
    starting_offsets: Annotated[str, Field(pattern="^(earliest|latest)$")] = "earliest"
    disorder_ms: NotNegative = 10_000
    idle_ms: Positive = 30_000
    future_ms: Positive = 300_000
    record_bytes: Positive = 256 * 1024
    events_per_cut: Positive = 200_000
    output_partitions: Positive = 4
    output_retention_ms: Positive = 7 * 86_400_000
    local_dir: Path | None = None
    java_options: tuple[str, ...] = ()
    executors: ExecutorsDocument | None = None
    telemetry: TelemetryDocument = TelemetryDocument()
    spark: dict[str, str] = Field(default_factory=dict)
    savepoints: str | None = None
    restore: RestoreDocument = RestoreDocument()

    def fixed(self, other: ServiceSettings) -> tuple[str, ...]:
        """What differs from ``other`` and is decided once in a process' life: by its session, ports and checkpoint."""
        return tuple(name for name in _FIXED if getattr(self, name) != getattr(other, name))

    @property
    def savepoint_place(self) -> str:
        """Where the savepoints of all apps are: a folder beside the checkpoint where nothing is said."""
        return self.savepoints or str(self.checkpoint.parent / "savepoints")

    @property
    def control_topic(self) -> str:
        """Where rules and other control records are published."""
        return f"{self.app}.control"

    @property
    def markers_topic(self) -> str:
        """Where the writer's markers are."""
        return f"{self.app}.markers"

    def lane_topic(self, lane: str) -> str:
        """The topic of a lane."""
        return f"{self.app}.{lane}"

    @property
    def watermark(self) -> WatermarkStrategy:
        """For every stream."""
        return WatermarkStrategy(self.disorder_ms, self.idle_ms)

    @property
    def spark_session(self) -> SparkSettings:
        """Of the JVM; ``ConfigError`` for executors where none can be."""
        executors = None if self.executors is None else self.executors.value(os.environ)
        return SparkSettings(
            jars=self.jars,
            master=f"local[{self.parallelism}]",
            parallelism=self.parallelism,
            driver_memory=self.driver_memory,
            local_dir=self.local_dir,
            java_options=self.java_options,
            preload=self.preload,
            executors=executors,
            objects=isinstance(self.checkpoint, ObjectPath),
            json_logs=self.telemetry.logs == "json",
            extra=self.spark,
        )

    @property
    def limits(self) -> Limits:
        """Of records and cuts."""
        return Limits(self.record_bytes, self.future_ms, self.events_per_cut)
