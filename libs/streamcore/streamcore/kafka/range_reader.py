"""Reads ranges of offsets, each exactly once, whatever was read before: the input of a stage 1 task.

The client reads ahead. A span that begins where the last one of its partition ended finds its records there already;
any other begins anew at its own offset. Offsets without a record (ends of transactions, what compaction removed) are
passed over: a span has been read when a record after it was seen, or the end of the partition.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import confluent_kafka as ck
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamcore.errors import Permanent, Retryable
from streamcore.kafka import data_clients as clients
from streamcore.kafka.settings import KafkaSettings
from streamcore.offsets import OffsetRange, TopicPartition
from streamcore.wire.raw import raw_batch

_WAIT_S = 0.05
_PIECE_BYTES = 16 * 1024 * 1024
_LEAST, _MOST = 64, 20_000


@dataclass(slots=True)
class _PartitionBuffer:
    """One partition. ``taken``: up to where spans have been read; ``following``: the offset after all that came;
    ``ahead``: what came and was not taken; ``end``: the end of the partition when it was last reached; ``assigned``:
    whether the client reads it."""

    taken: int
    following: int
    ahead: list[ck.Message] = field(default_factory=list)
    end: int = -1
    assigned: bool = False

    def take(self, end: int) -> list[ck.Message]:
        """Take the received records that lie before ``end``."""
        if self.following <= end:
            ready, self.ahead = self.ahead, []
            return ready
        count = next((n for n, m in enumerate(self.ahead) if m.offset() >= end), len(self.ahead))
        ready, self.ahead = self.ahead[:count], self.ahead[count:]
        return ready

    def has_reached(self, end: int) -> bool:
        """Whether everything before ``end`` has come."""
        return bool(self.ahead) or self.following >= end or self.end >= end


class RangeReader:
    """One client of one process. Not for several threads."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._log = clients.ClientLog()
        self._client = clients.range_consumer(settings, self._log)
        self._buffers: dict[TopicPartition, _PartitionBuffer] = {}
        self._record_bytes = 1024.0  # a running mean

    def read(self, spans: Sequence[OffsetRange], *, timestamps: bool = False) -> Generator[pa.RecordBatch]:
        """Yield the records of the spans, at most one span a partition, in batches of ``raw.RAW`` of some megabytes.

        ``timestamps``: with the broker's. Asking each record for it costs time.

        In order within a partition. ``Permanent`` when records are gone, ``Retryable`` when none came for
        ``request_timeout_ms``; then, and when the iterator is left early, the same spans can be asked for again.
        """
        wanted = {(span.topic, span.partition): span for span in spans}
        self._assign(wanted)
        pieces: list[tuple[OffsetRange, list[ck.Message]]] = []
        waiting = dict(wanted)
        came_s = time.monotonic()
        while waiting or pieces:
            for place in [p for p in waiting if self._collect(waiting[p], pieces)]:
                del waiting[place]
            rows = sum(len(messages) for _, messages in pieces)
            if rows >= self._piece() or (rows and not waiting):
                yield self._batch(pieces, timestamps=timestamps)
                pieces, came_s = [], time.monotonic()
            if waiting and self._receive(waiting):
                came_s = time.monotonic()
            elif waiting:
                self._check(came_s, waiting)
        for place, span in wanted.items():
            self._buffers[place].taken = span.end

    def close(self) -> None:
        """End the client."""
        self._client.close()

    def _assign(self, wanted: dict[TopicPartition, OffsetRange]) -> None:
        """Read from these partitions and no others, and from where the spans begin."""
        stale = [p for p, lane in self._buffers.items() if p not in wanted or lane.taken != wanted[p].start]
        self._unassign(stale)
        for place in stale:
            del self._buffers[place]
        self._buffers |= {p: _PartitionBuffer(s.start, s.start) for p, s in wanted.items() if p not in self._buffers}
        new = {place: lane for place, lane in self._buffers.items() if not lane.assigned}
        if new:
            self._client.incremental_assign([ck.TopicPartition(*place, lane.following) for place, lane in new.items()])
        for lane in self._buffers.values():
            lane.assigned = True
            lane.taken = -1  # until all has been read: what is left early begins anew

    def _unassign(self, places: Sequence[TopicPartition]) -> None:
        if assigned := [place for place in places if self._buffers[place].assigned]:
            self._client.incremental_unassign([ck.TopicPartition(*place) for place in assigned])
        for place in assigned:
            self._buffers[place].assigned = False

    def _collect(self, span: OffsetRange, pieces: list[tuple[OffsetRange, list[ck.Message]]]) -> bool:
        """Take the received records of a range; return True once the range is complete."""
        lane = self._buffers[span.topic, span.partition]
        if ready := lane.take(span.end):
            pieces.append((span, ready))
        return lane.has_reached(span.end)

    def _piece(self) -> int:
        """Return the number of records that come to about ``_PIECE_BYTES``."""
        return int(min(_MOST, max(_LEAST, _PIECE_BYTES / self._record_bytes)))

    def _receive(self, waiting: dict[TopicPartition, OffsetRange]) -> bool:
        """Wait for records a moment; return whether any came."""
        missing = sum(span.end - self._buffers[place].following for place, span in waiting.items())
        messages = self._client.consume(max(1, min(missing, self._piece())), _WAIT_S)
        topics = {topic for topic, _ in self._buffers}
        runs = groupby(messages, ck.Message.topic) if len(topics) > 1 else ((topic, messages) for topic in topics)
        for topic, run in runs:
            for partition, some in groupby(run, ck.Message.partition):
                self._sort_in((topic, partition), list(some))
        self._unassign([p for p, lane in self._buffers.items() if p not in waiting and len(lane.ahead) > _MOST])
        return bool(messages)

    def _sort_in(self, place: TopicPartition, messages: list[ck.Message]) -> None:
        records = messages
        if any(map(ck.Message.error, messages)):
            records = [m for m in messages if m.error() is None]
        lane = self._buffers.get(place)
        if lane is not None and records:
            assert records[0].offset() >= lane.following, f"{place}: {records[0].offset()} after {lane.following}"
            lane.ahead += records
            lane.following = records[-1].offset() + 1
        if len(records) < len(messages):
            for message in messages:
                self._handle_error(place, lane, message)

    def _handle_error(self, place: TopicPartition, lane: _PartitionBuffer | None, message: ck.Message) -> None:
        """Handle an error that came in place of a record, the end of a partition among them."""
        error = message.error()
        if error is None or lane is None:
            return
        if error.code() == ck.KafkaError._PARTITION_EOF:
            lane.end = message.offset()
            return
        topic, partition = place
        action = f"read topic {topic}, partition {partition}"
        if error.code() in (ck.KafkaError._AUTO_OFFSET_RESET, ck.KafkaError.OFFSET_OUT_OF_RANGE):
            raise Permanent(
                f"kafka {self._settings.bootstrap}: {action}: offset {lane.following} is gone; the topic was cut, made "
                "anew, or kept its records for too short a time; start with a new checkpoint"
            )
        failure = clients.confluent_error(error, action, self._settings, self._log)
        if not isinstance(failure, Retryable):
            raise failure

    def _check(self, came_s: float, waiting: dict[TopicPartition, OffsetRange]) -> None:
        if time.monotonic() - came_s > self._settings.request_timeout_ms / 1000:
            last = f": {self._log.last.str()}" if self._log.last is not None else ""
            raise Retryable(
                f"kafka {self._settings.bootstrap}: read {sorted(waiting)}: nothing came for "
                f"{self._settings.request_timeout_ms} ms{last}; is the broker up and reachable?"
            )

    def _batch(self, pieces: list[tuple[OffsetRange, list[ck.Message]]], *, timestamps: bool) -> pa.RecordBatch:
        counts = [len(messages) for _, messages in pieces]
        messages = [m for _, some in pieces for m in some]
        batch = raw_batch(
            np.repeat(np.array([span.source for span, _ in pieces], np.int32), counts),
            np.repeat(np.array([span.partition for span, _ in pieces], np.int32), counts),
            np.concatenate([_offsets(some) for _, some in pieces]),
            list(map(ck.Message.key, messages)),
            list(map(ck.Message.value, messages)),
            [message.timestamp()[1] for message in messages] if timestamps else None,
        )
        mean = batch.nbytes / len(messages)
        self._record_bytes = max(mean, 0.8 * self._record_bytes + 0.2 * mean)
        return batch


def _offsets(messages: Sequence[ck.Message]) -> npt.NDArray[np.int64]:
    """Offsets of records in order; mostly there is one for each number, and only the ends are asked for."""
    first, last = messages[0].offset(), messages[-1].offset()
    if last - first + 1 == len(messages):
        return np.arange(first, last + 1, dtype=np.int64)
    return np.array([m.offset() for m in messages], np.int64)
