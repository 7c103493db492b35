"""The marker of the exactly-once protocol: the writer and its last committed batch.

A marker is one record in a compacted topic. Key: ``app|epoch|writer``; value: the batch id as decimal text. It is
written in the transaction whose records it vouches for, so it is there exactly when they are. (Offsets of a private
consumer group would do as well but expire, by default seven days after the commit.)
"""

from __future__ import annotations

import time
import zlib
from contextlib import closing
from dataclasses import dataclass

import confluent_kafka as ck

from streamcore.errors import CorruptState, Retryable
from streamcore.kafka import data_clients as clients
from streamcore.kafka.data_clients import Isolation
from streamcore.kafka.settings import KafkaSettings
from streamcore.writer_id import WriterId

#: How far before the end to look first: a running app's marker is among the last few records.
_LOOK_BACK = (200, 20_000)
_PATIENCE_S = 0.5
_END_WAIT_MS = 10


@dataclass(frozen=True, slots=True)
class Marker:
    """``writer`` has committed everything up to and including ``batch``."""

    writer: WriterId
    batch: int

    @property
    def value(self) -> bytes:
        """The record's value: the batch id as decimal text."""
        return str(self.batch).encode()

    @classmethod
    def parse(cls, writer: WriterId, value: bytes | None, where: str) -> Marker:
        """Read a record's value; ``CorruptState`` if it is not a batch id."""
        if value is None or not value.isdigit():
            raise CorruptState(
                f"{where}: marker of {writer.transactional_id} is {value!r}, not a batch id; "
                "someone else writes to the markers topic: give the app its own"
            )
        return cls(writer, int(value))


def markers_partition(writer: WriterId, partitions: int) -> int:
    """Return the markers partition of a writer. The topic's partition count must therefore never change."""
    return zlib.crc32(writer.key) % partitions


def partition_count(client: ck.Consumer, settings: KafkaSettings, topic: str) -> int:
    """Return the number of partitions of ``topic``; ``ConfigError`` when there is no such topic."""
    with clients.naming_errors(settings, f"partitions of topic {topic}"):
        metadata = client.list_topics(topic, settings.request_timeout_ms / 1000).topics[topic]
    if metadata.error is not None:
        raise clients.confluent_error(metadata.error, f"topic {topic}", settings)
    return len(metadata.partitions)


def read_marker(settings: KafkaSettings, topic: str, writer: WriterId, limit_ms: int) -> Marker | None:
    """Return the writer's last committed marker, or None if it has none. Call it *after* fencing the writer.

    Reads from near the end and further back only as needed, always up to the high watermark that the partition had
    at the start. That is more than "to the end with read_committed": an open transaction of *another* writer holds
    back the last stable offset, and a marker of ours behind it would be missed. ``Retryable`` when the end was not
    reached within ``limit_ms``.
    """
    deadline = time.monotonic() + limit_ms / 1000
    with closing(clients.consumer(settings, Isolation.UNCOMMITTED)) as client:
        place = ck.TopicPartition(topic, markers_partition(writer, partition_count(client, settings, topic)))
        with clients.naming_errors(settings, f"end of topic {topic}"):
            low, high = client.get_watermark_offsets(place, settings.request_timeout_ms / 1000)
    with closing(clients.consumer(settings, Isolation.COMMITTED, end_wait_ms=_END_WAIT_MS)) as client:
        reader = _Reader(settings, client, place, high, deadline)
        starts = sorted({max(low, high - back) for back in _LOOK_BACK} | {low}, reverse=True)
        for start in starts:
            if (value := reader.last_value(writer.key, start)) is not None:
                return Marker.parse(writer, value, f"topic {topic}")
    return None


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one partition up to ``end``, whatever it ends with: records, aborted ones, control records, nothing."""

    settings: KafkaSettings
    client: ck.Consumer
    place: ck.TopicPartition
    end: int
    deadline: float

    def last_value(self, key: bytes, start: int) -> bytes | None:
        """Value of the last committed record of ``key`` in ``[start, end)``."""
        last: bytes | None = None
        if start >= self.end:
            return None
        self.client.assign([ck.TopicPartition(self.place.topic, self.place.partition, start)])
        while time.monotonic() < self.deadline:
            if (message := self.client.poll(_PATIENCE_S)) is None:
                continue
            if message.error() is None and message.key() == key and message.offset() < self.end:
                last = message.value() or b""
            if self._reached_end(message):
                return last
        raise Retryable(
            f"kafka {self.settings.bootstrap}: markers topic {self.place.topic}, partition {self.place.partition}: "
            f"offset {self.end} was not readable in time; another writer's transaction may be open in it"
        )

    def _reached_end(self, message: ck.Message) -> bool:
        error = message.error()
        if error is None:
            return bool(message.offset() >= self.end - 1)
        if error.code() == ck.KafkaError._PARTITION_EOF:
            return bool(message.offset() >= self.end)
        raise clients.confluent_error(error, f"reading topic {self.place.topic}", self.settings)
