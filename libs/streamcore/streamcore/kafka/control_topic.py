"""The control topic: rules and settings as data, one partition that keeps everything: it is its own history.

Promises the position of each published record, so that a status record can be matched to it. Knows nothing of the
meaning of the values.
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

_READ_MS = 60_000
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class RecordOffset:
    """Where a control record lies."""

    partition: int
    offset: int


def control_topic(name: str) -> TopicSpec:
    """How the control topic must be: one partition, because the order of changes is part of their meaning.

    Nothing is ever removed: the topic alone shows which rules were active at any time, and who changed them.
    """
    return TopicSpec(name, partitions=1, retention_ms=-1, config=(("retention.bytes", "-1"),))


def disable_compaction(settings: KafkaSettings, topic: str) -> bool:
    """Turn compaction of a control topic off (earlier versions compacted it), so that it keeps everything from now on.

    Returns whether it was compacted. The last record of each key, and so every rule, is still there; compacted records
    are lost. A missing topic is left alone. ``Retryable`` when the broker does not report the change within
    ``request_timeout_ms``: it acknowledges a change before its descriptions show it.
    """
    if not _is_compacted(settings, topic):
        return False
    ended = dict.fromkeys(dict(COMPACTED))  # None: the broker's defaults again
    alter_topic(settings, topic, {**control_topic(topic).options, **ended})
    deadline = time.monotonic() + settings.request_timeout_ms / 1000
    while _is_compacted(settings, topic):
        if time.monotonic() > deadline:
            raise Retryable(f"topic {topic}: asked to keep everything, and {settings.bootstrap} still says compact")
        time.sleep(_LOOK_S)
    return True


def _is_compacted(settings: KafkaSettings, topic: str) -> bool:
    found = describe(settings, [topic]).get(topic)
    return found is not None and "compact" in found.cleanup_policy.split(",")


class ControlLog:
    """Publishes to the control topic and reads it back. Opens a connection when first needed; close it."""

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._producer: kafka.KafkaProducer | None = None

    def publish(self, key: str, value: bytes | None, headers: Headers = ()) -> RecordOffset:
        """Write one change (None deletes) and wait until all replicas have it."""
        with control_plane.naming_errors(self._settings, f"publish {key} to topic {self._topic}"):
            if self._producer is None:
                self._producer = control_plane.control_producer(self._settings)
            sent = self._producer.send(self._topic, value=value, key=key.encode(), headers=list(headers), partition=0)
            written = sent.get(timeout=self._settings.request_timeout_ms / 1000)
        return RecordOffset(int(written.partition), int(written.offset))

    def read_log(self) -> list[Record]:
        """Every change that was ever written, in order. ``Retryable`` when the end is not reached in a minute."""
        return list(scan_topic(self._settings, self._topic, limit_ms=_READ_MS))

    def follow(self, next_offset: int = 0) -> Follower:
        """Follow changes from ``next_offset`` on, in order; deletions have the value None."""
        return Follower(self._settings, [self._topic], since={(self._topic, 0): next_offset})

    def close(self) -> None:
        """End the connection; the published records are safe already."""
        if self._producer is not None:
            with closing(self._producer):
                self._producer = None

    def __enter__(self) -> ControlLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
