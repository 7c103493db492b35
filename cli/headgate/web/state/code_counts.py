"""The counts of dead letters by code, among the newest ones. Each record is read once."""

from __future__ import annotations

import threading
from collections import Counter, deque

from headgate.dead_letters.model import DeadLetter, to_dead_letter
from headgate.explain.kafka_reader import KafkaReader
from headgate.web.state.lanes.topic_follower import TopicFollower
from headgate.web.state.values import CodeCount
from streamcore.kafka.settings import KafkaSettings


class CodeCounts:
    """The counts of one topic. Thread-safe. ``most``: the records that are counted."""

    def __init__(self, kafka: KafkaSettings, topic: str, most: int, headers: tuple[str, ...]) -> None:
        self._kafka, self._topic, self._most, self._headers = kafka, topic, most, headers
        self._lock = threading.Lock()
        self._follower: TopicFollower | None = None
        self._codes: deque[str] = deque()
        self._counts: Counter[str] = Counter()
        self._latest: dict[str, DeadLetter] = {}

    def read(self) -> tuple[tuple[CodeCount, ...], int]:
        """Return the counts, the most first, and how many records they are of."""
        with self._lock:
            if self._follower is None and not self._open():
                return (), 0
            assert self._follower is not None
            for record in sorted(self._follower.read(self._most), key=lambda one: (one.timestamp_ms, one.offset)):
                letter = to_dead_letter(record)
                self._codes.append(letter.code)
                self._counts[letter.code] += 1
                self._latest[letter.code] = letter
            while len(self._codes) > self._most:
                self._counts[self._codes.popleft()] -= 1
            found = [code for code, count in self._counts.items() if count > 0]
            order = sorted(found, key=lambda code: (-self._counts[code], code))
            return tuple(self._value(code) for code in order), len(self._codes)

    def close(self) -> None:
        """Close the consumer."""
        with self._lock:
            if self._follower is not None:
                self._follower.close()
                self._follower = None
                self._codes.clear()
                self._counts.clear()

    def _value(self, code: str) -> CodeCount:
        latest = self._latest[code]
        return CodeCount(
            code=code,
            count=self._counts[code],
            latest_ms=latest.timestamp_ms,
            example=latest.reason,
            at=latest.position,
        )

    def _open(self) -> bool:
        first, last = KafkaReader(self._kafka).bounds(self._topic)
        if not last:
            return False
        share = max(1, self._most // len(last))
        start = {place: max(first[place], end - share) for place, end in last.items()}
        self._follower = TopicFollower(self._kafka, [self._topic], self._headers, start=start)
        return True
