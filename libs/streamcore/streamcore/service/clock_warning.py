"""Warns that the clock of the cuts (``streamcore.cuts.cut_clock``) stands still, ahead of the machine's."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from streamcore.cuts.cut_clock import span_text
from streamcore.errors import Retryable
from streamcore.outages import LastingWarning

if TYPE_CHECKING:
    from streamcore.engine.report import CutReport

#: From how far ahead a clock is reported: a clock that is adjusted by milliseconds is no fault.
_AHEAD_MS = 1_000


class ClockWarning:
    """Logs that the clock of the cuts is ahead: at once, then each minute, and when it is over.

    ``now_s``: a monotonic clock, in seconds.
    """

    def __init__(self, log: logging.Logger, now_s: Callable[[], float] = time.monotonic) -> None:
        self._warning = LastingWarning(log, now_s)

    def cut(self, report: CutReport) -> None:
        """See ``CutListener``."""
        lasted = span_text(round(self._warning.seconds * 1_000))
        if report.clock_ahead_ms < _AHEAD_MS:
            self._warning.end(f"the clock of the cuts goes on; it stood still for {lasted}")
            return
        ahead = span_text(report.clock_ahead_ms)
        self._warning.warn(
            f"the clock of the cuts is {ahead} ahead of this machine's clock and stands still until that is there: "
            "timers, triggers and windows by processing time wait, and event times are limited by this machine's "
            "clock; if this machine's clock is wrong, correct it",
            f"the clock of the cuts is still {ahead} ahead of this machine's clock; it stands still for {lasted} now",
        )

    def progress(self, progress: Mapping[str, object]) -> None:
        """See ``CutListener``: cuts have the clock."""

    def failure(self, error: Retryable) -> None:
        """See ``CutListener``: cuts have the clock."""
