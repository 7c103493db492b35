"""The marker of the exactly-once protocol: the writer and its last committed batch.

A marker is one record in a compacted topic. Key: ``WriterId.key``, that is ``app|epoch|<writer name>``. Value: the
batch number as decimal text, a space and the digest of the cut (``CutId``). The transaction that holds the output of
the batch also holds the marker, so a committed reader sees either both or neither. (Offsets of a private consumer group
would also work, but they expire: by default seven days after the commit.)
"""

from __future__ import annotations

import time
import zlib
from contextlib import closing
from dataclasses import dataclass

import confluent_kafka as ck

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import CorruptState, Retryable
from streamcore.kafka import data_clients as clients
from streamcore.kafka.data_clients import ClientLog, Isolation
from streamcore.kafka.settings import KafkaSettings

#: The first reads begin this many offsets before the end: the marker of a running app is among the last few records.
_LOOK_BACK_OFFSETS = (200, 20_000)
_POLL_TIMEOUT_S = 0.5
_END_WAIT_MS = 10


@dataclass(frozen=True, slots=True)
class Marker:
    """``writer`` has committed everything up to and including ``cut``."""

    writer: WriterId
    cut: CutId

    @property
    def value(self) -> bytes:
        """The record's value: batch number and digest."""
        return f"{self.cut.batch} {self.cut.digest}".encode()

    @classmethod
    def parse(cls, writer: WriterId, value: bytes | None, source: str) -> Marker:
        """Parse the value of a marker record. Raise ``CorruptState``, naming ``source``, if it is none."""
        batch, _, digest = (value or b"").decode("ascii", "replace").partition(" ")
        if not (batch.isascii() and batch.isdigit() and digest):
            raise CorruptState(
                f"{source}: marker of {writer.transactional_id} is {value!r}, not a batch number and a digest; "
                "another program writes to this topic; give the app a markers topic of its own"
            )
        return cls(writer, CutId(int(batch), digest))


def markers_partition(writer: WriterId, partitions: int) -> int:
    """Return the partition of the markers topic that holds a writer's markers, out of ``partitions``.

    The number depends on the partition count, so the count of a markers topic must never change.
    """
    return zlib.crc32(writer.key) % partitions


def partition_count(client: ck.Consumer, settings: KafkaSettings, topic: str, log: ClientLog | None = None) -> int:
    """Return the number of partitions of ``topic``. Raise ``ConfigError`` if the topic does not exist. ``log``: the
    client's callback."""
    try:
        metadata = client.list_topics(topic, settings.request_timeout_ms / 1000).topics[topic]
    except ck.KafkaException as error:
        client.poll(0)  # runs the callback, which knows of a rejected login
        raise clients.confluent_error(error.args[0], f"partitions of topic {topic}", settings, log) from error
    if metadata.error is not None:
        raise clients.confluent_error(metadata.error, f"topic {topic}", settings)
    return len(metadata.partitions)


def read_marker(settings: KafkaSettings, topic: str, writer: WriterId, timeout_ms: int) -> Marker | None:
    """Return the writer's last committed marker, or None if the writer has none. Call it *after* fencing the writer.

    The first read begins near the end of the partition; further reads begin earlier, as long as no marker is found.
    Every read goes up to the high watermark that the partition had at the start. A read_committed consumer alone would
    stop earlier: an open transaction of *another* writer holds back the last stable offset, and would hide a marker of
    this writer behind it.

    Raises ``Retryable`` if the end is not reached within ``timeout_ms``.
    """
    return _read_marker(settings, topic, writer, timeout_ms, Isolation.UNCOMMITTED)


def read_stable_marker(settings: KafkaSettings, topic: str, writer: WriterId, timeout_ms: int) -> Marker | None:
    """Return the writer's last marker before any open transaction, or None, without waiting for the transaction.

    It needs no fencing. Another process of the writer may add markers at any time.
    """
    return _read_marker(settings, topic, writer, timeout_ms, Isolation.COMMITTED)


def _read_marker(
    settings: KafkaSettings, topic: str, writer: WriterId, timeout_ms: int, end: Isolation
) -> Marker | None:
    """Read up to the end of the partition that a client of isolation ``end`` sees: the last stable offset, or the high
    watermark."""
    deadline = time.monotonic() + timeout_ms / 1000
    log = ClientLog()
    with closing(clients.consumer(settings, end, log=log)) as client:
        partitions = partition_count(client, settings, topic, log)
        topic_partition = ck.TopicPartition(topic, markers_partition(writer, partitions))
        with clients.naming_errors(settings, f"end of topic {topic}"):
            low, high = client.get_watermark_offsets(topic_partition, settings.request_timeout_ms / 1000)
    with closing(clients.consumer(settings, Isolation.COMMITTED, end_wait_ms=_END_WAIT_MS)) as client:
        reader = _PartitionReader(settings, client, topic_partition, high, deadline)
        starts = sorted({max(low, high - offsets) for offsets in _LOOK_BACK_OFFSETS} | {low}, reverse=True)
        for start in starts:
            if (value := reader.last_value(writer.key, start)) is not None:
                return Marker.parse(writer, value, f"topic {topic}")
    return None


@dataclass(frozen=True, slots=True)
class _PartitionReader:
    """Reads one partition up to offset ``end``, even if the last offsets hold aborted records or Kafka's transaction
    markers, which a consumer never sees. ``deadline``: seconds of the monotonic clock."""

    settings: KafkaSettings
    client: ck.Consumer
    topic_partition: ck.TopicPartition
    end: int
    deadline: float

    def last_value(self, key: bytes, start: int) -> bytes | None:
        """Return the value of the last committed record of ``key`` in ``[start, end)``, or None if there is none.

        Raises ``Retryable`` at the deadline.
        """
        last: bytes | None = None
        if start >= self.end:
            return None
        topic, partition = self.topic_partition.topic, self.topic_partition.partition
        self.client.assign([ck.TopicPartition(topic, partition, start)])
        while time.monotonic() < self.deadline:
            if (message := self.client.poll(_POLL_TIMEOUT_S)) is None:
                continue
            if message.error() is None and message.key() == key and message.offset() < self.end:
                last = message.value() or b""
            if self._reached_end_or_raise(message):
                return last
        raise Retryable(
            f"kafka {self.settings.bootstrap}: markers topic {topic}, partition {partition}: an open transaction hides "
            f"the records before offset {self.end}; if it does not end by itself within its time-out, find it with "
            f"kafka-transactions.sh find-hanging --topic {topic} --partition {partition}"
        )

    def _reached_end_or_raise(self, message: ck.Message) -> bool:
        """Return whether ``message`` shows that offset ``end`` is reached. Raise the error that it carries, if any."""
        error = message.error()
        if error is None:
            return bool(message.offset() >= self.end - 1)
        if error.code() == ck.KafkaError._PARTITION_EOF:
            return bool(message.offset() >= self.end)
        raise clients.confluent_error(error, f"reading topic {self.topic_partition.topic}", self.settings)
