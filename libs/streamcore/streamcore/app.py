"""An app as a value: its sources, its shards, its stages and the ends of its lanes.

The value holds everything that the engine needs and nothing about how it runs: the same ``App`` runs on Spark
(``streamcore.spark``) and in-process (``streamcore.engine.in_process``).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from streamcore.decode.formats import JSON, InputFormat
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.types import Decoder
from streamcore.errors import ConfigError
from streamcore.kernel import Exchange, KernelFactory, StatelessStageFactory, StreamKey
from streamcore.limits import Limits, StateSettings
from streamcore.offsets import source_index
from streamcore.schema import Kind, StreamSchema
from streamcore.watermark import WatermarkStrategy

#: ``source`` of raw records of the control topic; events carry the index of their topic in ``App.topics``.
CONTROL = -1

MAX_STREAMS = 256
MAX_SHARDS = 4096
MAX_STAGES = 16
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}\Z")


class EventTime(enum.StrEnum):
    """Where an event's time comes from: its own field, the broker's timestamp, or the clock of the cut."""

    FIELD = "field"
    INGESTION = "ingestion"
    PROCESSING = "processing"


@dataclass(frozen=True, slots=True)
class Source:
    """One stream, the topic that it arrives on, and the format of its records. ``watermark``: its own
    strategy; None: the app's. ``ConfigError`` when the format does not fit the stream.

    ``raw``: events bring their record along (``streamcore.wire.raw.ORIGIN``).
    """

    schema: StreamSchema
    topic: str
    reject_extra_fields: bool = False
    watermark: WatermarkStrategy | None = None
    time: EventTime = EventTime.FIELD
    format: InputFormat = JSON
    raw: bool = False

    def decoder(self, limits: Limits) -> Decoder:
        """Return the decoder of the stream's records."""
        extra_fields = ExtraFields.REJECT if self.reject_extra_fields else ExtraFields.IGNORE
        bounds = DecodeLimits(max_record_bytes=limits.max_record_bytes, max_future_ms=limits.max_future_ms)
        return self.format.decoder(self.schema, limits=bounds, extra_fields=extra_fields)

    def __post_init__(self) -> None:
        self.decoder(Limits())
        if self.watermark is not None:
            for name, kinds in ((self.watermark.punctuation, _MARKS), (self.watermark.end, _MARKS[:1])):
                field_there = None if name is None else self.schema.get(name)
                if name is not None and (field_there is None or field_there.type.kind not in kinds):
                    wanted = " or ".join(kind.value for kind in kinds)
                    raise ConfigError(f"stream {self.schema.name}: watermark: {name!r} is no {wanted} field of it")


_MARKS = (Kind.BOOLEAN, Kind.TIMESTAMP)


@dataclass(frozen=True, slots=True)
class App:
    """``stages``: the kernels, one after the other; the ``exchanges`` define the input of each. Without a
    ``stateless_stage``
    every event goes to the first of them, under each key of its stream.

    ``shards`` is fixed when the app is first started; parallelism may change, the key space may not. ``lanes`` maps
    each lane that kernels and engine use to a topic; ``tables`` are the lanes that end in sinks instead.
    ``control_topic`` carries records that every shard sees in the same cut. ``watermark_groups``: sets of sources (by
    index) that have a watermark together, the app's own first; default: all.
    """

    name: str
    sources: tuple[Source, ...]
    control_topic: str
    lanes: Mapping[str, str]
    stages: tuple[KernelFactory, ...]
    stateless_stage: StatelessStageFactory | None = None
    exchanges: tuple[Exchange, ...] = ()
    watermark_groups: tuple[tuple[int, ...], ...] = ()
    tables: frozenset[str] = frozenset()
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
        if not 1 <= len(self.stages) <= MAX_STAGES:
            raise ConfigError(f"app {self.name}: between 1 and {MAX_STAGES} keyed stages, not {len(self.stages)}")
        for what, names in (("stream", [s.schema.name for s in self.sources]), ("topic", [*self.topics])):
            if len(set(names)) != len(names):
                raise ConfigError(f"app {self.name}: a {what} appears twice in {names}")
        if self.stateless_stage is None and not self.exchanges:
            object.__setattr__(self, "exchanges", tuple(_by_keys(self.schemas)))
        if not self.watermark_groups:
            object.__setattr__(self, "watermark_groups", (tuple(range(len(self.sources))),))

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics of the sources, in order; a topic's place here is part of every source partition's number."""
        return tuple(s.topic for s in self.sources)

    @property
    def schemas(self) -> tuple[StreamSchema, ...]:
        """Schemas of the sources, in order."""
        return tuple(s.schema for s in self.sources)

    def watermark_for(self, source: int) -> WatermarkStrategy:
        """Return the strategy of the source at this place."""
        return self.sources[source].watermark or self.watermark

    def idle_timeout_ms(self, partition: int) -> int:
        """How long this source partition may be silent before it is idle."""
        return self.watermark_for(source_index(partition)).idle_timeout_ms


def _by_keys(schemas: Iterable[StreamSchema]) -> Iterator[Exchange]:
    for schema in schemas:
        for route, key in enumerate(schema.keys):
            yield Exchange(StreamKey(schema.name, route), key)
