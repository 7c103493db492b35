"""Reads the data of an explanation from Kafka: single records, topics backwards from their ends, a key's events.

Each search reads a bounded number of records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import polars as pl
import pyarrow as pa

from headgate.errors import InputError
from headgate.records.formats import ALL_JSON, RecordFormats
from headgate.records.topic_decoder import TopicDecoder, key_conditions
from rulecore.streams import RuleInput
from streamcore.kafka.partition_offsets import KafkaPartitionOffsets, list_partitions
from streamcore.kafka.range_reader import RangeReader
from streamcore.kafka.settings import KafkaSettings
from streamcore.offsets import OffsetRange, TopicPartition
from streamcore.schema import EVENT_MS, OFFSET, PARTITION
from streamcore.watermark import NO_WATERMARK
from streamcore.wire.raw import RAW, header_columns

_FIRST_CHUNK = 5_000


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """A Kafka record. ``timestamp_ms``: its Kafka timestamp. ``headers``: those of ``KafkaReader.headers``."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Mapping[str, bytes | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeyEvents:
    """The result of a search for a key's events. ``frames``: the events by stream, in order of partition and offset.
    ``read``: the number of records read; ``latest_ms``: the latest event time in them.

    ``complete``: False if the search reached its limit before it had gone back far enough in event time.
    """

    frames: Mapping[str, pl.DataFrame]
    read: int
    latest_ms: int
    complete: bool


