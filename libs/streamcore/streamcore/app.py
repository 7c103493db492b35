"""An app as a value: its sources, its shards, its stages and its lanes.

An ``App`` does not depend on where it runs: Spark (``streamcore.spark``) and the in-process engine
(``streamcore.engine.in_process``) run every ``App``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from streamcore.arguments import check_app_name
from streamcore.decode.formats import JSON, InputFormat
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.stream_decoder import event_decoder
from streamcore.decode.types import Decoder
from streamcore.errors import ConfigError
from streamcore.files.listing import FileInput
from streamcore.kernel import EventFilterFactory, Exchange, KernelFactory, StatelessStageFactory, StreamKey
from streamcore.key_space import DEFAULT_KEY_GROUPS, MAX_KEY_GROUPS, KeySpace
from streamcore.limits import Limits, StateSettings
from streamcore.offsets import PARTITIONS_PER_TOPIC, source_index, source_partitions
from streamcore.schema import Kind, StreamSchema
from streamcore.schema.published_document import PublishedDocument
from streamcore.schema.record_layout import header_names, reads_timestamps
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import CONTROL as CONTROL_LANE

if TYPE_CHECKING:
    import pyarrow as pa

    from streamcore.wire.lanes import Record

#: ``source`` of raw records of the control topic; events carry the index of their topic in ``App.topics``.
CONTROL = -1

MAX_STREAMS = 256
MAX_STAGES = 16


class EventTime(enum.StrEnum):
    """Where an event's time comes from: its own field, the broker's timestamp, or the clock of the cut.

    With ``PROCESSING`` the watermark of each partition is the clock of the cut, with or without events: windows,
    sessions and timers fire by the clock, no event is late, and no partition holds the others back. An app without
    input has a cut a second, so that what is due at a time is done within about a second. With ``FIELD`` and
    ``INGESTION`` the watermark comes from the events: the clock implies nothing about the times of records that are
    still to be read, so the last window of a stream fires only when a later event comes.
    """

    FIELD = "field"
    INGESTION = "ingestion"
    PROCESSING = "processing"


@dataclass(frozen=True, slots=True)
class Source:
    """A stream with its topic and the format of its records.

    ``watermark``: the strategy of this source; None: the app's. With ``EventTime.PROCESSING`` only its ``end`` has an
    effect. ``raw``: each event also has the key and the value of
    its record as columns (``streamcore.wire.raw.ORIGIN``). ``files``: files whose records come before those of the
    topic, or instead of them if the stream is not ``live``. ``reject_other_records``: whether a record of the topic
    that no stream takes (``StreamSchema.when``) is a dead letter; one source of a topic with it is enough. Otherwise
    it is counted. Raises ``ConfigError`` if format and stream do not fit.
    """

    schema: StreamSchema
    topic: str
    reject_extra_fields: bool = False
    reject_other_records: bool = False
    watermark: WatermarkStrategy | None = None
    time: EventTime = EventTime.FIELD
    format: InputFormat = JSON
    raw: bool = False
    files: FileInput | None = None
    live: bool = True

    def decoder(self, limits: Limits) -> Decoder:
        """Create a decoder of the stream's records."""
        extra_fields = ExtraFields.REJECT if self.reject_extra_fields else ExtraFields.IGNORE
        return event_decoder(self.schema, self.format, decode_limits(limits), extra_fields)

    @property
    def headers(self) -> frozenset[str]:
        """The headers of records that the stream reads."""
        return header_names(self.schema) | self.format.headers

    @property
    def reads_timestamps(self) -> bool:
        """Whether the stream reads the timestamp of each record."""
        return self.time is EventTime.INGESTION or reads_timestamps(self.schema)

    def __post_init__(self) -> None:
        self.decoder(Limits())
        if self.schema.envelope is not None and self.reject_extra_fields:
            raise ConfigError(
                f"stream {self.schema.name}: reject_extra_fields: an envelope has fields of its own; leave it out"
            )
        if self.files is None and not self.live:
            raise ConfigError(f"stream {self.schema.name}: it has neither files nor a topic")
        if self.files is not None and self.time is EventTime.INGESTION:
            raise ConfigError(f"stream {self.schema.name}: files have no time of arrival; use the time of a field")
        if self.watermark is not None:
            if self.time is EventTime.PROCESSING and self.watermark.punctuation is not None:
                raise ConfigError(
                    f"stream {self.schema.name}: watermark: by processing time the watermark is the clock, so that "
                    f"{self.watermark.punctuation!r} cannot set it; use another event time, or no punctuation"
                )
            if self.time is EventTime.PROCESSING and self.watermark.max_drift_ms is not None:
                raise ConfigError(
                    f"stream {self.schema.name}: watermark: by processing time no partition is ahead of another; leave "
                    "out with_alignment"
                )
            for name, kinds in ((self.watermark.punctuation, _MARKS), (self.watermark.end, _MARKS[:1])):
                field_there = None if name is None else self.schema.get(name)
                if name is not None and (field_there is None or field_there.type.kind not in kinds):
                    wanted = " or ".join(kind.value for kind in kinds)
                    raise ConfigError(f"stream {self.schema.name}: watermark: {name!r} is not a {wanted} field of it")


