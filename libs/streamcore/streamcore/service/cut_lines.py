"""One line in the log for each cut that has rows; none for a cut without.

The line has the time, app and number of the cut, the rows that it read by input and wrote by lane, its dead letters by
reason, how far the app is behind after it, and its duration. As JSON (``telemetry.logs``) it also has the whole report
as ``cut``.
"""

from __future__ import annotations

import dataclasses
import datetime
import logging
from collections.abc import Callable, Mapping
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from streamcore.engine.lag import Lag
from streamcore.errors import Retryable
from streamcore.service.logs import FIELDS
from streamcore.wire.lanes import DEAD_LETTERS

if TYPE_CHECKING:
    from streamcore.engine.report import CutReport

#: The most inputs, lanes or reasons that a line names; it has the sum of the others.
_NAMES: Final = 8


class CutLines:
    """Logs the cuts of ``app`` (``CutListener``). ``lag``: returns how far the app is behind now."""

    def __init__(self, app: str, log: logging.Logger, lag: Callable[[], Lag]) -> None:
        self._app = app
        self._log = log
        self._lag = lag

    def cut(self, report: CutReport) -> None:
        """See ``CutListener``."""
        if report.events or any(report.lanes.values()):
            line = cut_line(self._app, report, self._lag())
            self._log.info("%s", line, extra={FIELDS: {"cut": dataclasses.asdict(report)}})

    def progress(self, progress: Mapping[str, object]) -> None:
        """See ``CutListener``. Do nothing: the line has the duration of the cut."""

    def failure(self, error: Retryable) -> None:
        """See ``CutListener``. Do nothing: failures have lines of their own."""


def cut_line(app: str, report: CutReport, lag: Lag) -> str:
    """Return the line of a cut, such as ``10:20:30 shop cut 41: 1,200 events of clicks 1,200 -> clean 1,180,
    deadletters 20 (bad_value 20); lag 0 (0.0 s); 0.42 s``."""
    time = datetime.datetime.fromtimestamp(report.wall_ms / 1000, datetime.UTC).strftime("%H:%M:%S")
    read = _counts(report.inputs)
    lanes = {lane: count for lane, count in report.lanes.items() if lane != DEAD_LETTERS}
    letters = report.lanes.get(DEAD_LETTERS, 0)
    written = [_counts(lanes)] if any(lanes.values()) else []
    if letters:
        written.append(f"{DEAD_LETTERS} {letters:,} ({_counts(report.reasons)})")
    seconds = (report.run_ms + report.commit_ms) / 1000
    return (
        f"{time} {app} cut {report.batch}: {report.events:,} events{f' of {read}' if read else ''}"
        f" -> {', '.join(written) or 'nothing'}; lag {lag.rows:,} ({lag.ms / 1000:.1f} s); {seconds:.2f} s"
    )


def _counts(counts: Mapping[str, int]) -> str:
    """Return the names with their counts, the largest first, without zeros."""
    shown = nlargest(_NAMES, ((count, name) for name, count in counts.items() if count))
    rest = sum(counts.values()) - sum(count for count, _ in shown)
    return ", ".join([*(f"{name} {count:,}" for count, name in shown), *([f"others {rest:,}"] if rest else [])])
