"""Counts of what the operator does and what became of it, behind one small interface, for whoever publishes them."""

from __future__ import annotations

import threading
from collections import Counter


class Counters:
    """Named counts, safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, of: str, by: int = 1) -> None:
        """``name``: what is counted (``api_calls``); ``of``: its one label (``PATCH pods``)."""
        with self._lock:
            self._counts[name, of] += by

    def read(self) -> dict[tuple[str, str], int]:
        """All of them, as they are now."""
        with self._lock:
            return dict(self._counts)
