"""A report of a cut in which nothing happened."""

from __future__ import annotations

from streamcore.engine.report import CutReport
from streamcore.kafka.delivery import CommitOutcome


def cut_report(batch: int = 0, clock_ahead_ms: int = 0) -> CutReport:
    """Return the report of a cut without events."""
    return CutReport(
        batch=batch,
        epoch=1,
        outcome=CommitOutcome.COMMITTED,
        events=0,
        lanes={},
        reasons={},
        offsets={},
        clock_ms=0,
        clock_ahead_ms=clock_ahead_ms,
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
