"""What the rules app can be told, as one document: YAML or JSON, checked before anything starts.

Imports little: the app starts its JVM with what is said here, and loads the rest meanwhile.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from streamcore.errors import ConfigError
from streamcore.kafka.settings import KafkaSettings, SaslMechanism, SecurityProtocol
from streamcore.limits import Limits
from streamcore.spark.session import SparkSettings
from streamcore.watermark import WatermarkStrategy

if TYPE_CHECKING:
    from streamcore.schema import StreamSchema

Positive = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KafkaDocument(_Document):
    """How to reach Kafka. The password is named (a file, an environment variable), never written here."""

    bootstrap: str
    security: SecurityProtocol = SecurityProtocol.PLAINTEXT
    mechanism: SaslMechanism = SaslMechanism.SCRAM_SHA_512
    username: str | None = None
    password_file: Path | None = None
    password_env: str | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def settings(self) -> KafkaSettings:
        """The engine's value."""
        return KafkaSettings(**self.model_dump())


class StreamDocument(_Document):
    """One input: the file that declares the stream, and the topic it arrives on."""

    schema_file: Path
    topic: str
    reject_extra_fields: bool = False

    def schema_of(self) -> StreamSchema:
        """The stream's schema; ``ConfigError`` names the file."""
        return load_schema(self.schema_file)


class RulesSettings(_Document):
    """The rules app. ``shards`` is fixed by the first start; ``parallelism`` is best the number of cores."""

    app: str = "rules"
    kafka: KafkaDocument
    streams: Annotated[tuple[StreamDocument, ...], Field(min_length=1)]
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
    max_rules: Positive = 20_000
    max_distinct: Positive = 10_000
    max_matches: Positive = 100_000
    compare_every_ms: NotNegative = 60_000
    output_partitions: Positive = 4
    output_retention_ms: Positive = 7 * 86_400_000
    local_dir: Path | None = None
    java_options: tuple[str, ...] = ()
    spark: dict[str, str] = Field(default_factory=dict)

    @property
    def control_topic(self) -> str:
        """Where rules are published."""
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
            preload=("rulecore.kernel",),
            extra=self.spark,
        )

    @property
    def limits(self) -> Limits:
        """Of records and cuts."""
        return Limits(self.record_bytes, self.future_ms, self.events_per_cut)


def load_schema(path: Path) -> StreamSchema:
    """A stream's schema from its YAML file; ``ConfigError`` names the file."""
    from streamcore.schema import StreamSchema

    document = _read_yaml(path)
    try:
        return StreamSchema.parse(document)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def load_settings(path: Path) -> RulesSettings:
    """Settings from a YAML or JSON file; ``ConfigError`` lists every entry that is wrong."""
    document = _read_yaml(path)
    try:
        return RulesSettings.model_validate(document)
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, e['loc'])) or 'document'}: {e['msg']}" for e in error.errors()]
        raise ConfigError("\n".join([f"{path}: settings that cannot be used", *lines])) from error


def _read_yaml(path: Path) -> dict[str, object]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: no YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: must be a mapping of names to values")
    return document
