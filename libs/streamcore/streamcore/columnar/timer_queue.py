"""Timers one by one, in order of time. ``TimerIndex`` serves names that share times and are taken all at once."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

T = TypeVar("T", bound=tuple[Any, ...])


class TimerQueue(Generic[T]):
    """A heap of tuples that begin with their time in milliseconds; at equal times the rest of the tuples decides.

    A timer cannot be taken back and a moved one is put again, so the owner checks whether a popped one still holds.
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
        """Take out the first timer if its time is at most this, or whatever its time for None; else return None."""
        heap = self._heap
        return heappop(heap) if heap and (until_ms is None or heap[0][0] <= until_ms) else None