class KafkaReader:
    """Reads Kafka for one explanation. Keeps the first and last offsets of the topics.

    ``headers``: the headers of records to read, those of the stream in question. ``formats``: of the app's records.
    """

    def __init__(self, kafka: KafkaSettings, formats: RecordFormats = ALL_JSON) -> None:
        self.kafka, self.formats = kafka, formats
        self.headers: Collection[str] = ()
        self._bounds: dict[str, tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]] = {}

    def load_bounds(self, topics: Sequence[str]) -> None:
        """Read the first and last offsets of several topics with one request."""
        partitions = list_partitions(self.kafka, topics)
        self._bounds |= {topic: ({}, {}) for topic in topics}
        if partitions:
            ends = KafkaPartitionOffsets(
                self.kafka, list(partitions), partitions=[one for by_topic in partitions.values() for one in by_topic]
            )
            first, last = ends.earliest(), ends.latest()
            for topic in partitions:
                self._bounds[topic] = _offsets_for_topic(topic, first), _offsets_for_topic(topic, last)

    def bounds(self, topic: str) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        """Return the first offsets and the end offsets of a topic's partitions; both empty if the topic does not
        exist."""
        if topic not in self._bounds:
            self.load_bounds([topic])
        return self._bounds[topic]

    def offsets_at(self, topic: str, time_ms: int) -> Mapping[TopicPartition, int]:
        """Return the first offset of each partition whose Kafka timestamp is at or after ``time_ms``."""
        return KafkaPartitionOffsets(self.kafka, [topic], partitions=list(self.bounds(topic)[1])).for_timestamp(time_ms)

    def record(self, topic: str, partition: int, offset: int) -> KafkaRecord:
        """Read the record at this offset. Raises ``InputError`` if there is none."""
        first, last = self.bounds(topic)
        place = topic, partition
        if place not in last:
            raise InputError(f"{topic}:{partition}:{offset}: there is no such partition; write topic:partition:offset")
        if not first[place] <= offset < last[place]:
            raise InputError(
                f"{topic}:{partition}:{offset}: the partition holds offsets {first[place]} to {last[place] - 1}"
            )
        for record in self.records(topic, [OffsetRange(0, topic, partition, offset, offset + 1)]):
            return record
        raise InputError(f"{topic}:{partition}:{offset}: no record at this offset; is it a transaction marker?")

    def every(self, topic: str) -> Iterator[KafkaRecord]:
        """Yield all records of a topic, in order within a partition."""
        first, last = self.bounds(topic)
        yield from self.records(topic, [OffsetRange(0, *place, first[place], last[place]) for place in last])

    def records(self, topic: str, spans: Sequence[OffsetRange]) -> Iterator[KafkaRecord]:
        """Yield the records of these ranges, in order within a partition."""
        for batch in self._read(spans):
            names = ("partition", "offset", "key", "value", "timestamp_ms")
            rows = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
            headers = {name: column.to_pylist() for name, column in header_columns(batch).items()}
            for n, (partition, offset, key, value, ms) in enumerate(rows):
                own = {name: column[n] for name, column in headers.items()}
                yield KafkaRecord(topic, partition, offset, key, value, ms, own)

    def backwards(self, topic: str, most: int, start: Mapping[TopicPartition, int] | None = None) -> Iterator[pa.Table]:
        """Yield chunks from ``start`` (default: the end) towards the beginning, each longer than the one before.

        Tables of ``RAW``; stops after about ``most`` records.
        """
        first, last = self.bounds(topic)
        at = {place: min(offset, last[place]) for place, offset in (start or last).items()}
        size, done = _FIRST_CHUNK, 0
        while done < most and any(at[place] > first[place] for place in at):
            share = max(1, size // max(1, len(at)))
            before = {place: max(first[place], end - share) for place, end in at.items()}
            yield self._table([OffsetRange(0, *place, before[place], at[place]) for place in at])
            done += sum(at[place] - before[place] for place in at)
            at, size = before, min(size * 4, 200_000)

    def forwards(self, topic: str, most: int, start: Mapping[TopicPartition, int]) -> Iterator[pa.Table]:
        """Yield chunks from ``start`` to the end, each longer than the one before."""
        _, last = self.bounds(topic)
        at, size, done = dict(start), _FIRST_CHUNK, 0
        while done < most and any(at[place] < last[place] for place in at):
            share = max(1, size // max(1, len(at)))
            after = {place: min(last[place], begin + share) for place, begin in at.items()}
            yield self._table([OffsetRange(0, *place, at[place], after[place]) for place in at])
            done += sum(after[place] - at[place] for place in at)
            at, size = after, min(size * 4, 200_000)

    def _table(self, spans: Iterable[OffsetRange]) -> pa.Table:
        batches = [*self._read(spans)]
        return pa.Table.from_batches(batches) if batches else RAW.empty_table()

    def _read(self, spans: Iterable[OffsetRange]) -> Iterator[pa.RecordBatch]:
        """Read offset ranges with a new client, which takes 20 ms. A client in use would need up to a second for
        another topic or another offset."""
        non_empty = [span for span in spans if span.end > span.start]
        if non_empty:
            with closing(RangeReader(self.kafka)) as reader:
                yield from reader.read(non_empty, timestamps=True, headers=self.headers)

    def find(self, topic: str, column: str, value: bytes, most: int) -> KafkaRecord | None:
        """Find the last record whose ``key`` equals, or whose ``value`` contains, these bytes."""
        for table in self.backwards(topic, most):
            cells = pl.Series(column, table.column(column), dtype=pl.Binary)
            hits = cells == pl.Series([value]) if column == "key" else cells.bin.contains(value)
            if len(rows := hits.fill_null(value=False).arg_true()):
                row = table.slice(int(rows[-1]), 1).to_pylist()[0]
                return KafkaRecord(
                    topic, row["partition"], row["offset"], row["key"], row["value"], row["timestamp_ms"]
                )
        return None


def _offsets_for_topic(topic: str, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
    return {place: offset for place, offset in offsets.items() if place[0] == topic}


@dataclass(frozen=True, slots=True)
class KeyEventsQuery:
    """Selects events of one of some keys (physical values), from ``back_ms`` before ``at_ms`` (None: the latest event)
    on.

    ``start``: the offsets from which the search reads backwards. ``ahead_ms``: it also reads forwards until this long
    after ``at_ms``; None: only backwards. ``back_ms`` None: until ``most`` records are read.
    """

    keys: Sequence[Mapping[str, object]]
    start: Mapping[TopicPartition, int]
    at_ms: int | None
    back_ms: int | None
    ahead_ms: int | None
    most: int


def key_events(reader: KafkaReader, source: RuleInput, query: KeyEventsQuery, clock_ms: int) -> KeyEvents:
    """Read the events that the query selects, or as many as ``most`` records of a topic hold."""
    decode = TopicDecoder(source, clock_ms, reader.formats)
    reader.headers = decode.headers
    frames = {name: [none] for name, none in decode.no_events().items()}
    read, latest_ms, complete = 0, NO_WATERMARK, True
    for topic in dict.fromkeys(source.topics):
        own = replace(query, start=_offsets_for_topic(topic, query.start))
        collector = _EventCollector(decode, topic, query.keys, frames)
        complete &= _collect(reader, topic, own, collector)
        read, latest_ms = read + collector.read, max(latest_ms, collector.latest_ms)
    found = {name: pl.concat(parts).sort(PARTITION, OFFSET) for name, parts in frames.items()}
    return KeyEvents(found, read, latest_ms, complete)


def _collect(reader: KafkaReader, topic: str, query: KeyEventsQuery, collector: _EventCollector) -> bool:
    """Collect the events of a topic. Return whether the search went back far enough."""
    complete = _collect_backwards(reader, topic, query, collector)
    if query.ahead_ms is not None:
        for table in reader.forwards(topic, query.most, query.start):
            collector.add(table)
            if collector.latest_ms > (query.at_ms or 0) + query.ahead_ms:
                break
    return complete


def _collect_backwards(reader: KafkaReader, topic: str, query: KeyEventsQuery, collector: _EventCollector) -> bool:
    """Read backwards. Return whether the search went back far enough, or reached the beginning of the topic."""
    for table in reader.backwards(topic, query.most, query.start):
        events = collector.add(table)
        reference_ms = collector.latest_ms if query.at_ms is None else query.at_ms
        if query.back_ms is not None and events.height and _all_before(events, reference_ms - query.back_ms):
            return True
    first, _ = reader.bounds(topic)
    return collector.read >= sum(offset - first[place] for place, offset in query.start.items())


@dataclass(slots=True)
class _EventCollector:
    """Collects the events of some keys of a topic while chunks are read, into ``frames`` by stream."""

    decode: TopicDecoder
    topic: str
    keys: Sequence[Mapping[str, object]]
    frames: Mapping[str, list[pl.DataFrame]]
    read: int = 0
    latest_ms: int = NO_WATERMARK

    def add(self, table: pa.Table) -> pl.DataFrame:
        """Keep the events of the keys in a chunk, and return partition and time of all its events."""
        times = [pl.DataFrame(schema={PARTITION: pl.Int32(), EVENT_MS: pl.Int64()})]
        schemas = {schema.name: schema for schema in self.decode.source.find_streams(self.topic)}
        for batch in table.to_batches():
            for name, events in self.decode(batch, self.topic).items():
                conditions = [pl.all_horizontal(key_conditions(events, one, schemas[name])) for one in self.keys if one]
                wanted = events.filter(pl.any_horizontal(conditions)) if len(conditions) == len(self.keys) else events
                self.frames[name].append(wanted)
                times.append(events.select(PARTITION, EVENT_MS))
        found = pl.concat(times)
        self.read += table.num_rows
        if found.height:
            self.latest_ms = max(self.latest_ms, int(found[EVENT_MS].max()))  # type: ignore[arg-type]
        return found


def _all_before(events: pl.DataFrame, time_ms: int) -> bool:
    """Return whether each partition of a chunk has an event before ``time_ms``."""
    firsts = events.group_by(PARTITION).agg(pl.col(EVENT_MS).min())
    return bool((firsts[EVENT_MS] < time_ms).all())
