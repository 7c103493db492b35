"""Looks up the partitions of topics, their earliest and latest offsets, and their offsets for a time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

import confluent_kafka as ck
from confluent_kafka import admin

from streamcore.errors import ConfigError, Retryable
from streamcore.kafka import data_clients as clients
from streamcore.kafka.settings import KafkaSettings
from streamcore.offsets import TopicPartition

_RETRY_PAUSE_S = 0.5
_NO_SUCH_RECORD = -1


def list_partitions(settings: KafkaSettings, topics: Sequence[str]) -> dict[str, list[TopicPartition]]:
    """Return the partitions of each topic that exists, with one request to the cluster."""
    client = clients.volume_admin(settings)  # must live until the futures are resolved
    with clients.naming_errors(settings, f"describe topics {list(topics)}"):
        futures = client.describe_topics(
            ck.TopicCollection(list(topics)), request_timeout=settings.request_timeout_ms / 1000
        )
        numbers_by_topic = {name: _partition_numbers(future) for name, future in futures.items()}
    return {
        name: [(name, number) for number in sorted(numbers)] for name, numbers in numbers_by_topic.items() if numbers
    }


def _partition_numbers(answer: Future[admin.TopicDescription]) -> list[int]:
    """Return the partition numbers of a topic; an empty list if the topic does not exist."""
    try:
        return [partition.id for partition in answer.result().partitions]
    except ck.KafkaException as error:
        if error.args[0].code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
            return []
        raise


def _known_offset(place: ck.TopicPartition, answer: Future[admin.ListOffsetsResultInfo]) -> int:
    """Return the offset of a partition, or -1 if no record is as late as the requested time.

    Raises ``Retryable`` for ``OFFSET_INVALID``, which librdkafka returns without an error for a partition whose broker
    has just restarted. As an offset, it would look as if the topic had lost its records.
    """
    offset: int = answer.result().offset
    if offset < _NO_SUCH_RECORD:
        raise Retryable(f"topic {place.topic}, partition {place.partition}: the broker does not know its end yet")
    return offset


class KafkaPartitionOffsets:
    """Implements ``PartitionOffsets`` for topics of one cluster. Looks for new partitions every ``look_again_ms``.

    ``places``: all partitions of the topics, if the caller knows them already.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topics: Sequence[str],
        look_again_ms: int = 30_000,
        places: Sequence[TopicPartition] = (),
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._look_again_s = look_again_ms / 1000
        self._client = clients.volume_admin(settings)
        self._places = list(places)
        self._looked_s = time.monotonic() if places else 0.0

    def earliest(self) -> Mapping[TopicPartition, int]:
        """Return the offset of the first record that is still there, for every partition."""
        return self._list_offsets(admin.OffsetSpec.earliest())

    def latest(self) -> Mapping[TopicPartition, int]:
        """Return the offset after the last committed record, for every partition."""
        return self._list_offsets(admin.OffsetSpec.latest())

    def for_time(self, time_ms: int) -> Mapping[TopicPartition, int]:
        """Return, for every partition, the offset of the first record whose broker timestamp is ``time_ms`` or later;
        the end if there is none."""
        offsets, ends = self._list_offsets(admin.OffsetSpec.for_timestamp(time_ms)), self.latest()
        return {place: ends[place] if offset < 0 else min(offset, ends[place]) for place, offset in offsets.items()}

    def _list_offsets(self, spec: admin.OffsetSpec) -> dict[TopicPartition, int]:
        """List the offsets of all partitions. Retry for ``request_timeout_ms`` after each ``Retryable``, then raise
        it."""
        deadline = time.monotonic() + self._settings.request_timeout_ms / 1000
        while True:
            try:
                with clients.naming_errors(self._settings, f"ends of topics {list(self._topics)}"):
                    return self._list_offsets_once(spec, max(1.0, deadline - time.monotonic()))
            except Retryable:
                self._looked_s = 0.0
                self._client.poll(0)  # the client hands its messages over only here
                if time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_PAUSE_S)

    def _list_offsets_once(self, spec: admin.OffsetSpec, limit_s: float) -> dict[TopicPartition, int]:
        if not self._looked_s or time.monotonic() - self._looked_s > self._look_again_s:
            self._places = [place for topic in self._topics for place in self._partitions(topic, limit_s)]
            self._looked_s = time.monotonic()
        request = {ck.TopicPartition(topic, partition): spec for topic, partition in self._places}
        committed = ck.IsolationLevel.READ_COMMITTED
        futures = self._client.list_offsets(request, isolation_level=committed, request_timeout=limit_s)
        return {(place.topic, place.partition): _known_offset(place, future) for place, future in futures.items()}

    def _partitions(self, topic: str, limit_s: float) -> list[TopicPartition]:
        """Return the partitions of a topic. Raise ``ConfigError`` if the topic does not exist."""
        metadata = self._client.list_topics(topic, timeout=limit_s).topics[topic]
        if metadata.error is not None:
            raise clients.confluent_error(metadata.error, f"partitions of topic {topic}", self._settings)
        if not metadata.partitions:
            raise ConfigError(f"topic {topic}: does not exist; create the topic, or correct its name")
        return [(topic, partition) for partition in sorted(metadata.partitions)]
