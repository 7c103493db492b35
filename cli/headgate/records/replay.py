"""Sends the rows of a file to a topic, at full speed or at a multiple of the speed of their event time.

Promises: every row is acknowledged by the broker when ``replay`` returns; rows of one key are in one partition in the
file's order. Rows without a key all go to partition 0, so that they keep their order too. The clock is a parameter.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from headgate.errors import InputError
from headgate.records.file_rows import Row
from streamcore.kafka import data_clients as clients
from streamcore.kafka import topics
from streamcore.kafka.settings import KafkaSettings

_ANY_PARTITION = -1
_PROGRESS_EVERY = 2_000  # rows
_STEP_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay. ``bytes``: the size of all keys and values."""

    rows: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed of a replay. ``factor``: the multiple of event time; None: full speed."""

    factor: float | None

    @classmethod
    def parse(cls, text: str) -> Speed:
        """Parse ``max`` or a multiple such as ``0.5x`` or ``100x``; raises ``InputError`` for another text."""
        if text == "max":
            return cls(None)
        number = re.fullmatch(r"(\d+(?:\.\d+)?)x", text)
        if number is None or float(number[1]) == 0:
            raise InputError(f"speed {text!r}: write max, or a multiple of event time such as 1x or 100x")
        return cls(float(number[1]))


class Clock(Protocol):
    """The clock of a replay."""

    def now(self) -> float:
        """Return a monotonic time in seconds."""

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""


class SystemClock:
    """The clock of the machine."""

    def now(self) -> float:
        """Return a monotonic time in seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        time.sleep(seconds)


class RowSink(Protocol):
    """The target of a replay."""

    def send(self, row: Row) -> None:
        """Send one row, without waiting for its acknowledgement."""

    def flush_all(self) -> None:
        """Wait until all sent rows are acknowledged."""


class KafkaSink:
    """Sends rows to a topic. ``send`` and ``flush_all`` raise the errors of ``streamcore.errors``, also for earlier
    rows."""

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._action = f"replay into topic {topic}"
        self._producer = clients.producer(settings)
        self._failed: list[Exception] = []

    def send(self, row: Row) -> None:
        """Queue a row; when the queue is full, wait for the broker."""
        self.send_record(row.value, row.key)

    def send_record(self, value: bytes | None, key: bytes | None) -> None:
        """Queue a record; when the queue is full, wait for the broker."""
        partition = 0 if key is None else _ANY_PARTITION
        while True:
            self._raise_failed()
            try:
                with clients.naming_errors(self._settings, self._action):
                    self._producer.produce(self._topic, value, key, partition, on_delivery=self._on_delivery)
                break
            except BufferError:
                self._producer.poll(_STEP_SECONDS)
        self._producer.poll(0)

    def flush_all(self) -> None:
        """Wait for all acknowledgements. The client reports an error for a record after its own time-out."""
        while self._producer.flush(1):
            self._raise_failed()
        self._raise_failed()

    def _on_delivery(self, error: object, _message: object) -> None:
        if error is not None:
            self._failed.append(clients.confluent_error(error, self._action, self._settings))

    def _raise_failed(self) -> None:
        if self._failed:
            raise self._failed[0]


def ensure_topic(settings: KafkaSettings, topic: str, partitions: int) -> int:
    """Create the topic unless it exists, and return its number of partitions."""
    if existing := topics.describe(settings, [topic]):
        return existing[topic].partitions
    return topics.ensure_topics(settings, [topics.TopicSpec(topic, partitions)])[0].partitions


def replay(
    rows: Iterable[Row], sink: RowSink, speed: Speed, clock: Clock, on_progress: Callable[[int], None] = lambda _: None
) -> ReplayResult:
    """Send all rows and wait until they are acknowledged. ``on_progress`` gets the number of rows sent so far."""
    began, first_ms, count, size = clock.now(), None, 0, 0
    for row in rows:
        if speed.factor is not None and row.time_ms is not None:
            first_ms = row.time_ms if first_ms is None else first_ms
            _wait_until(began + (row.time_ms - first_ms) / 1000 / speed.factor, clock)
        sink.send(row)
        count += 1
        size += len(row.value) + len(row.key or b"")
        if count % _PROGRESS_EVERY == 0 or speed.factor is not None:
            on_progress(count)
    sink.flush_all()
    on_progress(count)
    return ReplayResult(count, size, clock.now() - began)


def _wait_until(due: float, clock: Clock) -> None:
    while (left := due - clock.now()) > 0:
        clock.sleep(min(left, _STEP_SECONDS))