def check_shared_topic(shared: Sequence[Source], where: str) -> None:
    """Raise ``ConfigError`` if these streams cannot share their topic. ``where``: for the message."""
    if len(shared) == 1:
        return
    where = f"{where}: topic {shared[0].topic} of streams {', '.join(s.schema.name for s in shared)}"
    if sum(s.schema.when is None for s in shared) > 1:
        raise ConfigError(
            f"{where}: each needs a condition (when) that tells its events from the others'; one may be without, "
            "for all that is left"
        )
    taken = [(s.schema.when.path, value) for s in shared if s.schema.when for value in s.schema.when.equals]
    if twice := [value for path, value in taken if taken.count((path, value)) > 1]:
        raise ConfigError(f"{where}: two streams take records with {twice[0]!r}; a record is of one stream")
    if any((s.watermark, s.time) != (shared[0].watermark, shared[0].time) for s in shared):
        raise ConfigError(f"{where}: they have the partitions in common, so give them one watermark and event time")
    if any(s.files is not None for s in shared):
        raise ConfigError(f"{where}: files belong to one stream; give it a topic of its own, or leave them out")


def decode_limits(limits: Limits) -> DecodeLimits:
    """Return the limits of one record."""
    return DecodeLimits(
        max_record_bytes=limits.max_record_bytes,
        max_future_ms=limits.max_future_ms,
        max_record_values=limits.max_record_values,
        max_batch_values=limits.max_batch_values,
        min_event_ms=limits.min_event_ms,
    )


_MARKS = (Kind.BOOLEAN, Kind.TIMESTAMP)


@dataclass(frozen=True, slots=True)
class DerivedSource:
    """The event time that a step of the stateless stage assigns to rows of a source: a time with its own watermark.

    Each source partition has a derived partition, with the index of the derived source in place of that of the source;
    these indexes follow those of the sources. ``source``: the index of the source.
    """

    source: int
    watermark: WatermarkStrategy


class LaneMerge(Protocol):
    """Makes records for lanes out of the rows that all shards have for one lane in a cut; a pure function of them.

    The record of a lane that ends in a sink has all its rows, as an Arrow IPC stream.
    """

    def __call__(self, rows: pa.Table, /) -> Sequence[Record]: ...


