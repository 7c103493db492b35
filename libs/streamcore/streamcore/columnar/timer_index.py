"""An index of names by time, from which all due names are taken at once. ``TimerQueue`` returns timers one by one."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class TimerIndex(Generic[T]):
    """A heap of times, in epoch milliseconds, with the distinct names of each time."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._due: dict[int, dict[T, None]] = {}

    def put(self, time_ms: int, name: T) -> None:
        """Add a name at a time. A name can have several times."""
        if time_ms not in self._due:
            heappush(self._times, time_ms)
        self._due.setdefault(time_ms, {})[name] = None

    def take(self, until_ms: int) -> dict[T, None]:
        """Remove and return the names of all times up to ``until_ms``, ordered by time."""
        due_names: dict[T, None] = {}
        while self._times and self._times[0] <= until_ms:
            due_names |= self._due.pop(heappop(self._times))
        return due_names
