"""Requests the ends of topics all the time, and reports a broker that does not answer (``streamcore.outages``).

The clients that read and write do not report this: while a broker is down or frozen, the driver repeats a commit, or a
worker waits for records, for half a minute or more. This thread knows within seconds, whatever the app does just then.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType

from streamcore.errors import Retryable, StreamError
from streamcore.kafka.data_clients import MESSAGES
from streamcore.kafka.partition_offsets import KafkaPartitionOffsets
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.systems import broker_dependency
from streamcore.outages import OUTAGES, Outages

_LIMIT_MS = 5_000
_PAUSE_S = 5.0
_PAUSE_AWAY_S = 0.5


class BrokerWatch:
    """A context manager: a thread watches the brokers that lead the partitions of ``topics``."""

    def __init__(self, settings: KafkaSettings, topics: Sequence[str], outages: Outages = OUTAGES) -> None:
        self._broker = broker_dependency(settings)
        self._outages = outages
        self._settings = replace(settings, request_timeout_ms=min(_LIMIT_MS, settings.request_timeout_ms))
        self._topics = topics
        self._stopping = threading.Event()

    def __enter__(self) -> BrokerWatch:
        threading.Thread(target=self._run, name="broker-watch", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopping.set()

    def _run(self) -> None:
        ends = KafkaPartitionOffsets(self._settings, self._topics)
        pause_s = _PAUSE_S
        while not self._stopping.wait(pause_s):
            asked_s = self._outages.now_s()
            MESSAGES.take()
            try:
                ends.latest()
            except Retryable:
                reason = MESSAGES.take() or f"no answer within {self._settings.request_timeout_ms} ms"
                self._outages.failed(self._broker, reason, asked_s)
                pause_s = _PAUSE_AWAY_S
            except StreamError:
                pause_s = _PAUSE_S  # the app meets it too, and reports it
            else:
                self._outages.succeeded(self._broker)
                pause_s = _PAUSE_S
