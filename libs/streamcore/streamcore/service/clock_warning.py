"""Warns that the clock of the cuts (``streamcore.cuts.cut_clock``) stands still, ahead of the machine's."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from streamcore.cuts.cut_clock import span_text
from streamcore.errors import Retryable
from streamcore.outages import REPEAT_S

if TYPE_CHECKING:
    from streamcore.engine.report import CutReport

#: From how far ahead a clock is reported: a clock that is adjusted by milliseconds is no fault.
_AHEAD_MS = 1_000


class ClockWarning:
    """Logs that the clock of the cuts is ahead: at once, then each minute, and when it is over.

    ``now_s``: a monotonic clock, in seconds.
    """

    def __init__(self, log: logging.Logger, now_s: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._now_s = now_s
        self._began_s: float | None = None
        self._logged_s = 0.0

    def cut(self, report: CutReport) -> None:
        """See ``CutListener``."""
        if report.clock_ahead_ms < _AHEAD_MS:
            if self._began_s is not None:
                self._log.warning("the clock of the cuts goes on; it stood still for %s", self._duration())
            self._began_s = None
        elif self._began_s is None:
            self._began_s = self._logged_s = self._now_s()
            self._log.warning(
                "the clock of the cuts is %s ahead of this machine's clock and stands still until that is there: "
                "timers, triggers and windows by processing time wait, and event times are limited by this machine's "
                "clock; if this machine's clock is wrong, correct it",
                span_text(report.clock_ahead_ms),
            )
        elif self._now_s() - self._logged_s >= REPEAT_S:
            self._logged_s = self._now_s()
            self._log.warning(
                "the clock of the cuts is still %s ahead of this machine's clock; it stands still for %s now",
                span_text(report.clock_ahead_ms),
                self._duration(),
            )

    def _duration(self) -> str:
        return span_text(round((self._now_s() - (self._began_s or 0)) * 1_000))

    def progress(self, progress: Mapping[str, object]) -> None:
        """See ``CutListener``: cuts have the clock."""

    def failure(self, error: Retryable) -> None:
        """See ``CutListener``: cuts have the clock."""
