"""Names by time, taken all at once up to a time, so that nothing is looked at that is not due."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class TimerIndex(Generic[T]):
    """A heap of times, each with its names once."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._due: dict[int, dict[T, None]] = {}

    def put(self, time_ms: int, name: T) -> None:
        """Enter a name at a time; it may be entered at several."""
        if time_ms not in self._due:
            heappush(self._times, time_ms)
        self._due.setdefault(time_ms, {})[name] = None

    def take(self, until_ms: int) -> dict[T, None]:
        """Return the names of all times up to this one, which leave the index."""
        found: dict[T, None] = {}
        while self._times and self._times[0] <= until_ms:
            found |= self._due.pop(heappop(self._times))
        return found
