"""Counters of the operator's work; ``health_server`` publishes them."""

from __future__ import annotations

import threading
from collections import Counter


class Counters:
    """Named counts. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, label: str, by: int = 1) -> None:
        """Add ``by`` to a count. ``name``: such as ``api_calls``; ``label``: such as ``PATCH pods``."""
        with self._lock:
            self._counts[name, label] += by

    def read(self) -> dict[tuple[str, str], int]:
        """Return a copy of all counts, by name and label."""
        with self._lock:
            return dict(self._counts)
