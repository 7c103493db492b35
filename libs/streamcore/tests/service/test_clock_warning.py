"""A service reports that its clock stands still."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pytest

from streamcore.service.clock_warning import ClockWarning
from tests.harness.apps.cut_reports import cut_report

MINUTE_MS = 60_000


@dataclass
class Process:
    """A service with a cut a second. ``now_s``: its monotonic clock."""

    now_s: float = 100.0
    warning: ClockWarning = field(init=False)

    def __post_init__(self) -> None:
        self.warning = ClockWarning(logging.getLogger("shop"), lambda: self.now_s)

    def cuts(self, seconds: int, ahead_ms: int) -> None:
        for _ in range(seconds):
            self.warning.cut(cut_report(clock_ahead_ms=ahead_ms))
            self.now_s += 1


def test_a_clock_that_stands_still_is_logged_immediately_then_every_minute_and_at_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    process = Process()
    process.cuts(5, 0)
    process.cuts(5, 900)
    assert not caplog.messages, "a delay of milliseconds is not logged"
    process.cuts(60, 90 * MINUTE_MS)
    assert [text[:70] for text in caplog.messages] == [
        "the clock of the cuts is 1 h 30 min ahead of this machine's clock and "
    ]
    process.cuts(61, 89 * MINUTE_MS)
    process.cuts(2, 0)
    assert caplog.messages[1:] == [
        "the clock of the cuts is still 1 h 29 min ahead of this machine's clock; it stands still for 1 min 0 s now",
        "the clock of the cuts is still 1 h 29 min ahead of this machine's clock; it stands still for 2 min 0 s now",
        "the clock of the cuts goes on; it stood still for 2 min 1 s",
    ]
    process.cuts(1, 2_000)
    assert len(caplog.messages) == 5, "the next delay is logged again"
