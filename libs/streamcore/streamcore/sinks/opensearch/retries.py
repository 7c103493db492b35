"""Retries requests with growing pauses, within a sink's time limit. Before each retry it checks who owns the app."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from streamcore.errors import Retryable
from streamcore.outages import Dependency
from streamcore.sinks.opensearch.client import Overloaded
from streamcore.sinks.sink import RetryPolicy, SinkHooks

T = TypeVar("T")


class RequestRetries:
    """The retries of one operation. A success in between (``reset``) restarts pauses and time limit."""

    def __init__(self, policy: RetryPolicy, hooks: SinkHooks, server: Dependency) -> None:
        self._policy = policy
        self._hooks = hooks
        self._server = server
        self._pause_ms = policy.pause_ms
        self._deadline: float | None = None

    def reset(self) -> None:
        """Restart pauses and time limit, because a request succeeded."""
        self._pause_ms = self._policy.pause_ms
        self._deadline = None
        self._hooks.outages.succeeded(self._server)

    def wait(self, error: Retryable) -> None:
        """Pause before the next attempt.

        Raises ``Retryable`` after the time limit, and ``Fenced`` if another process owns the app.
        """
        self._hooks.outages.failed(self._server, str(error))
        now = time.monotonic()
        self._deadline = self._deadline or now + self._policy.recovery_ms / 1000
        if now + self._pause_ms / 1000 > self._deadline:
            raise Retryable(f"opensearch: given up after {self._policy.recovery_ms} ms: {error}") from error
        time.sleep(self._pause_ms / 1000)
        self._pause_ms = min(2 * self._pause_ms, self._policy.pause_max_ms)
        self._hooks.still_owner()

    def run(self, action: Callable[[], T]) -> T:
        """Run ``action`` until it does not raise ``Overloaded``; return its result."""
        while True:
            try:
                with self._hooks.outages.attempt(self._server, "a request"):
                    return action()
            except Overloaded as error:
                self.wait(error)
