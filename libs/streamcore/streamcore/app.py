"""An app as a value: what it reads, how it is sharded, what it computes and where its lanes end.

The value says everything that the engine needs and nothing about how it runs: the same ``App`` runs on Spark
(``streamcore.spark``) and in-process (``streamcore.local``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamcore.errors import ConfigError
from streamcore.kernel import KernelFactory
from streamcore.limits import Limits, StateSettings
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy

#: ``source`` of raw records of the control topic; events carry the index of their topic in ``App.topics``.
CONTROL = -1

#: A source partition is one number: its topic's index in ``App.topics``, times this, and the partition in the topic.
PARTITIONS_PER_TOPIC = 1 << 16

MAX_STREAMS = 64
MAX_SHARDS = 4096
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}\Z")


def partitions_of(source: int) -> range:
    """Numbers of all source partitions that the topic at this place of ``App.topics`` can have."""
    return range(source * PARTITIONS_PER_TOPIC, (source + 1) * PARTITIONS_PER_TOPIC)


@dataclass(frozen=True, slots=True)
class Source:
    """One stream and the topic that it arrives on."""

    schema: StreamSchema
    topic: str
    reject_extra_fields: bool = False


@dataclass(frozen=True, slots=True)
class App:
    """``shards`` is fixed when the app is first started; parallelism may change, the key space may not.

    ``lanes`` maps each lane that the kernel and the engine use to a topic. ``control_topic`` carries records that
    every shard sees in the same cut.
    """

    name: str
    sources: tuple[Source, ...]
    control_topic: str
    lanes: Mapping[str, str]
    kernel: KernelFactory
    shards: int = 4
    watermark: WatermarkStrategy = field(default_factory=WatermarkStrategy)
    state: StateSettings = field(default_factory=StateSettings)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise ConfigError(f"app name {self.name!r}: small letters, digits and -, at most 40")
        if not 1 <= len(self.sources) <= MAX_STREAMS:
            raise ConfigError(f"app {self.name}: between 1 and {MAX_STREAMS} streams")
        if not 1 <= self.shards <= MAX_SHARDS:
            raise ConfigError(f"app {self.name}: between 1 and {MAX_SHARDS} shards")
        for what, names in (("stream", [s.schema.name for s in self.sources]), ("topic", [*self.topics])):
            if len(set(names)) != len(names):
                raise ConfigError(f"app {self.name}: a {what} appears twice in {names}")

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics of the sources, in order; a topic's place here is part of every source partition's number."""
        return tuple(s.topic for s in self.sources)

    @property
    def schemas(self) -> tuple[StreamSchema, ...]:
        """Schemas of the sources, in order."""
        return tuple(s.schema for s in self.sources)
