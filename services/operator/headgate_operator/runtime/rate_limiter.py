"""Limits the rate of the requests to the API server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class RateLimiter:
    """A token bucket with one token per request: ``per_second`` on average, up to ``burst`` at once after a pause."""

    def __init__(self, per_second: float, burst: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._burst, self._clock_s = per_second, burst, clock_s
        self._lock = threading.Lock()
        self._tokens, self._updated_s = float(burst), clock_s()

    def reserve(self) -> float:
        """Reserve a token; return the seconds until it may be used."""
        with self._lock:
            now_s = self._clock_s()
            self._tokens = min(self._burst, self._tokens + (now_s - self._updated_s) * self._per_second) - 1
            self._updated_s = now_s
            return max(0.0, -self._tokens / self._per_second)

    def take(self) -> None:
        """Reserve a token and wait until it may be used."""
        wait_s = self.reserve()
        if wait_s > 0:
            time.sleep(wait_s)
