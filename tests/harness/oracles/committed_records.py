"""Committed records, once their marks are there: a broker answers a commit before all partitions have its mark."""

from __future__ import annotations

import time

from streamcore.kafka.readers import Record, read_topic
from streamcore.kafka.settings import KafkaSettings

_LIMIT_S = 30.0


def read_committed(kafka: KafkaSettings, topic: str, at_least: int) -> list[Record]:
    """Return the committed records as soon as there are ``count`` of them, or those after half a minute."""
    end = time.monotonic() + _LIMIT_S
    while len(found := read_topic(kafka, topic)) < at_least and time.monotonic() < end:
        time.sleep(0.1)
    return found
