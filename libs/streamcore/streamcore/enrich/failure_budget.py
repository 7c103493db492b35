"""Limits the time that failing calls may take of one frame.

Calls that succeed are never limited, however slow: only the time of calls that failed for now is counted, divided by
the number of calls that run side by side. When the budget is used up, keys without an answer fail without a call.
"""

from __future__ import annotations


class FailureBudget:
    """The budget of one frame, in milliseconds; ``concurrency``: the calls that run side by side."""

    def __init__(self, budget_ms: int, concurrency: int) -> None:
        self._budget_ms = budget_ms
        self._left_s = budget_ms / 1000 * concurrency
        self._last_failure = ""
        #: Whether the store has answered a call.
        self.answered = False

    @property
    def is_used_up(self) -> bool:
        """Whether no further call may begin."""
        return self._left_s <= 0

    @property
    def reason(self) -> str:
        """Why no further call begins."""
        return f"not asked for, because calls failed for {self._budget_ms} ms of this cut: {self._last_failure}"

    def fail(self, seconds: float, reason: str) -> None:
        """Count a call that failed after this time."""
        self._left_s -= seconds
        self._last_failure = reason

    def use_up(self) -> None:
        """Let no further call begin."""
        self._left_s = 0.0
