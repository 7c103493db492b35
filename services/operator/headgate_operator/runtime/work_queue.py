"""A queue of apps to reconcile: each is at most once in it and at most once in work; failures come back with growing
delays.

Level-triggered: an entry means *that* an app needs a look, never which event caused it.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_BACK_OFF_S = 0.1
_BACK_OFF_MOST_S = 30.0


class WorkQueue(Generic[K]):
    """The queue. Safe between threads. ``gap_s``: least seconds between two reconciliations of an app."""

    def __init__(self, gap_s: float = 0.02) -> None:
        self._gap_s = gap_s
        self._changed = threading.Condition()
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._working: set[K] = set()
        self._retry: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._number = 0
        self._closed = False

    def add(self, key: K, after_s: float = 0.0) -> None:
        """Add a key, due after ``after_s`` seconds or at its earlier time."""
        at = time.monotonic() + after_s
        with self._changed:
            if key in self._working:
                self._retry[key] = min(at, self._retry.get(key, at))
            elif at < self._due.get(key, float("inf")):
                self._push(key, at)

    def _push(self, key: K, at: float) -> None:
        self._due[key] = at
        self._number += 1
        heapq.heappush(self._heap, (at, self._number, key))
        self._changed.notify()

    def take(self) -> K | None:
        """Wait for the next key and return it; None when the queue was closed."""
        with self._changed:
            while not self._closed:
                self._forget_replaced()
                wait_s = self._heap[0][0] - time.monotonic() if self._heap else None
                if wait_s is not None and wait_s <= 0:
                    _, _, key = heapq.heappop(self._heap)
                    del self._due[key]
                    self._working.add(key)
                    return key
                self._changed.wait(wait_s)
        return None

    def _forget_replaced(self) -> None:
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)

    def done(self, key: K, after_s: float | None = None) -> None:
        """Mark the key as done. ``after_s``: look again after that many seconds in any case."""
        self._leave(key, after_s)
        with self._changed:
            self._failures.pop(key, None)

    def mark_failed(self, key: K) -> float:
        """Mark the key as failed; return the delay in seconds after which it comes again."""
        with self._changed:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
        after_s = min(_BACK_OFF_S * 2.0 ** min(failures - 1, 20), _BACK_OFF_MOST_S)
        self._leave(key, after_s)
        return after_s

    def _leave(self, key: K, after_s: float | None) -> None:
        with self._changed:
            now = time.monotonic()
            self._working.discard(key)
            times = [self._retry.pop(key, None), None if after_s is None else now + after_s]
            pending = [at for at in times if at is not None]
            if pending:
                self._push(key, max(min(pending), now + self._gap_s))

    def close(self) -> None:
        """Close the queue: every waiting ``take`` returns None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
