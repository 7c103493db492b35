"""The control topic: carries rules and settings as records. It has one partition and unlimited retention, so that it
also is the history of all changes.

``ControlLog.publish`` returns the offset of each record, so that a status record can be matched to it. This module does
not interpret the values.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from streamcore.errors import Retryable
from streamcore.kafka import admin_clients as control_plane
from streamcore.kafka.readers import Follower, Record, scan_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import COMPACTED, TopicSpec, alter_topic, describe
from streamcore.wire.lanes import Headers

if TYPE_CHECKING:
    import kafka

_READ_TIMEOUT_MS = 60_000
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class RecordOffset:
    """The position of a control record."""

    partition: int
    offset: int


def control_topic(name: str) -> TopicSpec:
    """Return the spec of a control topic: one partition, because changes must be applied in order.

    The topic keeps every record, so that it shows which rules were active at any time and who changed them.
    """
    return TopicSpec(name, partitions=1, retention_ms=-1, config=(("retention.bytes", "-1"),))


def disable_compaction(settings: KafkaSettings, topic: str) -> bool:
    """Switch off compaction of a control topic, which earlier versions set. Return whether the topic was compacted.

    Compaction kept the last record of each key, so every rule still exists; earlier records are lost. A missing topic
    is ignored. Raises ``Retryable`` if the broker does not report the change within ``request_timeout_ms``; brokers
    acknowledge a change before their descriptions show it.
    """
    if not _is_compacted(settings, topic):
        return False
    defaults = dict.fromkeys(dict(COMPACTED))  # None restores the broker's default
    alter_topic(settings, topic, {**control_topic(topic).options, **defaults})
    deadline = time.monotonic() + settings.request_timeout_ms / 1000
    while _is_compacted(settings, topic):
        if time.monotonic() > deadline:
            raise Retryable(f"topic {topic}: compaction was switched off, and {settings.bootstrap} still reports it")
        time.sleep(_POLL_S)
    return True


def _is_compacted(settings: KafkaSettings, topic: str) -> bool:
    state = describe(settings, [topic]).get(topic)
    return state is not None and "compact" in state.cleanup_policy.split(",")


class ControlLog:
    """Publishes to the control topic and reads it. The first ``publish`` connects; ``close`` disconnects."""

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._producer: kafka.KafkaProducer | None = None

    def publish(self, key: str, value: bytes | None, headers: Headers = ()) -> RecordOffset:
        """Write one change and wait until all replicas have it; the value None deletes ``key``. Return its position."""
        with control_plane.naming_errors(self._settings, f"publish {key} to topic {self._topic}"):
            if self._producer is None:
                self._producer = control_plane.control_producer(self._settings)
            future = self._producer.send(self._topic, value=value, key=key.encode(), headers=list(headers), partition=0)
            metadata = future.get(timeout=self._settings.request_timeout_ms / 1000)
        return RecordOffset(int(metadata.partition), int(metadata.offset))

    def read_log(self) -> list[Record]:
        """Return every change in the topic, in order. Raise ``Retryable`` if that takes longer than a minute."""
        return list(scan_topic(self._settings, self._topic, limit_ms=_READ_TIMEOUT_MS))

    def follow(self, next_offset: int = 0) -> Follower:
        """Return a follower of the changes from ``next_offset`` on, in order. Deletions have the value None."""
        return Follower(self._settings, [self._topic], since={(self._topic, 0): next_offset})

    def close(self) -> None:
        """Close the connection. Published records are durable already."""
        if self._producer is not None:
            with closing(self._producer):
                self._producer = None

    def __enter__(self) -> ControlLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
