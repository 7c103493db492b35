"""Trying again: growing pauses within a sink's patience, and the question who owns the app before each repetition."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from streamcore.errors import Retryable
from streamcore.sinks.opensearch.client import Overloaded
from streamcore.sinks.sink import RetryPolicy, SinkHooks

T = TypeVar("T")


class RequestRetries:
    """One row of attempts. Whatever goes through in between makes it start anew."""

    def __init__(self, patience: RetryPolicy, hooks: SinkHooks) -> None:
        self._patience = patience
        self._hooks = hooks
        self._pause_ms = patience.pause_ms
        self._deadline: float | None = None

    def reset(self) -> None:
        """Something did: patience and pauses begin anew."""
        self._pause_ms = self._patience.pause_ms
        self._deadline = None

    def wait(self, error: Retryable) -> None:
        """Pause before the next attempt; ``Retryable`` when patience is over, ``Fenced`` when another owns the app."""
        now = time.monotonic()
        self._deadline = self._deadline or now + self._patience.recovery_ms / 1000
        if now + self._pause_ms / 1000 > self._deadline:
            raise Retryable(f"opensearch: given up after {self._patience.recovery_ms} ms: {error}") from error
        time.sleep(self._pause_ms / 1000)
        self._pause_ms = min(2 * self._pause_ms, self._patience.pause_max_ms)
        self._hooks.still_owner()

    def run(self, action: Callable[[], T]) -> T:
        """Run ``action`` until it goes through."""
        while True:
            try:
                return action()
            except Overloaded as error:
                self.wait(error)
