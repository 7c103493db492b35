"""Reads a lane: pages of values from the index or, if they are older, from the topic; one value by its id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic

from headgate.explain.kafka_reader import KafkaReader, KafkaRecord
from headgate.web.state.lanes.lane_index import LaneIndex
from headgate.web.state.lanes.lane_kind import LaneFilter, LaneKind, LanePage, V
from headgate.web.state.lanes.newest_first import NewestFirst
from streamcore.kafka.settings import KafkaSettings


class LaneReader(Generic[V]):
    """Reads one lane. ``scan``: the most records that one search reads. The index is filled when it is asked first."""

    def __init__(self, kafka: KafkaSettings, topic: str, kind: LaneKind[V], scan: int) -> None:
        self._kafka, self._topic, self._kind, self._scan = kafka, topic, kind, scan
        self._index = LaneIndex(kafka, topic, kind, scan)

    def close(self) -> None:
        """Close the consumer of the index."""
        self._index.close()

    def page(self, wanted: LaneFilter[V], limit: int, below: Mapping[int, int]) -> LanePage[V]:
        """Return up to ``limit`` values before the offsets ``below``, the newest first."""
        known = self._index.page(wanted, limit, below)
        return self.search(wanted, limit, below) if known is None else known

    def search(self, wanted: LaneFilter[V], limit: int, below: Mapping[int, int]) -> LanePage[V]:
        """Return the same from the topic alone."""
        rows, found = NewestFirst(KafkaReader(self._kafka), self._topic, dict(below)), list[V]()
        ended, needles = False, wanted.needles
        for record in rows:
            if wanted.since_ms is not None and record.timestamp_ms < wanted.since_ms:
                ended = True
                break
            text = record.value or b""
            value = self._kind.parse(record) if all(needle in text for needle in needles) else None
            if value is not None and wanted.matches(value):
                found.append(value)
            if len(found) >= limit or rows.read >= self._scan:
                break
        return LanePage(tuple(found), rows.read, None if ended else rows.cursor)

    def newest(self, wanted: LaneFilter[V], most: int) -> list[tuple[int, tuple[str, ...]]]:
        """Return time and terms of the newest records of the index that have the filter's terms."""
        return self._index.newest(wanted.terms, most)

    def known(self, key: str) -> KafkaRecord | None:
        """Return the record of a value by its id; None if the index does not have it."""
        return self._index.find(key)

    def find(self, key: str) -> KafkaRecord | None:
        """Return the record of a value by its id; None if it is not among the last ``scan``."""
        return self.known(key) or KafkaReader(self._kafka).find(self._topic, "key", key.encode(), self._scan)

    def parse(self, record: KafkaRecord | None) -> V | None:
        """Return the value of a record; None without one."""
        return None if record is None else self._kind.parse(record)
