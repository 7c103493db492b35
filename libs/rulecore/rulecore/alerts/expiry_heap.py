"""Keys in the order of their expiry, for state that is dropped then or when there is too much of it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator


class ExpiryHeap:
    """A key whose expiry moves is added again: the caller checks whether a popped pair still holds. In memory only."""

    def __init__(self, pairs: Iterable[tuple[int, str]] = ()) -> None:
        self._heap = [*pairs]
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, end_ms: int, key: str) -> None:
        """Add a key with the time at which it expires."""
        heapq.heappush(self._heap, (end_ms, key))

    def pop_expired(self, before_ms: int, too_many: Callable[[], bool]) -> Iterator[tuple[int, str]]:
        """Take out pairs that end before a time, and the next ones for as long as there are too many."""
        while self._heap and (self._heap[0][0] < before_ms or too_many()):
            yield heapq.heappop(self._heap)
