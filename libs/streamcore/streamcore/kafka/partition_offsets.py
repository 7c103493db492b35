"""The partitions of topics with their earliest and latest offsets and the offset for a time: the planner's input."""

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

_AGAIN_S = 0.5
_NO_SUCH_RECORD = -1


def list_partitions(settings: KafkaSettings, topics: Sequence[str]) -> dict[str, list[TopicPartition]]:
    """Those of the topics that exist, with their partitions, by one request to a cluster."""
    client = clients.volume_admin(settings)  # answers come while it lives
    with clients.naming_errors(settings, f"describe topics {list(topics)}"):
        answers = client.describe_topics(
            ck.TopicCollection(list(topics)), request_timeout=settings.request_timeout_ms / 1000
        )
        found = {name: _partition_numbers(answer) for name, answer in answers.items()}
    return {name: [(name, number) for number in sorted(some)] for name, some in found.items() if some}


def _partition_numbers(answer: Future[admin.TopicDescription]) -> list[int]:
    """Return the partition numbers; none for a topic that does not exist."""
    try:
        return [partition.id for partition in answer.result().partitions]
    except ck.KafkaException as error:
        if error.args[0].code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
            return []
        raise


def _known_offset(place: ck.TopicPartition, answer: Future[admin.ListOffsetsResultInfo]) -> int:
    """Return the offset of a partition; -1 where no record has the time that was asked for.

    librdkafka answers with ``OFFSET_INVALID`` and no error for a partition whose broker has just come back. Taken for
    an offset, it would look as if the topic had lost its records.
    """
    offset: int = answer.result().offset
    if offset < _NO_SUCH_RECORD:
        raise Retryable(f"topic {place.topic}, partition {place.partition}: the broker does not know its end yet")
    return offset


class KafkaPartitionOffsets:
    """``PartitionOffsets`` of topics of one cluster. It looks for new partitions every ``look_again_ms``.

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
        return self._ask(admin.OffsetSpec.earliest())

    def latest(self) -> Mapping[TopicPartition, int]:
        """Return the offset after the last committed record, for every partition."""
        return self._ask(admin.OffsetSpec.latest())

    def for_time(self, time_ms: int) -> Mapping[TopicPartition, int]:
        """Return the offset of the first record with the broker's timestamp or a later one, for every partition; the
        end where there is none."""
        found, ends = self._ask(admin.OffsetSpec.for_timestamp(time_ms)), self.latest()
        return {place: ends[place] if offset < 0 else min(offset, ends[place]) for place, offset in found.items()}

    def _ask(self, which: admin.OffsetSpec) -> dict[TopicPartition, int]:
        """List offsets, trying again for ``request_timeout_ms`` while a broker is away. Then, or when another attempt
        is no use, raise an error of ``streamcore.errors``."""
        deadline = time.monotonic() + self._settings.request_timeout_ms / 1000
        while True:
            try:
                with clients.naming_errors(self._settings, f"ends of topics {list(self._topics)}"):
                    return self._ask_once(which, max(1.0, deadline - time.monotonic()))
            except Retryable:
                self._looked_s = 0.0
                if time.monotonic() > deadline:
                    raise
            time.sleep(_AGAIN_S)

    def _ask_once(self, which: admin.OffsetSpec, limit_s: float) -> dict[TopicPartition, int]:
        if not self._looked_s or time.monotonic() - self._looked_s > self._look_again_s:
            self._places = [place for topic in self._topics for place in self._partitions(topic, limit_s)]
            self._looked_s = time.monotonic()
        wanted = {ck.TopicPartition(topic, partition): which for topic, partition in self._places}
        committed = ck.IsolationLevel.READ_COMMITTED
        answers = self._client.list_offsets(wanted, isolation_level=committed, request_timeout=limit_s)
        return {(place.topic, place.partition): _known_offset(place, answer) for place, answer in answers.items()}

    def _partitions(self, topic: str, limit_s: float) -> list[TopicPartition]:
        found = self._client.list_topics(topic, timeout=limit_s).topics[topic]
        if found.error is not None:
            raise clients.confluent_error(found.error, f"partitions of topic {topic}", self._settings)
        if not found.partitions:
            raise ConfigError(f"topic {topic}: does not exist; create the topic, or correct its name")
        return [(topic, partition) for partition in sorted(found.partitions)]
