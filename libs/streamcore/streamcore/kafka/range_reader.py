"""Reads ranges of offsets for a stage 1 task.

The client reads ahead. A range that begins where the previous range of its partition ended finds its records already
received; for any other range the client seeks. Some offsets have no record (transaction markers, records removed by
compaction), so a range is complete when a later record or the end of the partition was received.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import confluent_kafka as ck
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamcore.errors import Permanent, Retryable
from streamcore.kafka import data_clients as clients
from streamcore.kafka.message_headers import message_headers
from streamcore.kafka.settings import KafkaSettings
from streamcore.offsets import OffsetRange, TopicPartition
from streamcore.wire.raw import raw_batch

_POLL_TIMEOUT_S = 0.05
#: Approximate size of a returned batch, and the bounds of its number of records.
_BATCH_BYTES = 16 * 1024 * 1024
_MIN_BATCH_RECORDS, _MAX_BATCH_RECORDS = 64, 20_000


@dataclass(slots=True)
class _PartitionBuffer:
    """The received records of one partition.

    ``read_to``: end of the last range that was read completely, -1 while a range is being read. ``next_offset``: the
    offset after the last received record. ``ahead``: records that were received and not yet taken. ``end``: the end of
    the partition when the client last reported it, -1 before. ``assigned``: whether the client reads the partition.
    """

    read_to: int
    next_offset: int
    ahead: list[ck.Message] = field(default_factory=list)
    end: int = -1
    assigned: bool = False

    def take(self, end: int) -> list[ck.Message]:
        """Take the received records that lie before ``end``."""
        if self.next_offset <= end:
            ready, self.ahead = self.ahead, []
            return ready
        count = next((n for n, m in enumerate(self.ahead) if m.offset() >= end), len(self.ahead))
        ready, self.ahead = self.ahead[:count], self.ahead[count:]
        return ready

    def has_reached(self, end: int) -> bool:
        """Return whether every record before ``end`` was received. Call ``take`` first."""
        return bool(self.ahead) or self.next_offset >= end or self.end >= end


class RangeReader:
    """Reads ranges of offsets with one Kafka consumer, which keeps its connections and its read-ahead between calls.

    One thread at a time.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._log = clients.ClientLog()
        self._client = clients.range_consumer(settings, self._log)
        self._buffers: dict[TopicPartition, _PartitionBuffer] = {}
        self._record_bytes = 1024.0  # a running mean

    def read(
        self, ranges: Sequence[OffsetRange], *, timestamps: bool = False, headers: Collection[str] = ()
    ) -> Generator[pa.RecordBatch]:
        """Yield the records of ``ranges``, at most one range per partition, in batches of ``raw.RAW``.

        A batch has up to about 16 MiB. The records of a partition are in order. ``timestamps``: include the broker's
        timestamps, which costs time for each record; without it, only the first record of a piece has one.
        ``headers``: include these headers, which costs time for each record too.

        Raises ``Permanent`` if records were deleted, and ``Retryable`` if no record arrives for ``request_timeout_ms``.
        After ``Retryable``, or if the caller leaves the iterator early, the same ranges can be read again.
        """
        requested = {(span.topic, span.partition): span for span in ranges}
        self._assign(requested)
        pieces: list[tuple[OffsetRange, list[ck.Message]]] = []
        waiting = dict(requested)
        received_s = time.monotonic()
        while waiting or pieces:
            for partition in [p for p in waiting if self._collect(waiting[p], pieces)]:
                del waiting[partition]
            rows = sum(len(messages) for _, messages in pieces)
            if rows >= self._batch_records() or (rows and not waiting):
                yield self._batch(pieces, timestamps=timestamps, headers=headers)
                pieces, received_s = [], time.monotonic()
            if waiting and self._receive(waiting):
                received_s = time.monotonic()
            elif waiting:
                self._check_timeout(received_s, waiting)
        for partition, span in requested.items():
            self._buffers[partition].read_to = span.end

    def close(self) -> None:
        """Close the consumer."""
        self._client.close()

    def _assign(self, requested: dict[TopicPartition, OffsetRange]) -> None:
        """Let the client read exactly these partitions, each from the start of its range."""
        stale = [p for p, buffer in self._buffers.items() if p not in requested or buffer.read_to != requested[p].start]
        self._unassign(stale)
        for partition in stale:
            del self._buffers[partition]
        self._buffers |= {p: _PartitionBuffer(s.start, s.start) for p, s in requested.items() if p not in self._buffers}
        new = {partition: buffer for partition, buffer in self._buffers.items() if not buffer.assigned}
        if new:
            self._client.incremental_assign([ck.TopicPartition(*p, buffer.next_offset) for p, buffer in new.items()])
        for buffer in self._buffers.values():
            buffer.assigned = True
            buffer.read_to = -1  # until the range is complete: a range that is left early is read from its start again

    def _unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop reading these partitions. Their received records stay in the buffers."""
        if assigned := [partition for partition in partitions if self._buffers[partition].assigned]:
            self._client.incremental_unassign([ck.TopicPartition(*partition) for partition in assigned])
        for partition in assigned:
            self._buffers[partition].assigned = False

    def _collect(self, span: OffsetRange, pieces: list[tuple[OffsetRange, list[ck.Message]]]) -> bool:
        """Move the received records of a range to ``pieces``; return True once the range is complete."""
        buffer = self._buffers[span.topic, span.partition]
        if ready := buffer.take(span.end):
            pieces.append((span, ready))
        return buffer.has_reached(span.end)

    def _batch_records(self) -> int:
        """Return the number of records whose size is about ``_BATCH_BYTES``."""
        return int(min(_MAX_BATCH_RECORDS, max(_MIN_BATCH_RECORDS, _BATCH_BYTES / self._record_bytes)))

    def _receive(self, waiting: dict[TopicPartition, OffsetRange]) -> bool:
        """Poll once for at most ``_POLL_TIMEOUT_S``, and buffer what arrives; return whether anything did."""
        missing = sum(span.end - self._buffers[partition].next_offset for partition, span in waiting.items())
        messages = self._client.consume(max(1, min(missing, self._batch_records())), _POLL_TIMEOUT_S)
        topics = {topic for topic, _ in self._buffers}
        runs = groupby(messages, ck.Message.topic) if len(topics) > 1 else ((topic, messages) for topic in topics)
        for topic, run in runs:
            for partition, partition_run in groupby(run, ck.Message.partition):
                self._add_to_buffer((topic, partition), list(partition_run))
        full = [p for p, b in self._buffers.items() if p not in waiting and len(b.ahead) > _MAX_BATCH_RECORDS]
        self._unassign(full)
        return bool(messages)

    def _add_to_buffer(self, topic_partition: TopicPartition, messages: list[ck.Message]) -> None:
        """Append the records of one partition to its buffer, and handle the errors among ``messages``."""
        records = messages
        if any(map(ck.Message.error, messages)):
            records = [m for m in messages if m.error() is None]
        buffer = self._buffers.get(topic_partition)
        if buffer is not None and records:
            first = records[0].offset()
            assert first >= buffer.next_offset, f"{topic_partition}: {first} after {buffer.next_offset}"
            buffer.ahead += records
            buffer.next_offset = records[-1].offset() + 1
        if len(records) < len(messages):
            for message in messages:
                self._handle_error(topic_partition, buffer, message)

    def _handle_error(
        self, topic_partition: TopicPartition, buffer: _PartitionBuffer | None, message: ck.Message
    ) -> None:
        """Handle the error of a message, if any: note the end of the partition, or raise an error that a later poll
        cannot overcome."""
        error = message.error()
        if error is None or buffer is None:
            return
        if error.code() == ck.KafkaError._PARTITION_EOF:
            buffer.end = message.offset()
            return
        topic, partition = topic_partition
        action = f"read topic {topic}, partition {partition}"
        if error.code() in (ck.KafkaError._AUTO_OFFSET_RESET, ck.KafkaError.OFFSET_OUT_OF_RANGE):
            raise Permanent(
                f"kafka {self._settings.bootstrap}: {action}: offset {buffer.next_offset} does not exist; the topic "
                "was truncated, recreated, or has too short a retention; start with a new checkpoint"
            )
        failure = clients.confluent_error(error, action, self._settings, self._log)
        if not isinstance(failure, Retryable):
            raise failure

    def _check_timeout(self, received_s: float, waiting: dict[TopicPartition, OffsetRange]) -> None:
        """Raise ``Retryable`` if the last record arrived more than ``request_timeout_ms`` ago."""
        if time.monotonic() - received_s > self._settings.request_timeout_ms / 1000:
            last = f": {self._log.last.str()}" if self._log.last is not None else ""
            raise Retryable(
                f"kafka {self._settings.bootstrap}: read {sorted(waiting)}: no record arrived for "
                f"{self._settings.request_timeout_ms} ms{last}; is the broker up and reachable?"
            )

    def _batch(
        self, pieces: list[tuple[OffsetRange, list[ck.Message]]], *, timestamps: bool, headers: Collection[str]
    ) -> pa.RecordBatch:
        """Build a batch of ``raw.RAW`` from the records, and update the mean size of a record."""
        counts = [len(messages) for _, messages in pieces]
        messages = [m for _, piece in pieces for m in piece]
        batch = raw_batch(
            np.repeat(np.array([span.source for span, _ in pieces], np.int32), counts),
            np.repeat(np.array([span.partition for span, _ in pieces], np.int32), counts),
            np.concatenate([_offsets(piece) for _, piece in pieces]),
            list(map(ck.Message.key, messages)),
            list(map(ck.Message.value, messages)),
            [_timestamp(message) for message in messages] if timestamps else _first_timestamps(pieces),
            _headers(messages, headers) if headers else {},
        )
        mean = batch.nbytes / len(messages)
        self._record_bytes = max(mean, 0.8 * self._record_bytes + 0.2 * mean)
        return batch


def _timestamp(message: ck.Message) -> int | None:
    """Return the timestamp of a record in milliseconds; None if it has none."""
    kind, ms = message.timestamp()
    return None if kind == ck.TIMESTAMP_NOT_AVAILABLE else int(ms)


def _headers(messages: Sequence[ck.Message], names: Collection[str]) -> dict[str, list[bytes | None]]:
    """Return a column for each header. Of headers with one name, the last one of a record counts."""
    found = [dict(message_headers(message)) for message in messages]
    return {name: [one.get(name) for one in found] for name in names}


def _first_timestamps(pieces: Sequence[tuple[OffsetRange, list[ck.Message]]]) -> pa.Array:
    """Return the timestamp of the first record of each piece, in milliseconds, and null for the others."""
    counts = np.array([len(messages) for _, messages in pieces])
    values, is_null = np.zeros(counts.sum(), np.int64), np.ones(counts.sum(), dtype=bool)
    first = np.cumsum(counts) - counts
    values[first], is_null[first] = [messages[0].timestamp()[1] for _, messages in pieces], False
    return pa.array(values, pa.int64(), mask=is_null)


def _offsets(messages: Sequence[ck.Message]) -> npt.NDArray[np.int64]:
    """Return the offsets of records of one partition. Usually they have no gaps, and two calls are enough."""
    first, last = messages[0].offset(), messages[-1].offset()
    if last - first + 1 == len(messages):
        return np.arange(first, last + 1, dtype=np.int64)
    return np.array([m.offset() for m in messages], np.int64)
