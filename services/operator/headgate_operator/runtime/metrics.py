"""Counters of the operator's actions and their results; ``health_server`` publishes them."""

from __future__ import annotations

import threading
from collections import Counter


class Counters:
    """Named counts, safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, of: str, by: int = 1) -> None:
        """Add to a count. ``name``: the counted thing (``api_calls``); ``of``: its one label (``PATCH pods``)."""
        with self._lock:
            self._counts[name, of] += by

    def read(self) -> dict[tuple[str, str], int]:
        """Return a copy of all counters."""
        with self._lock:
            return dict(self._counts)
