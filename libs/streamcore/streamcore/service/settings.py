"""The settings that every service has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from streamcore.limits import Limits
from streamcore.service.documents import Document, KafkaDocument, NotNegative, Positive
from streamcore.spark.session import SparkSettings
from streamcore.watermark import WatermarkStrategy


class ServiceSettings(Document):
    """A service. ``shards`` is fixed by the first start; ``parallelism`` is best the number of cores."""

    #: Modules that a worker needs, imported before the first one is forked.
    preload: ClassVar[tuple[str, ...]] = ()

    app: str
    kafka: KafkaDocument
    checkpoint: Path
    jars: Path
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
    spark: dict[str, str] = Field(default_factory=dict)

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
        """Of the JVM."""
        return SparkSettings(
            jars=self.jars,
            master=f"local[{self.parallelism}]",
            parallelism=self.parallelism,
            driver_memory=self.driver_memory,
            local_dir=self.local_dir,
            java_options=self.java_options,
            preload=self.preload,
            extra=self.spark,
        )

    @property
    def limits(self) -> Limits:
        """Of records and cuts."""
        return Limits(self.record_bytes, self.future_ms, self.events_per_cut)
