"""The newest values of a lane in memory, found by id and by terms: a page of them costs no search through the topic.

An index is read on whenever it is asked, so it has what the topic had at the call. It keeps so many records as a search
through the topic reads; older ones are searched there (``newest_first``), with the same order and the same cursors.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Generic

from headgate.explain.kafka_reader import KafkaReader, KafkaRecord
from headgate.web.state.lanes.lane_kind import LaneFilter, LaneKind, LanePage, V
from headgate.web.state.lanes.newest_first import write_cursor
from headgate.web.state.lanes.topic_follower import TopicFollower
from streamcore.kafka.readers import Record
from streamcore.kafka.settings import KafkaSettings

_SLACK = 1.25  # how much more than ``most`` is kept before the oldest are dropped


@dataclass(frozen=True, slots=True)
class _Row:
    """A record. ``order``: newer ones have a higher one; ``terms``: those by which it is found, none if it is no value
    of the lane."""

    order: tuple[int, int, int]
    record: KafkaRecord
    terms: tuple[str, ...]

    @property
    def partition(self) -> int:
        return self.record.partition


_ORDER = attrgetter("order")


class LaneIndex(Generic[V]):
    """The index of one lane. Thread-safe. ``most``: the records that it keeps."""

    def __init__(self, kafka: KafkaSettings, topic: str, kind: LaneKind[V], most: int) -> None:
        self._kafka, self._topic, self._kind, self._most = kafka, topic, kind, most
        self._lock = threading.Lock()
        self._follower: TopicFollower | None = None
        self._first: dict[int, int] = {}
        self._floor: dict[int, int] = {}  # by partition the offset from which the index has all records
        self._latest_ms: dict[int, int] = {}
        self._clear()

    def page(self, wanted: LaneFilter[V], limit: int, below: Mapping[int, int]) -> LanePage[V] | None:
        """Return up to ``limit`` values before the offsets ``below``, the newest first. None: they are older than the
        index."""
        with self._lock:
            if not self._refresh():
                return None
            floor = self._floor
            start = {p: below.get(p, self._end(p)) for p in floor}
            if below and all(start[p] <= floor[p] for p in floor):
                return None
            found: list[V] = []
            last: _Row | None = None
            terms = wanted.terms
            for row in self._candidates(terms):
                if row.record.offset >= start.get(row.partition, 0):
                    continue
                if wanted.since_ms is not None and row.order[0] < wanted.since_ms:
                    return LanePage(tuple(found), len(self._rows), None)
                # a record is parsed only if the filter may select it
                value = self._kind.parse(row.record) if row.terms and terms.issubset(row.terms) else None
                if value is not None and wanted.matches(value):
                    found.append(value)
                    last = row
                if len(found) >= limit:
                    break
            if last is None or len(found) < limit:
                after = {p: min(start[p], floor[p]) for p in floor}
            else:
                after = {p: min(start[p], self._next(p, last)) for p in floor}
            more = any(offset > self._first[p] for p, offset in after.items())
            return LanePage(tuple(found), len(self._rows), write_cursor(after) if more else None)

    def find(self, key: str) -> KafkaRecord | None:
        """Return the record of a value by its id, the key of the record; None if the index does not have it."""
        with self._lock:
            row = self._by_id.get(key.encode()) if self._refresh() else None
        return None if row is None else row.record

    def newest(self, terms: frozenset[str], most: int) -> list[tuple[int, tuple[str, ...]]]:
        """Return time and terms of the newest records with these terms, the newest first."""
        with self._lock:
            rows = self._candidates(terms) if self._refresh() else iter(())
            own = (row for row in rows if row.terms and terms.issubset(row.terms))
            return [(row.order[0], row.terms) for row in islice(own, most)]

    def close(self) -> None:
        """Close the consumer."""
        with self._lock:
            if self._follower is not None:
                self._follower.close()
                self._follower = None
                self._clear()

    def _clear(self) -> None:
        self._rows: list[_Row] = []
        self._by_partition: dict[int, list[_Row]] = {}
        self._by_term: dict[str, list[_Row]] = {}
        self._by_id: dict[bytes, _Row] = {}

    def _candidates(self, terms: frozenset[str]) -> Iterator[_Row]:
        """Return rows among which are all that have the terms, the newest first."""
        return reversed(min((self._by_term.get(one, []) for one in terms), key=len, default=self._rows))

    def _next(self, partition: int, last: _Row) -> int:
        """Return the offset of a partition before which rows follow ``last``."""
        own = self._by_partition[partition]
        at = bisect_left(own, last.order, key=_ORDER)
        return own[at].record.offset if at < len(own) else self._end(partition)

    def _end(self, partition: int) -> int:
        """Return the offset after the newest row of a partition."""
        own = self._by_partition[partition]
        return own[-1].record.offset + 1 if own else self._floor[partition]

    def _refresh(self) -> bool:
        """Read new records. Return whether there is a topic."""
        if self._follower is None:
            first, last = KafkaReader(self._kafka).bounds(self._topic)
            if not last:
                return False
            share = max(1, self._most // len(last))
            self._first = {partition: offset for (_, partition), offset in first.items()}
            self._by_partition = {partition: [] for partition in self._first}
            start = {place: max(first[place], end - share) for place, end in last.items()}
            self._floor = {partition: offset for (_, partition), offset in start.items()}
            self._follower = TopicFollower(self._kafka, [self._topic], start=start)
        new = self._follower.read(self._most)
        if new:
            self._add([self._row(record) for record in new])
            if len(self._rows) > self._most * _SLACK:
                dropped, kept = self._rows[: -self._most], self._rows[-self._most :]
                self._floor |= {row.partition: row.record.offset + 1 for row in dropped}
                self._clear()
                self._by_partition = {partition: [] for partition in self._first}
                self._add(kept)
        return True

    def _row(self, record: Record) -> _Row:
        # times of one partition never go back, so that its records keep their order
        time_ms = max(record.timestamp_ms, self._latest_ms.get(record.partition, 0))
        self._latest_ms[record.partition] = time_ms
        one = KafkaRecord(record.topic, record.partition, record.offset, record.key, record.value, record.timestamp_ms)
        value, order = self._kind.parse(one), (time_ms, -record.partition, record.offset)
        terms = () if value is None else self._kind.terms(value)
        return _Row(order, one, tuple(dict.fromkeys(terms)))

    def _add(self, rows: list[_Row]) -> None:
        rows.sort(key=_ORDER)
        _append(self._rows, rows)
        by_term: dict[str, list[_Row]] = {}
        by_partition: dict[int, list[_Row]] = {}
        for row in rows:
            by_partition.setdefault(row.partition, []).append(row)
            for one in row.terms:
                by_term.setdefault(one, []).append(row)
            if row.record.key is not None and row.terms:
                self._by_id[row.record.key] = row
        for partition, own in by_partition.items():
            _append(self._by_partition.setdefault(partition, []), own)
        for one, own in by_term.items():
            _append(self._by_term.setdefault(one, []), own)


def _append(rows: list[_Row], new: list[_Row]) -> None:
    """Add sorted rows to sorted rows."""
    late = bool(rows) and new[0].order < rows[-1].order
    rows.extend(new)
    if late:
        rows.sort(key=_ORDER)
