"""No request storm, whatever goes wrong: so many calls a second over time, and so many at once after a quiet while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class RateLimiter:
    """A bucket of tokens, one a call. ``take`` waits for one."""

    def __init__(self, per_second: float, burst: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._burst, self._clock_s = per_second, burst, clock_s
        self._lock = threading.Lock()
        self._tokens, self._at = float(burst), clock_s()

    def wait_s(self) -> float:
        """Take a token; how long to wait until it is there, in seconds."""
        with self._lock:
            now = self._clock_s()
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_second) - 1
            self._at = now
            return max(0.0, -self._tokens / self._per_second)

    def take(self) -> None:
        """Wait until a call may be made."""
        wait_s = self.wait_s()
        if wait_s > 0:
            time.sleep(wait_s)
