"""Measures how long each step of a topology is busy. The time is a metric: no row depends on it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from streamcore.kernel import BUSY_US


@dataclass(slots=True)
class BusyTime:
    """The microseconds in which each step ran, by its name. ``now_ns``: monotonic nanoseconds."""

    now_ns: Callable[[], int] = time.perf_counter_ns
    _ns: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def measure(self, step: str) -> Iterator[None]:
        """Add the time of the block to that of the step."""
        began_ns = self.now_ns()
        try:
            yield
        finally:
            self._ns[step] += self.now_ns() - began_ns

    def counters(self) -> dict[str, int]:
        """Return the whole microseconds by the names of counters."""
        return {f"{BUSY_US}.{step}": ns // 1000 for step, ns in self._ns.items() if ns >= 1000}
