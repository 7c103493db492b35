"""The newest alerts of a lane in memory, found by id, rule and key: a page of them costs no search through the topic.

An index is read on whenever it is asked, so it has what the topic had at the call. It keeps so many alerts as a search
through the topic reads; older ones are searched there (``newest_first``), with the same order and the same cursors.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter

from headgate.explain.kafka_reader import KafkaReader, KafkaRecord
from headgate.web.state.alert_records import AlertFilter, key_texts, parse_alert
from headgate.web.state.newest_first import write_cursor
from headgate.web.state.topic_follower import TopicFollower
from headgate.web.state.values import AlertPage, AlertValue
from streamcore.kafka.readers import Record
from streamcore.kafka.settings import KafkaSettings

_SLACK = 1.25  # how much more than ``most`` is kept before the oldest are dropped


@dataclass(frozen=True, slots=True)
class _Row:
    """A record. ``order``: newer ones have a higher one; ``keys``: texts by which its key is found. ``rule``: empty
    if it is no alert."""

    order: tuple[int, int, int]
    record: KafkaRecord
    rule: str
    severity: str
    keys: tuple[str, ...]

    @property
    def partition(self) -> int:
        return self.record.partition

    def may_match(self, wanted: AlertFilter) -> bool:
        """Return whether the filter may select it; its record is parsed only then."""
        return (not wanted.rule or self.rule == wanted.rule) and (
            not wanted.severity or self.severity == wanted.severity
        )


_ORDER = attrgetter("order")


class AlertIndex:
    """The index of one lane. Thread-safe. ``most``: the alerts that it keeps."""

    def __init__(self, kafka: KafkaSettings, topic: str, lane: str, most: int) -> None:
        self._kafka, self._topic, self._lane, self._most = kafka, topic, lane, most
        self._lock = threading.Lock()
        self._follower: TopicFollower | None = None
        self._first: dict[int, int] = {}
        self._latest_ms: dict[int, int] = {}
        self._clear()

    def page(self, wanted: AlertFilter, limit: int, below: Mapping[int, int]) -> AlertPage | None:
        """Return up to ``limit`` alerts before the offsets ``below``, the newest first. None: they are older than the
        index."""
        with self._lock:
            if not self._refresh():
                return None
            floor = {p: own[0].record.offset if own else self._first[p] for p, own in self._by_partition.items()}
            start = {p: below.get(p, own[-1].record.offset + 1 if own else 0) for p, own in self._by_partition.items()}
            if below and all(start[p] <= floor[p] for p in floor):
                return None
            found: list[AlertValue] = []
            last: _Row | None = None
            for row in self._candidates(wanted):
                if row.record.offset >= start.get(row.partition, 0):
                    continue
                if wanted.since_ms is not None and row.order[0] < wanted.since_ms:
                    return AlertPage(alerts=tuple(found), read=len(self._rows), next=None)
                alert = parse_alert(row.record, self._lane) if row.may_match(wanted) else None
                if alert is not None and wanted.matches(alert):
                    found.append(alert)
                    last = row
                if len(found) >= limit:
                    break
            if last is None or len(found) < limit:
                after = {p: min(start[p], floor[p]) for p in floor}
            else:
                after = {p: min(start[p], self._next(p, last)) for p in floor}
            more = any(offset > self._first[p] for p, offset in after.items())
            return AlertPage(alerts=tuple(found), read=len(self._rows), next=write_cursor(after) if more else None)

    def find(self, alert_id: str) -> AlertValue | None:
        """Return an alert; None if the index does not have it."""
        with self._lock:
            row = self._by_id.get(alert_id.encode()) if self._refresh() else None
        return None if row is None else parse_alert(row.record, self._lane)

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
        self._by_rule: dict[str, list[_Row]] = {}
        self._by_key: dict[str, list[_Row]] = {}
        self._by_id: dict[bytes, _Row] = {}

    def _candidates(self, wanted: AlertFilter) -> Iterator[_Row]:
        """Return rows among which are all that the filter selects, the newest first."""
        if wanted.key:
            return reversed(self._by_key.get(wanted.key, []))
        return reversed(self._by_rule.get(wanted.rule, []) if wanted.rule else self._rows)

    def _next(self, partition: int, last: _Row) -> int:
        """Return the offset of a partition before which rows follow ``last``."""
        own = self._by_partition[partition]
        at = bisect_left(own, last.order, key=_ORDER)
        return (
            own[at].record.offset if at < len(own) else (own[-1].record.offset + 1 if own else self._first[partition])
        )

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
            self._follower = TopicFollower(self._kafka, [self._topic], start=start)
        new = self._follower.read(self._most)
        if new:
            self._add([self._row(record) for record in new])
            if len(self._rows) > self._most * _SLACK:
                kept = self._rows[-self._most :]
                self._clear()
                self._by_partition = {partition: [] for partition in self._first}
                self._add(kept)
        return True

    def _row(self, record: Record) -> _Row:
        # times of one partition never go back, so that its records keep their order
        time_ms = max(record.timestamp_ms, self._latest_ms.get(record.partition, 0))
        self._latest_ms[record.partition] = time_ms
        one = KafkaRecord(record.topic, record.partition, record.offset, record.key, record.value, record.timestamp_ms)
        alert, order = parse_alert(one, self._lane), (time_ms, -record.partition, record.offset)
        if alert is None:
            return _Row(order, one, "", "", ())
        keys = tuple(known for name, text in key_texts(alert) for known in (text, f"{name}={text}"))
        return _Row(order, one, alert.rule, alert.severity, keys)

    def _add(self, rows: list[_Row]) -> None:
        rows.sort(key=_ORDER)
        _append(self._rows, rows)
        by_rule: dict[str, list[_Row]] = {}
        by_key: dict[str, list[_Row]] = {}
        by_partition: dict[int, list[_Row]] = {}
        for row in rows:
            by_partition.setdefault(row.partition, []).append(row)
            by_rule.setdefault(row.rule, []).append(row)
            for text in dict.fromkeys(row.keys):
                by_key.setdefault(text, []).append(row)
            if row.record.key is not None and row.rule:
                self._by_id[row.record.key] = row
        for partition, own in by_partition.items():
            _append(self._by_partition.setdefault(partition, []), own)
        for name, own in by_rule.items():
            _append(self._by_rule.setdefault(name, []), own)
        for text, own in by_key.items():
            _append(self._by_key.setdefault(text, []), own)


def _append(rows: list[_Row], new: list[_Row]) -> None:
    """Add sorted rows to sorted rows."""
    late = bool(rows) and new[0].order < rows[-1].order
    rows.extend(new)
    if late:
        rows.sort(key=_ORDER)
