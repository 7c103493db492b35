"""Reads topics from the outside, without a consumer group: to the end, or following.

``read_topic`` (kafka-python) shares no code with the client that writes, which is why checks trust it.
``scan_topic`` (confluent-kafka) is for volume. ``Follower`` is for views that go on. All of them show committed
records only, unless ``isolation`` is given.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

import confluent_kafka as ck

from streamcore.errors import ConfigError, Permanent, Retryable
from streamcore.kafka import admin_clients as control_plane
from streamcore.kafka import data_clients as clients
from streamcore.kafka.data_clients import Isolation
from streamcore.kafka.markers import partition_count
from streamcore.kafka.settings import KafkaSettings

if TYPE_CHECKING:
    import kafka

MAX_RECORDS = 5_000_000
_POLL_MS = 500
_END_WAIT_MS = 10


@dataclass(frozen=True, slots=True)
class Record:
    """One record as read. ``timestamp_ms`` is the topic's kind of time: creation or append."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()

    def header(self, name: str) -> bytes | None:
        """Value of the last header of that name."""
        return next((value for header, value in reversed(self.headers) if header == name), None)


def read_topic(
    settings: KafkaSettings,
    topic: str,
    *,
    isolation: Isolation = Isolation.COMMITTED,
    limit_records: int = MAX_RECORDS,
    limit_ms: int = 60_000,
) -> list[Record]:
    """All records from the beginning to the end that the topic has now, by partition and offset.

    ``Permanent`` beyond ``limit_records``; ``Retryable`` when the end was not reached in ``limit_ms``.
    """
    deadline = time.monotonic() + limit_ms / 1000
    records: list[Record] = []
    with _independent(settings, isolation, f"read topic {topic}") as client:
        ends = _assign_all(client, topic)
        while any(client.position(place) < end for place, end in ends.items()):
            records += _poll(client, _POLL_MS)
            _check_limits(topic, len(records), limit_records, deadline)
    before = {place.partition: end for place, end in ends.items()}
    return sorted((r for r in records if r.offset < before[r.partition]), key=lambda r: (r.partition, r.offset))


@contextmanager
def _independent(settings: KafkaSettings, isolation: Isolation, action: str) -> Iterator[kafka.KafkaConsumer]:
    """kafka-python's consumer, closed at the end, its errors named."""
    new = control_plane.independent_consumer
    with control_plane.naming_errors(settings, action), closing(new(settings, isolation)) as client:
        yield client


def _assign_all(client: kafka.KafkaConsumer, topic: str) -> dict[kafka.TopicPartition, int]:
    """Assign all partitions from their beginnings; returns the ends that are reachable now."""
    import kafka

    partitions = client.partitions_for_topic(topic)
    if not partitions:
        raise ConfigError(f"topic {topic}: does not exist; create the topic, or correct its name")
    places = [kafka.TopicPartition(topic, p) for p in sorted(partitions)]
    client.assign(places)
    client.seek_to_beginning(*places)
    ends: dict[kafka.TopicPartition, int] = client.end_offsets(places)
    return ends


def _poll(client: kafka.KafkaConsumer, wait_ms: int) -> list[Record]:
    return [_from_python(r) for batch in client.poll(wait_ms).values() for r in batch]


def _from_python(r: kafka.consumer.fetcher.ConsumerRecord) -> Record:
    headers = tuple((str(k), v or b"") for k, v in r.headers or ())
    return Record(r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, headers)


def _check_limits(topic: str, count: int, limit_records: int, deadline: float) -> None:
    if count > limit_records:
        raise Permanent(f"topic {topic}: more than {limit_records} records; raise the limit or use scan_topic")
    if time.monotonic() > deadline:
        raise Retryable(f"topic {topic}: its end was not reached in time after {count} records")


def scan_topic(
    settings: KafkaSettings, topic: str, *, isolation: Isolation = Isolation.COMMITTED, limit_ms: int = 600_000
) -> Iterator[Record]:
    """Yield records from the beginning to the end, in order within a partition; ``Retryable`` after ``limit_ms``."""
    deadline = time.monotonic() + limit_ms / 1000
    with closing(clients.consumer(settings, isolation, end_wait_ms=_END_WAIT_MS)) as client:
        open_partitions = set(range(partition_count(client, settings, topic)))
        client.assign([ck.TopicPartition(topic, p, ck.OFFSET_BEGINNING) for p in open_partitions])
        while open_partitions:
            if time.monotonic() > deadline:
                raise Retryable(f"topic {topic}: partitions {sorted(open_partitions)} were not read to the end in time")
            for message in client.consume(10_000, 0.1):
                error = message.error()
                if error is None:
                    yield _from_confluent(message)
                elif error.code() == ck.KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
                else:
                    raise clients.confluent_error(error, f"read topic {topic}", settings)


def _from_confluent(m: ck.Message) -> Record:
    headers = tuple((k, v or b"") for k, v in m.headers() or ())
    return Record(m.topic(), m.partition(), m.offset(), m.timestamp()[1], m.key(), m.value(), headers)


def end_offsets(
    settings: KafkaSettings, topics: Sequence[str], *, isolation: Isolation = Isolation.COMMITTED
) -> dict[tuple[str, int], int]:
    """Offset after the last readable record, for every (topic, partition)."""
    ends: dict[tuple[str, int], int] = {}
    with _independent(settings, isolation, f"ends of topics {list(topics)}") as client:
        for topic in topics:
            ends |= {(place.topic, place.partition): end for place, end in _assign_all(client, topic).items()}
    return ends


class Follower:
    """Follows topics: ``poll`` returns what has come since. Starts after ``since`` (as of ``end_offsets``), else at
    the beginning. One thread at a time."""

    def __init__(
        self,
        settings: KafkaSettings,
        topics: Sequence[str],
        *,
        since: dict[tuple[str, int], int] | None = None,
        isolation: Isolation = Isolation.COMMITTED,
    ) -> None:
        self._settings = settings
        self._client = clients.consumer(settings, isolation, report_ends=False)
        starts = []
        for topic in topics:
            for partition in range(partition_count(self._client, settings, topic)):
                offset = (since or {}).get((topic, partition), ck.OFFSET_BEGINNING)
                starts.append(ck.TopicPartition(topic, partition, offset))
        self._client.assign(starts)

    def poll(self, wait_ms: int = 0, limit_records: int = 10_000) -> list[Record]:
        """At most ``limit_records``; waits up to ``wait_ms`` for the first. A broker that is away gives nothing."""
        first = self._client.poll(wait_ms / 1000)
        if first is None:
            return []
        records = []
        for message in [first, *self._client.consume(max(1, limit_records - 1), 0)]:
            if message.error() is None:
                records.append(_from_confluent(message))
            else:
                self._raise_if_final(message)
        return records

    def _raise_if_final(self, message: ck.Message) -> None:
        failure = clients.confluent_error(message.error(), f"follow topic {message.topic()}", self._settings)
        if not isinstance(failure, Retryable):
            raise failure

    def close(self) -> None:
        """Leave."""
        self._client.close()

    def __enter__(self) -> Follower:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
