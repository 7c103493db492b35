"""Follows topics: each ``read`` returns what is new, up to the ends at the call."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from streamcore.kafka.partition_offsets import KafkaPartitionOffsets
from streamcore.kafka.range_reader import RangeReader
from streamcore.kafka.readers import Record
from streamcore.kafka.settings import KafkaSettings
from streamcore.offsets import OffsetRange, TopicPartition
from streamcore.wire.raw import header_rows

_STEP = 50_000  # records of a partition at once


class TopicFollower:
    """Reads committed records of some topics. ``headers``: those that a record gets. ``start``: the first
    offset of each partition, without it that of the beginning; ``from_end``: only what comes later. One thread at a
    time.

    A call without new records costs one request for the ends.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        topics: Sequence[str],
        headers: Collection[str] = (),
        start: Mapping[TopicPartition, int] | None = None,
        *,
        from_end: bool = False,
    ) -> None:
        self._topics, self._headers = list(topics), headers
        self._ends = KafkaPartitionOffsets(kafka, topics)
        self._reader = RangeReader(kafka)
        self._read: dict[TopicPartition, int] = dict(self._ends.latest() if from_end else start or {})

    def read(self, most: int | None = None) -> list[Record]:
        """Return the new records, in order within a partition. ``most``: of each partition only so many, the newest;
        the others are skipped."""
        ends, found, done = self._ends.latest(), list[Record](), dict(self._read)
        if most is not None:
            done |= {place: max(done.get(place, 0), end - most) for place, end in ends.items()}
        while any(done.get(place, 0) < end for place, end in ends.items()):
            spans = [self._span(place, done.get(place, 0), end) for place, end in ends.items()]
            for batch in self._reader.read(spans, timestamps=True, headers=self._headers):
                found += self._records(batch)
            done |= {(span.topic, span.partition): span.end for span in spans}
        self._read = done  # not before: a call that fails has returned nothing
        return found

    def close(self) -> None:
        """Close the consumer."""
        self._reader.close()

    def _span(self, place: TopicPartition, start: int, end: int) -> OffsetRange:
        """Return the next range of a partition. It may be empty: the client keeps all partitions assigned."""
        return OffsetRange(self._topics.index(place[0]), *place, start, min(max(start, end), start + _STEP))

    def _records(self, batch: pa.RecordBatch) -> list[Record]:
        names = ("source", "partition", "offset", "timestamp_ms", "key", "value")
        rows = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
        return [
            Record(self._topics[source], partition, offset, time_ms, key, value, tuple(headers.items()))
            for (source, partition, offset, time_ms, key, value), headers in zip(rows, header_rows(batch), strict=True)
        ]
