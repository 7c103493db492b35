"""Offsets of all topics together with the times, as at the start or the end of a cut, and ranges between them.

The offsets of a cut are stored before it runs and read again for a replay, so a replay reads the records and the times
of the first run (``engine.planner``, ``checkpoint.offset_log``). All functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from streamcore.cuts.cut_clock import CutClock
from streamcore.errors import CorruptState

#: A source partition is one number: its topic's index in ``App.topics``, times this, and the partition in the topic.
PARTITIONS_PER_TOPIC = 1 << 16

#: The number of the partition that the files of a stream are, beside those of its topic.
FILES_PARTITION = PARTITIONS_PER_TOPIC - 1

#: The forms of ``starting_offsets`` and ``ending_offsets``: a name, an offset, or a time.
PLACE_PATTERN = r"^(earliest|latest|[0-9]{1,18}|[0-9]{4}-[0-9]{2}-[0-9]{2}[T ].*)$"

#: A partition of a topic.
TopicPartition = tuple[str, int]


def source_index(partition: int) -> int:
    """Return the index in ``App.topics`` of the topic of a source partition."""
    return partition // PARTITIONS_PER_TOPIC


def source_partitions(source: int) -> range:
    """Return the numbers of all source partitions that the topic with this index in ``App.topics`` can have."""
    return range(source * PARTITIONS_PER_TOPIC, (source + 1) * PARTITIONS_PER_TOPIC)


def to_topic_partition(partition: int, topics: Sequence[str]) -> TopicPartition:
    """Return the topic of a source partition and the partition's number in that topic. ``topics``: ``App.topics``."""
    return topics[source_index(partition)], partition % PARTITIONS_PER_TOPIC


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """How far all topics are read. ``offsets``: the next offset to read of every known partition. ``clock``: the times
    of the cut that ends here, all 0 before the first cut."""

    clock: CutClock
    offsets: Mapping[TopicPartition, int]

    def by_topic(self) -> dict[str, dict[str, int]]:
        """Return the offsets by topic and partition, in order."""
        topics: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in sorted(self.offsets.items()):
            topics.setdefault(topic, {})[str(partition)] = offset
        return topics

    def to_json(self) -> dict[str, object]:
        """Convert to the JSON document that is stored."""
        return {**self.clock.to_json(), "topics": self.by_topic()}

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> StreamOffsets:
        """Parse the value that ``to_json`` returned; ``CorruptState`` for anything else."""
        clock, topics = CutClock.from_json(document), document.get("topics")
        if clock is None or not isinstance(topics, dict):
            raise CorruptState(f"position: {document} is no position of ours; restore from a savepoint")
        return cls(clock, {(t, int(p)): int(offset) for t, places in topics.items() for p, offset in places.items()})


class PartitionOffsets(Protocol):
    """Looks up offsets of all partitions of some topics, as ``kafka.partition_offsets`` does for one cluster."""

    def earliest(self) -> Mapping[TopicPartition, int]:
        """Return the offset of the first record that the topic still has, for every partition."""
        ...

    def latest(self) -> Mapping[TopicPartition, int]:
        """Return the offset after the last record that may be read, for every partition."""
        ...

    def for_timestamp(self, time_ms: int) -> Mapping[TopicPartition, int]:
        """Return the offset of the first record of this time or later, for every partition."""
        ...


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records of one partition with ``start <= offset < end``. ``source``: as in ``raw.RAW``."""

    source: int
    topic: str
    partition: int
    start: int
    end: int


def next_offsets(
    start: StreamOffsets,
    ends: Mapping[TopicPartition, int],
    limit: int,
    clock: CutClock,
    own_limits: Mapping[str, int] = MappingProxyType({}),
) -> StreamOffsets:
    """Return the end of the cut that begins at ``start``, when the partitions end at ``ends``.

    The cut takes about ``limit`` records, in proportion to the backlog of each partition, and at least one from each
    partition with a backlog. A topic in ``own_limits`` does not share that limit, but has its own. A new partition
    begins at 0. ``clock``: the times of the cut.
    """
    waiting: dict[str | None, dict[TopicPartition, int]] = {}
    for place, end in ends.items():
        share = place[0] if place[0] in own_limits else None
        waiting.setdefault(share, {})[place] = end - start.offsets.get(place, 0)
    offsets = dict(start.offsets)
    for share, counts in waiting.items():
        for place, taken in _shares(counts, limit if share is None else own_limits[share]).items():
            offsets[place] = start.offsets.get(place, 0) + taken
    return StreamOffsets(clock, offsets)


def _shares(waiting: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """Return how many of the waiting records of each partition a cut takes."""
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    return {place: min(count, max(1, count * limit // total)) for place, count in waiting.items()}


def ranges_between(start: StreamOffsets, end: StreamOffsets, sources: Mapping[str, int]) -> list[OffsetRange]:
    """Return the ranges between two offsets, by topic and partition. ``sources``: the number of each topic."""
    found = []
    for (topic, partition), stop in sorted(end.offsets.items()):
        begin = start.offsets.get((topic, partition), 0)
        if stop > begin:
            found.append(OffsetRange(sources[topic], topic, partition, begin, stop))
    return found


def assign_ranges(every: Sequence[OffsetRange], tasks: int) -> list[list[OffsetRange]]:
    """Spans for so many tasks, the largest first and each to the task that has the least so far; no task is empty."""
    shares: list[list[OffsetRange]] = [[] for _ in range(max(1, tasks))]
    sizes = [0] * len(shares)
    for span in sorted(every, key=lambda s: (s.start - s.end, s.topic, s.partition)):
        least = sizes.index(min(sizes))
        shares[least].append(span)
        sizes[least] += span.end - span.start
    return [share for share in shares if share]
