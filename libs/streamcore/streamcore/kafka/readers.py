"""Reads topics without a consumer group.

``read_topic`` (kafka-python) shares no code with the client that writes, so verifiers can rely on it. ``scan_topic``
(confluent-kafka) reads large topics to their end. ``Follower`` polls for new records. All of them return committed
records only, unless ``isolation`` selects all.
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
from streamcore.kafka.message_headers import message_headers
from streamcore.kafka.settings import KafkaSettings

if TYPE_CHECKING:
    import kafka

MAX_RECORDS = 5_000_000
_POLL_MS = 500
_END_WAIT_MS = 10


@dataclass(frozen=True, slots=True)
class Record:
    """One record that was read. ``timestamp_ms``: creation or append time, depending on the topic's settings."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()

    def header(self, name: str) -> bytes | None:
        """Return the value of the last header of that name, or None."""
        return next((value for header, value in reversed(self.headers) if header == name), None)


def read_topic(
    settings: KafkaSettings,
    topic: str,
    *,
    isolation: Isolation = Isolation.COMMITTED,
    limit_records: int = MAX_RECORDS,
    limit_ms: int = 60_000,
) -> list[Record]:
    """Return all records up to the end that the topic has at the call, ordered by partition and offset.

    Raises ``Permanent`` beyond ``limit_records``, and ``Retryable`` if the end is not reached within ``limit_ms``.
    """
    deadline = time.monotonic() + limit_ms / 1000
    records: list[Record] = []
    with _independent(settings, isolation, f"read topic {topic}") as client:
        ends = _assign_all(client, topic)
        while any(client.position(partition) < end for partition, end in ends.items()):
            records += _poll(client, _POLL_MS)
            _check_limits(topic, len(records), limit_records, deadline)
    end_by_number = {partition.partition: end for partition, end in ends.items()}
    return sorted((r for r in records if r.offset < end_by_number[r.partition]), key=lambda r: (r.partition, r.offset))


@contextmanager
def _independent(settings: KafkaSettings, isolation: Isolation, action: str) -> Iterator[kafka.KafkaConsumer]:
    """Yield a kafka-python consumer and close it at the end. Its exceptions become errors of ``streamcore.errors``."""
    new = control_plane.independent_consumer
    with control_plane.naming_errors(settings, action), closing(new(settings, isolation)) as client:
        yield client


def _assign_all(client: kafka.KafkaConsumer, topic: str) -> dict[kafka.TopicPartition, int]:
    """Assign all partitions of the topic, from their beginnings. Return the present end offset of each.

    Raises ``ConfigError`` if the topic does not exist.
    """
    import kafka

    partitions = client.partitions_for_topic(topic)
    if not partitions:
        raise ConfigError(f"topic {topic}: does not exist; create the topic, or correct its name")
    assigned = [kafka.TopicPartition(topic, p) for p in sorted(partitions)]
    client.assign(assigned)
    client.seek_to_beginning(*assigned)
    ends: dict[kafka.TopicPartition, int] = client.end_offsets(assigned)
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
        raise Retryable(f"topic {topic}: its end was not reached within the time limit, after {count} records")


def scan_topic(
    settings: KafkaSettings,
    topic: str,
    *,
    isolation: Isolation = Isolation.COMMITTED,
    limit_ms: int = 600_000,
    last_offsets: int | None = None,
) -> Iterator[Record]:
    """Yield all records of the topic, in order within a partition. Raise ``Retryable`` after ``limit_ms``.

    ``last_offsets``: only records with one of the last so many offsets of their partition; None for all.
    """
    deadline = time.monotonic() + limit_ms / 1000
    with closing(clients.consumer(settings, isolation, end_wait_ms=_END_WAIT_MS)) as client:
        open_partitions = set(range(partition_count(client, settings, topic)))
        starts = [ck.TopicPartition(topic, p, ck.OFFSET_BEGINNING) for p in open_partitions]
        if last_offsets is not None:
            for start in starts:
                low, high = client.get_watermark_offsets(start, limit_ms / 1000)
                start.offset = max(low, high - last_offsets)
        client.assign(starts)
        while open_partitions:
            if time.monotonic() > deadline:
                raise Retryable(
                    f"topic {topic}: the ends of partitions {sorted(open_partitions)} were not reached within the limit"
                )
            for message in client.consume(10_000, 0.1):
                error = message.error()
                if error is None:
                    yield _from_confluent(message)
                elif error.code() == ck.KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
                else:
                    raise clients.confluent_error(error, f"read topic {topic}", settings)


def _from_confluent(m: ck.Message) -> Record:
    headers = tuple((k, v or b"") for k, v in message_headers(m))
    return Record(m.topic(), m.partition(), m.offset(), m.timestamp()[1], m.key(), m.value(), headers)


def end_offsets(
    settings: KafkaSettings, topics: Sequence[str], *, isolation: Isolation = Isolation.COMMITTED
) -> dict[tuple[str, int], int]:
    """Return the offset after the last readable record, for every (topic, partition)."""
    ends: dict[tuple[str, int], int] = {}
    with _independent(settings, isolation, f"ends of topics {list(topics)}") as client:
        for topic in topics:
            ends |= {(p.topic, p.partition): end for p, end in _assign_all(client, topic).items()}
    return ends


class Follower:
    """Follows topics: each ``poll`` returns the records that arrived after those of the previous one.

    ``since``: the first offset to read of each (topic, partition), as ``end_offsets`` returns it; the beginning where
    it is missing. One thread at a time.
    """

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
        """Return up to ``limit_records`` records; wait up to ``wait_ms`` for the first one.

        Returns no records while the broker is unreachable. Raises errors that do not pass by themselves.
        """
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
        """Close the consumer."""
        self._client.close()

    def __enter__(self) -> Follower:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
