"""Sends events at a steady rate in a thread. Their event time is the time of sending."""

from __future__ import annotations

import threading
import time
from types import TracebackType

import polars as pl

from bench.harness.environment import Load
from bench.harness.events import BASE_MS, EventSet, batches
from streamcore.kafka.settings import KafkaSettings

_TICK_S = 0.01
_AHEAD_S = 0.5


class PacedLoad:
    """Sends a set of events over and over, ``rate`` per second, until the end of the context.

    ``sent``: the events so far; ``behind_s``: the longest delay against the rate, in seconds.
    """

    def __init__(self, kafka: KafkaSettings, topic: str, events: EventSet, rate: int) -> None:
        self.events = events
        self.rate = rate
        self.sent = 0
        self.behind_s = 0.0
        self._columns = events.columns()
        self._rows = [row for group in batches(self._columns) for row in zip(*group, strict=True)]
        self._load = Load(kafka, topic, linger_ms=5)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        mark = str(BASE_MS)[:6]  # all event times of a set begin with these digits
        position = self._rows[0][2].index(f'"ts":{mark}') + len('"ts":')
        began = time.monotonic()
        while not self._stop.wait(_TICK_S):
            due = int((time.monotonic() - began) * self.rate)
            self.behind_s = max(self.behind_s, (due - self.sent) / self.rate - _TICK_S)
            rows = [self._rows[i % len(self._rows)] for i in range(self.sent, due)]
            now = str(int(time.time() * 1000))
            self._load.send(
                [r[0] for r in rows],
                [r[1] for r in rows],
                [r[2][:position] + now + r[2][position + 13 :] for r in rows],
            )
            self.sent = due

    def columns(self) -> pl.DataFrame:
        """Return the sent events as ``EventSet.columns``; ``ts`` is that of the set, not the time of sending."""
        times = self.sent // self._columns.height + 1
        frame = pl.concat([self._columns] * times)[: self.sent].drop("offset")
        return frame.with_columns(offset=pl.int_range(pl.len(), dtype=pl.Int64).over("partition"))

    def __enter__(self) -> PacedLoad:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._load.close()
