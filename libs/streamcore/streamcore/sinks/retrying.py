"""Repeats a call to a sink's system while the system is away."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from streamcore.errors import Retryable
from streamcore.outages import Dependency
from streamcore.sinks.sink import RetryPolicy, SinkHooks

T = TypeVar("T")


def nothing() -> None:
    """Do nothing before a retry."""


def retry(
    action: Callable[[], T],
    action_name: str,
    system: Dependency,
    hooks: SinkHooks,
    patience: RetryPolicy,
    before_retry: Callable[[], None] = nothing,
) -> T:
    """Run ``action`` until it succeeds, after ``before_retry`` from the second attempt on.

    Raises ``Retryable`` after ``recovery_ms``, counted from the first failure, and what ``hooks.still_owner`` raises
    before a retry.
    """
    attempts, pause_ms, deadline = 1, patience.pause_ms, 0.0
    while True:
        try:
            with hooks.outages.attempt(system, action_name):
                if attempts > 1:
                    before_retry()
                return action()
        except Retryable as error:
            deadline = deadline or time.monotonic() + patience.recovery_ms / 1000
            if time.monotonic() + pause_ms / 1000 > deadline:
                raise Retryable(f"{action_name} failed in {attempts} attempts: {error}") from error
        time.sleep(pause_ms / 1000)
        pause_ms = min(2 * pause_ms, patience.pause_max_ms)
        attempts += 1
        hooks.still_owner()
