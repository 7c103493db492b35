"""A queue of keys of apps to reconcile.

A key is in the queue at most once, and at most one worker has it. A failed key comes back with growing delays. The
queue is level-triggered: an entry means that an app must be reconciled, and does not name the event.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

#: Delay after the first failure, which doubles with each further one, and the longest delay, in seconds.
_BACK_OFF_S = 0.1
_MAX_BACK_OFF_S = 30.0


class WorkQueue(Generic[K]):
    """The queue. Thread-safe. ``gap_s``: least seconds between two reconciliations of a key."""

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
        """Add a key that is due after ``after_s`` seconds; if it is in the queue already, the earlier time counts."""
        at_s = time.monotonic() + after_s
        with self._changed:
            if key in self._working:
                self._retry[key] = min(at_s, self._retry.get(key, at_s))
            elif at_s < self._due.get(key, float("inf")):
                self._push(key, at_s)

    def _push(self, key: K, at_s: float) -> None:
        self._due[key] = at_s
        self._number += 1
        heapq.heappush(self._heap, (at_s, self._number, key))
        self._changed.notify()

    def take(self) -> K | None:
        """Wait until a key is due and return it; None after ``close``."""
        with self._changed:
            while not self._closed:
                self._drop_superseded()
                wait_s = self._heap[0][0] - time.monotonic() if self._heap else None
                if wait_s is not None and wait_s <= 0:
                    _, _, key = heapq.heappop(self._heap)
                    del self._due[key]
                    self._working.add(key)
                    return key
                self._changed.wait(wait_s)
        return None

    def _drop_superseded(self) -> None:
        """Drop the heap's first entries whose key was since added with another time."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)

    def done(self, key: K, after_s: float | None = None) -> None:
        """Mark a taken key as done. ``after_s``: the key is due again after that many seconds, if not before."""
        self._put_back(key, after_s)
        with self._changed:
            self._failures.pop(key, None)

    def mark_failed(self, key: K) -> float:
        """Mark a taken key as failed; return the seconds after which it is due again."""
        with self._changed:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
        after_s = min(_BACK_OFF_S * 2.0 ** min(failures - 1, 20), _MAX_BACK_OFF_S)
        self._put_back(key, after_s)
        return after_s

    def _put_back(self, key: K, after_s: float | None) -> None:
        """End the work on a key; push it if it was added meanwhile or ``after_s`` is given."""
        with self._changed:
            now_s = time.monotonic()
            self._working.discard(key)
            times = [self._retry.pop(key, None), None if after_s is None else now_s + after_s]
            pending = [at_s for at_s in times if at_s is not None]
            if pending:
                self._push(key, max(min(pending), now_s + self._gap_s))

    def close(self) -> None:
        """Close the queue: every waiting ``take`` returns None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