@dataclass(frozen=True, slots=True)
class App:
    """One running stream program.

    ``stages``: the kernels of the keyed stages, which run one after the other. ``exchanges``: the inputs of the stages.
    Without a ``stateless_stage`` every event goes to the exchanges of its stream; without ``exchanges`` there is one
    for each key of a stream, into the first keyed stage. ``shards``: fixed in a checkpoint; a savepoint is restored
    with any number, up to ``key_groups``. ``lanes``: the topic of each lane; ``tables``: the lanes that end in sinks
    instead. ``control_topic``: every shard gets each of its records in the same cut. ``watermark_groups``: groups of
    sources (by index) that share a watermark; the first group's is the watermark of the app; by default one group has
    all sources. ``derived_sources``: further indexes that groups may have. ``lane_sources``: the sources (by index)
    whose events reach a lane; for other lanes all. ``rebuild``: builds the app with streams that were published while
    it ran; None if it takes none. ``data_keys``: the prefixes of keys of control records that are data, and change no
    fields that the kernels read (``Projection``). ``reads_of_all_stages``: whether what the kernel of the last stage
    says it reads is all that any stage reads. ``event_filter``: of the input of the second keyed stage.
    ``merges``: by lane, what makes records out of the rows that shards have for it, when the output of a cut is
    written.
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
    key_groups: int = DEFAULT_KEY_GROUPS
    derived_sources: tuple[DerivedSource, ...] = ()
    lane_sources: Mapping[str, frozenset[int]] = field(default_factory=dict)
    watermark: WatermarkStrategy = field(default_factory=WatermarkStrategy)
    state: StateSettings = field(default_factory=StateSettings)
    limits: Limits = field(default_factory=Limits)
    event_filter: EventFilterFactory | None = None
    rebuild: Callable[[Sequence[PublishedDocument]], App] | None = field(default=None, compare=False, repr=False)
    data_keys: tuple[bytes, ...] = ()
    reads_of_all_stages: bool = False
    merges: Mapping[str, LaneMerge] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_app_name(self.name)
        if not 1 <= len(self.sources) <= MAX_STREAMS:
            raise ConfigError(f"app {self.name}: between 1 and {MAX_STREAMS} streams")
        if not 1 <= self.key_groups <= MAX_KEY_GROUPS:
            raise ConfigError(f"app {self.name}: between 1 and {MAX_KEY_GROUPS} key groups, not {self.key_groups}")
        if not 1 <= self.shards <= self.key_groups:
            raise ConfigError(
                f"app {self.name}: between 1 and {self.key_groups} shards, not {self.shards}: a shard owns at least "
                "one key group; set key_groups higher for more"
            )
        if not 1 <= len(self.stages) <= MAX_STAGES:
            raise ConfigError(f"app {self.name}: between 1 and {MAX_STAGES} keyed stages, not {len(self.stages)}")
        names = [s.schema.name for s in self.sources]
        if len(set(names)) != len(names):
            raise ConfigError(f"app {self.name}: a stream appears twice in {names}")
        for first in {*map(self.first_source, range(len(self.sources)))}:
            check_shared_topic([self.sources[index] for index in self.find_sources(first)], f"app {self.name}")
            self._check_derived(first)
        self._check_topics()
        if self.stateless_stage is None and not self.exchanges:
            object.__setattr__(self, "exchanges", tuple(_by_keys(self.schemas)))
        if not self.watermark_groups:
            object.__setattr__(self, "watermark_groups", (tuple(range(len(self.sources))),))
        self._share_partitions()

    def _check_derived(self, first: int) -> None:
        """Raise ``ConfigError`` if a step assigns times to events of one of several streams of a topic."""
        shared = self.find_sources(first)
        if len(shared) > 1 and {self.first_source(derived.source) for derived in self.derived_sources} & {first}:
            raise ConfigError(
                f"app {self.name}: topic {self.topics[first]}: assign_timestamps: the streams have the partitions in "
                "common, and so the times of their fields; give the stream a topic of its own, or declare another "
                "event time"
            )

    def with_streams(self, published: Sequence[PublishedDocument]) -> App:
        """Return the app with these streams, which were published while it ran.

        ``ConfigError`` if it takes none, or if they do not fit the streams of its settings.
        """
        if self.rebuild is None:
            if published:
                raise ConfigError(f"app {self.name}: it takes no streams while it runs, and {published[0].name} is one")
            return self
        return self.rebuild(published)

    def _share_partitions(self) -> None:
        """Let the streams of a topic have its partitions, and so their progress and watermark, in common."""
        groups = tuple(tuple(dict.fromkeys(map(self._find_partitions, group))) for group in self.watermark_groups)
        lanes = {lane: frozenset(map(self._find_partitions, sources)) for lane, sources in self.lane_sources.items()}
        object.__setattr__(self, "watermark_groups", groups)
        object.__setattr__(self, "lane_sources", lanes)

    def _find_partitions(self, source: int) -> int:
        """Return the index in the numbers of source partitions, of a source or a derived source."""
        return self.first_source(source) if source < len(self.sources) else source

    def first_source(self, source: int) -> int:
        """Return the first source of the topic of a source. Its index is part of the numbers of the partitions."""
        return self.topics.index(self.topics[source])

    def find_sources(self, first: int) -> tuple[int, ...]:
        """Return the sources of a topic. ``first``: its first source."""
        return tuple(index for index, topic in enumerate(self.topics) if topic == self.topics[first])

    @property
    def selecting_sources(self) -> tuple[int, ...]:
        """The first sources of the topics whose records are divided among streams, or of which some are left out."""
        firsts = dict.fromkeys(map(self.first_source, range(len(self.sources))))
        return tuple(n for n in firsts if any(self.sources[one].schema.when for one in self.find_sources(n)))

    @property
    def headers(self) -> frozenset[str]:
        """The headers of records that streams read."""
        return frozenset().union(*(source.headers for source in self.sources))

    @property
    def reads_timestamps(self) -> bool:
        """Whether a stream reads the timestamp of each record."""
        return any(source.reads_timestamps for source in self.sources)

    def _check_topics(self) -> None:
        """Raise ``ConfigError`` if the app would read what it writes, or read events as control records."""
        for lane, topic in self.lanes.items():
            own_control = lane == CONTROL_LANE and topic == self.control_topic
            if topic in (*self.topics, self.control_topic) and not own_control:
                raise ConfigError(
                    f"app {self.name}: it reads topic {topic} and would write lane {lane} to it, an endless loop; "
                    "give the lane a topic of its own"
                )
        if self.control_topic in self.topics:
            raise ConfigError(
                f"app {self.name}: topic {self.control_topic} is the control topic and a source; use two topics"
            )

    @property
    def key_space(self) -> KeySpace:
        """The division of the keys among the shards."""
        return KeySpace(self.shards, self.key_groups)

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics of the sources, in order. A topic's first index is part of the numbers of its source partitions."""
        return tuple(s.topic for s in self.sources)

    @property
    def registry_topics(self) -> tuple[str, ...]:
        """Topics of the sources whose records name their schemas by ids of a schema registry, in order."""
        return tuple(s.topic for s in self.sources if s.format.needs_registry)

    @property
    def routes(self) -> tuple[tuple[StreamKey, ...], ...]:
        """Of each source, the exchanges that get its events as they are, without a stateless stage."""
        every = [exchange.rows for exchange in self.exchanges if exchange.rows.route >= 0]
        return tuple(tuple(rows for rows in every if rows.stream == schema.name) for schema in self.schemas)

    @property
    def schemas(self) -> tuple[StreamSchema, ...]:
        """Schemas of the sources, in order."""
        return tuple(s.schema for s in self.sources)

    def watermark_for(self, source: int) -> WatermarkStrategy:
        """Return the watermark strategy of the source, or of the derived source, with this index."""
        if source >= len(self.sources):
            return self.derived_sources[source - len(self.sources)].watermark
        return self.sources[source].watermark or self.watermark

    def follows_clock(self, partition: int) -> bool:
        """Return whether the clock of the cut is the watermark of this source partition."""
        index = source_index(partition)
        return index < len(self.sources) and self.sources[index].time is EventTime.PROCESSING

    def with_derived(self, partitions: Iterable[int]) -> Iterator[int]:
        """Yield the numbers of source partitions, and those of the partitions that are derived from them."""
        for number in partitions:
            yield number
            for index, derived in enumerate(self.derived_sources, len(self.sources)):
                if derived.source == source_index(number):
                    yield source_partitions(index)[number % PARTITIONS_PER_TOPIC]

    def idle_timeout_ms(self, partition: int) -> int:
        """Return how long this source partition may be without events before it counts as idle, in milliseconds."""
        return self.watermark_for(source_index(partition)).idle_timeout_ms


def _by_keys(schemas: Iterable[StreamSchema]) -> Iterator[Exchange]:
    for schema in schemas:
        for route, key in enumerate(schema.keys):
            yield Exchange(StreamKey(schema.name, route), key)
