"""Looks up the partitions of topics, their earliest and latest offsets, and their offsets for a timestamp."""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence
from concurrent.futures import Future

import confluent_kafka as ck
from confluent_kafka import admin

from streamcore.errors import ConfigError, Retryable
from streamcore.kafka import data_clients as clients
from streamcore.kafka.settings import KafkaSettings
from streamcore.offsets import TopicPartition

_RETRY_PAUSE_S = 0.5
_NO_SUCH_RECORD = -1
_ABSENT = frozenset({ck.KafkaError.UNKNOWN_TOPIC_OR_PART, ck.KafkaError._UNKNOWN_TOPIC})


def list_partitions(
    settings: KafkaSettings, topics: Sequence[str], *, skip_forbidden: bool = False
) -> dict[str, list[TopicPartition]]:
    """Return the partitions of each topic that exists, with one request to the cluster. ``skip_forbidden``: leave out
    topics that this client may not describe, instead of raising ``ConfigError``."""
    absent = {ck.KafkaError.UNKNOWN_TOPIC_OR_PART}
    if skip_forbidden:
        absent.add(ck.KafkaError.TOPIC_AUTHORIZATION_FAILED)
    client = clients.volume_admin(settings)  # must live until the futures are resolved
    with clients.naming_errors(settings, f"describe topics {list(topics)}"):
        futures = client.describe_topics(
            ck.TopicCollection(list(topics)), request_timeout=settings.request_timeout_ms / 1000
        )
        numbers_by_topic = {name: _partition_numbers(future, absent) for name, future in futures.items()}
    return {
        name: [(name, number) for number in sorted(numbers)] for name, numbers in numbers_by_topic.items() if numbers
    }


def _partition_numbers(future: Future[admin.TopicDescription], absent: Container[int]) -> list[int]:
    """Return the partition numbers of a topic; an empty list if the cluster answers with one of the error codes
    ``absent``."""
    try:
        return [partition.id for partition in future.result().partitions]
    except ck.KafkaException as error:
        if error.args[0].code() in absent:
            return []
        raise


def _valid_offset(partition: ck.TopicPartition, future: Future[admin.ListOffsetsResultInfo]) -> int:
    """Return the offset of a partition, or -1 if no record has the requested timestamp or a later one.

    Raises ``Retryable`` for ``OFFSET_INVALID``, which librdkafka returns without an error for a partition whose broker
    has just restarted. Taken as an offset, it would mean that the topic has lost its records.
    """
    offset: int = future.result().offset
    if offset < _NO_SUCH_RECORD:
        raise Retryable(f"topic {partition.topic}, partition {partition.partition}: the broker has no valid offset yet")
    return offset


class KafkaPartitionOffsets:
    """Implements ``PartitionOffsets`` for topics of one cluster. Looks for new partitions again
    once ``partition_discovery_interval_ms`` have passed.

    ``partitions``: all partitions of the topics, if the caller knows them already.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topics: Sequence[str],
        partition_discovery_interval_ms: int = 30_000,
        partitions: Sequence[TopicPartition] = (),
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._discovery_interval_s = partition_discovery_interval_ms / 1000
        self._client = clients.volume_admin(settings)
        self._partitions = list(partitions)
        self._last_discovery_s = time.monotonic() if partitions else None

    def earliest(self) -> Mapping[TopicPartition, int]:
        """Return, for every partition, the offset of the first record that the topic still has."""
        return self._list_offsets(admin.OffsetSpec.earliest())

    def latest(self) -> Mapping[TopicPartition, int]:
        """Return, for every partition, the offset after the last record that is not of an open transaction."""
        return self._list_offsets(admin.OffsetSpec.latest())

    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """Return, for every partition, the offset after the last record, also of an open transaction."""
        return self._list_offsets(admin.OffsetSpec.latest(), ck.IsolationLevel.READ_UNCOMMITTED)

    def for_timestamp(self, time_ms: int) -> Mapping[TopicPartition, int]:
        """Return, for every partition, the offset of the first record whose timestamp in Kafka is ``time_ms`` or later;
        the latest offset if there is none."""
        offsets, ends = self._list_offsets(admin.OffsetSpec.for_timestamp(time_ms)), self.latest()
        return {p: ends[p] if offset < 0 else min(offset, ends[p]) for p, offset in offsets.items()}

    def _list_offsets(
        self, spec: admin.OffsetSpec, isolation: ck.IsolationLevel = ck.IsolationLevel.READ_COMMITTED
    ) -> dict[TopicPartition, int]:
        """List the offsets of all partitions. After a ``Retryable``, try again until ``request_timeout_ms`` have
        passed since the call, then raise it."""
        deadline = time.monotonic() + self._settings.request_timeout_ms / 1000
        while True:
            try:
                with clients.naming_errors(self._settings, f"offsets of topics {list(self._topics)}"):
                    return self._list_offsets_once(spec, isolation, max(1.0, deadline - time.monotonic()))
            except Retryable:
                self._last_discovery_s = None
                self._client.poll(0)  # the client reports its errors and log lines only here
                if time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_PAUSE_S)

    def _list_offsets_once(
        self, spec: admin.OffsetSpec, isolation: ck.IsolationLevel, timeout_s: float
    ) -> dict[TopicPartition, int]:
        if self._is_discovery_due():
            self._partitions = [p for topic in self._topics for p in self._discover_partitions(topic, timeout_s)]
            self._last_discovery_s = time.monotonic()
        request = {ck.TopicPartition(topic, partition): spec for topic, partition in self._partitions}
        futures = self._client.list_offsets(request, isolation_level=isolation, request_timeout=timeout_s)
        return {(p.topic, p.partition): _valid_offset(p, future) for p, future in futures.items()}

    def _is_discovery_due(self) -> bool:
        last_s = self._last_discovery_s
        return last_s is None or time.monotonic() - last_s > self._discovery_interval_s

    def _discover_partitions(self, topic: str, timeout_s: float) -> list[TopicPartition]:
        """Return the partitions of a topic. Raise ``ConfigError`` if the topic does not exist."""
        metadata = self._client.list_topics(topic, timeout=timeout_s).topics[topic]
        is_absent = metadata.error is not None and metadata.error.code() in _ABSENT
        if metadata.error is not None and not is_absent:
            raise clients.confluent_error(metadata.error, f"partitions of topic {topic}", self._settings)
        if is_absent or not metadata.partitions:
            raise ConfigError(
                f"topic {topic}: does not exist at {self._settings.bootstrap}; create the topic, or correct its name"
            )
        return [(topic, partition) for partition in sorted(metadata.partitions)]
