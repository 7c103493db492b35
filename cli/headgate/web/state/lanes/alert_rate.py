"""The number of alerts in each of the last minutes. Each record is read once: a later request reads what is new."""

from __future__ import annotations

import threading
from collections import Counter

from headgate.explain.kafka_reader import KafkaReader
from headgate.web.state.lanes.topic_follower import TopicFollower
from streamcore.kafka.settings import KafkaSettings
from streamcore.wire.lanes import ALERTS

MINUTES = 60
_MINUTE_MS = 60_000


class AlertRate:
    """The alert rate of one app. Thread-safe.

    ``scan``: the most records that the first request reads; with more in the last hour, older minutes are too low.
    """

    def __init__(self, kafka: KafkaSettings, app: str, scan: int) -> None:
        self._kafka, self._topic, self._scan = kafka, f"{app}.{ALERTS}", scan
        self._counts: Counter[int] = Counter()
        self._follower: TopicFollower | None = None
        self._cut = False
        self._lock = threading.Lock()

    def by_minute(self, now_ms: int) -> tuple[tuple[int, ...], bool]:
        """Return the number of alerts in each of the last ``MINUTES`` minutes, the oldest first, and whether the oldest
        may be too low."""
        now = now_ms // _MINUTE_MS
        with self._lock:
            if self._follower is None:
                self._follower = self._open(now_ms - MINUTES * _MINUTE_MS)
            for record in self._follower.read() if self._follower is not None else ():
                self._counts[min(record.timestamp_ms // _MINUTE_MS, now)] += 1
            for minute in [minute for minute in self._counts if minute <= now - MINUTES]:
                del self._counts[minute]
            return tuple(self._counts[now - MINUTES + 1 + n] for n in range(MINUTES)), self._cut

    def close(self) -> None:
        """Close the consumer."""
        with self._lock:
            if self._follower is not None:
                self._follower.close()
                self._follower = None

    def _open(self, since_ms: int) -> TopicFollower | None:
        """Return a follower from this time on, or from the last ``scan`` records on; None without the topic."""
        reader = KafkaReader(self._kafka)
        first, last = reader.bounds(self._topic)
        if not last:
            return None
        share = max(1, self._scan // len(last))
        wanted = reader.offsets_at(self._topic, since_ms)
        start = {place: max(wanted.get(place, end), first[place], end - share) for place, end in last.items()}
        self._cut = any(start[place] > max(wanted.get(place, end), first[place]) for place, end in last.items())
        self._counts.clear()
        return TopicFollower(self._kafka, [self._topic], start=start)
