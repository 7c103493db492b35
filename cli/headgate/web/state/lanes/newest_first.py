"""Reads the records of a topic from the newest to the oldest, page by page. A cursor has the next offset of each
partition, so a page is the same however often it is read, and records that come meanwhile move none of it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import orjson

from headgate.explain.kafka_reader import KafkaReader, KafkaRecord
from headgate.web.problems import ProblemCode, ProblemError, ProblemPlace
from streamcore.offsets import OffsetRange

_FIRST, _MOST = 100, 10_000  # records of a partition in one read


@dataclass(slots=True)
class NewestFirst:
    """An iteration over a topic. ``below``: per partition the offset before which it goes on; empty: from the end.

    ``read``: the number of records that it has yielded. ``partitions`` are read in the order of their records' times;
    records of one partition keep their order.
    """

    reader: KafkaReader
    topic: str
    below: dict[int, int] = field(default_factory=dict)
    read: int = 0

    def __iter__(self) -> Iterator[KafkaRecord]:
        """Yield the records."""
        first, last = self.reader.bounds(self.topic)
        self.below = {p: min(self.below.get(p, end), end) for (_, p), end in last.items()}
        fetched, waiting, size = dict(self.below), {p: list[KafkaRecord]() for p in self.below}, _FIRST
        while True:
            empty = [p for p, queue in waiting.items() if not queue and fetched[p] > first[self.topic, p]]
            if empty:
                starts = {p: max(first[self.topic, p], fetched[p] - size) for p in empty}
                spans = [OffsetRange(0, self.topic, p, starts[p], fetched[p]) for p in empty]
                for record in self.reader.records(self.topic, spans):
                    waiting[record.partition].append(record)
                fetched |= starts
                size = min(size * 4, _MOST)
                continue
            newest = max((queue[-1] for queue in waiting.values() if queue), key=_time, default=None)
            if newest is None:
                return
            self.below[newest.partition] = waiting[newest.partition].pop().offset
            self.read += 1
            yield newest

    @property
    def more(self) -> bool:
        """Whether records are left before those that were yielded."""
        first, _ = self.reader.bounds(self.topic)
        return any(offset > first.get((self.topic, p), offset) for p, offset in self.below.items())

    @property
    def cursor(self) -> str | None:
        """The cursor of the next page; None if there is none."""
        return write_cursor(self.below) if self.more else None


def _time(record: KafkaRecord) -> tuple[int, int, int]:
    return record.timestamp_ms, -record.partition, record.offset


def write_cursor(below: Mapping[int, int]) -> str:
    """Return a cursor as text."""
    return base64.urlsafe_b64encode(orjson.dumps([*below.items()])).decode().rstrip("=")


def read_cursor(text: str | None) -> dict[int, int]:
    """Parse a cursor; empty for None. ``ProblemError`` for a text that is none."""
    if not text:
        return {}
    try:
        pairs = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        found = {int(p): int(offset) for p, offset in pairs}
    except (binascii.Error, ValueError, TypeError):
        found = {-1: -1}
    if any(p < 0 or offset < 0 for p, offset in found.items()):
        place = ProblemPlace(path="cursor", message="no cursor of this list; begin without one")
        raise ProblemError(422, ProblemCode.INVALID_REQUEST, "cursor: no cursor of this list", [place])
    return found
