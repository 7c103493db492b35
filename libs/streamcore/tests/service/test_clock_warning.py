"""A service reports that its clock stands still."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pytest

from streamcore.engine.report import CutReport
from streamcore.kafka.delivery import CommitOutcome
from streamcore.service.clock_warning import ClockWarning

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
            self.warning.cut(report(ahead_ms))
            self.now_s += 1


def report(ahead_ms: int) -> CutReport:
    return CutReport(
        batch=0,
        epoch=1,
        outcome=CommitOutcome.COMMITTED,
        events=0,
        lanes={},
        reasons={},
        offsets={},
        clock_ms=0,
        clock_ahead_ms=ahead_ms,
        watermark_ms=0,
        watermarks={},
        run_ms=0,
        commit_ms=0,
        state_bytes=0,
        shards_loaded=0,
        counters={},
        oversized=0,
        sinks={},
    )


def test_a_clock_that_stands_still_is_logged_immediately_then_every_minute_and_at_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
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
