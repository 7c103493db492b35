"""New values of a lane for pages that are open: one thread reads the topic, however many pages wait.

A page that was away gets the values since the last one that it has, as far as they are kept.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Generic

from headgate.explain.kafka_reader import KafkaRecord
from headgate.web.state.lanes.lane_kind import LaneKind, V
from headgate.web.state.lanes.topic_follower import TopicFollower
from streamcore.errors import StreamError
from streamcore.kafka.settings import KafkaSettings

_LOG = logging.getLogger(__name__)
_KEPT = 1_000
_WAITING = 200  # values for one page
_PAUSE_S = 0.2
_AFTER_FAULT_S = 2.0


class LaneFeed(Generic[V]):
    """The feed of one lane. It reads while pages wait. Each value has a number that grows."""

    def __init__(self, kafka: KafkaSettings, topic: str, kind: LaneKind[V]) -> None:
        self._kafka, self._topic, self._kind = kafka, topic, kind
        self._kept: deque[tuple[int, V]] = deque(maxlen=_KEPT)
        self._pages: set[Callable[[tuple[int, V]], None]] = set()
        self._number = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    @property
    def pages(self) -> int:
        """The number of pages that wait."""
        return len(self._pages)

    async def values(self, after: int | None, beat_s: float) -> AsyncIterator[tuple[int, V] | None]:
        """Yield new values, each with its number, and None after ``beat_s`` seconds without one. ``after``: the last
        number that the page has; None: it begins now. A page that takes them too slowly misses the oldest."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[tuple[int, V]] = asyncio.Queue(_WAITING)

        def offer(one: tuple[int, V]) -> None:
            if waiting.full():
                waiting.get_nowait()
            waiting.put_nowait(one)

        def take(one: tuple[int, V]) -> None:
            loop.call_soon_threadsafe(offer, one)

        missed = self._join(take, after)
        try:
            for one in missed:
                yield one
            while not self._closed.is_set():
                try:
                    yield await asyncio.wait_for(waiting.get(), beat_s)
                except TimeoutError:
                    yield None
        finally:
            with self._lock:
                self._pages.discard(take)

    def close(self) -> None:
        """End the thread and all waiting pages."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _join(self, take: Callable[[tuple[int, V]], None], after: int | None) -> list[tuple[int, V]]:
        with self._lock:
            self._pages.add(take)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"feed of {self._topic}", daemon=True)
                self._thread.start()
            return [] if after is None else [one for one in self._kept if one[0] > after]

    def _run(self) -> None:
        follower: TopicFollower | None = None
        while not self._closed.is_set():
            if not self._pages:
                if follower is not None:
                    follower.close()
                    follower = None
                self._closed.wait(_PAUSE_S)
                continue
            try:
                follower = follower or TopicFollower(self._kafka, [self._topic], from_end=True)
                for record in follower.read():
                    one = KafkaRecord(
                        record.topic, record.partition, record.offset, record.key, record.value, record.timestamp_ms
                    )
                    if (value := self._kind.parse(one)) is not None:
                        self._offer(value)
                self._closed.wait(_PAUSE_S)
            except StreamError as error:
                _LOG.warning("live records of %s: %s", self._topic, error)
                self._closed.wait(_AFTER_FAULT_S)
        if follower is not None:
            follower.close()

    def _offer(self, value: V) -> None:
        with self._lock:
            self._number += 1
            one = (self._number, value)
            self._kept.append(one)
            for take in self._pages:
                take(one)
