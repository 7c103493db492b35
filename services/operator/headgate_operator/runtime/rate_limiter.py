"""Limits the requests to the API server: a mean rate per second, and a burst after a quiet time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class RateLimiter:
    """A token bucket, one token a request. ``take`` waits for one."""

    def __init__(self, per_second: float, burst: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._burst, self._clock_s = per_second, burst, clock_s
        self._lock = threading.Lock()
        self._tokens, self._at = float(burst), clock_s()

    def wait_s(self) -> float:
        """Take a token; return the seconds until it is there."""
        with self._lock:
            now = self._clock_s()
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_second) - 1
            self._at = now
            return max(0.0, -self._tokens / self._per_second)

    def take(self) -> None:
        """Wait until a request may be sent."""
        wait_s = self.wait_s()
        if wait_s > 0:
            time.sleep(wait_s)
