"""A queue of timers, taken one by one in order of time. ``TimerIndex`` is for timers that share times."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

T = TypeVar("T", bound=tuple[Any, ...])


class TimerQueue(Generic[T]):
    """A heap of tuples that begin with their time in milliseconds; at equal times the rest of the tuples decides.

    A timer cannot be removed, and a moved timer is put again, so the owner checks whether a popped timer is valid.
    """

    def __init__(self, timers: Iterable[T] = ()) -> None:
        self._heap = [*timers]
        heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, timer: T) -> None:
        """Add a timer."""
        heappush(self._heap, timer)

    def pop_due(self, until_ms: int | None) -> T | None:
        """Remove and return the first timer if its time is at most ``until_ms``; else None. None: any time."""
        heap = self._heap
        return heappop(heap) if heap and (until_ms is None or heap[0][0] <= until_ms) else None
