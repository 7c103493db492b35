"""Merges the cuts of an app into ranges, and posts each range from a thread of its own.

The way of a range, step by step; each line names the state after a failure of it:

1. ``cut`` merges the cut into the open range. Nothing waits for more than this merge.
2. The thread closes the open range and makes its event. From here on cuts go to the next range.
3. It posts the event. A failure keeps the event as it is, and it is the next that is posted: ranges stay in order, join
   without gaps, and the server can recognize an event that it gets twice. Meanwhile all cuts go into one open range.

So there are at most one event and one range in memory.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final

import orjson

from streamcore.errors import ConfigError, Permanent, Retryable
from streamcore.lineage.client import LineageClient
from streamcore.lineage.cut_range import CutRange
from streamcore.lineage.events import EventType, LineageJob
from streamcore.lineage.settings import LineageSettings
from streamcore.outages import LastingWarning

if TYPE_CHECKING:
    from streamcore.engine.report import CutReport

#: The results that ``counts`` has: events that the server has, attempts that failed, and events that it rejects.
SENT: Final = "sent"
FAILED: Final = "failed"
REJECTED: Final = "rejected"
_LOG = logging.getLogger(__name__)


class LineageReporter:
    """Sends the lineage of one app until the context manager exits (``CutListener``).

    ``ConfigError`` if the API key cannot be read. ``counts``: events and attempts by their result.
    """

    def __init__(self, settings: LineageSettings) -> None:
        settings.api_key()
        self._settings = settings
        self._client = LineageClient(settings)
        self._warning = LastingWarning(_LOG)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._job: LineageJob | None = None
        self._open: CutRange | None = None
        self._unsent: bytes | None = None
        self._run_id: str | None = None
        self.counts: Counter[str] = Counter({SENT: 0, FAILED: 0, REJECTED: 0})
        self._thread = threading.Thread(target=self._run, name="lineage", daemon=True)

    def __enter__(self) -> LineageReporter:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the thread and the run: one attempt for unsent events."""
        self._closed = True
        self._wake.set()
        self._thread.join()
        if self._run_id is None and self._open is None and self._unsent is None:
            return
        self._send_range()
        if self._unsent is None:
            self._send_range(EventType.COMPLETE if error is None else EventType.FAIL)
        if self._unsent is not None:
            _LOG.warning("lineage: %s did not take the last events of this run", self._settings.url)

    def describe(self, job: LineageJob) -> None:
        """Set the job whose cuts follow."""
        with self._lock:
            self._job = job

    def cut(self, report: CutReport) -> None:
        """Merge a finished cut into the open range (``CutListener``)."""
        new = CutRange.of(report)
        with self._lock:
            first = self._open is None and self._run_id is None
            self._open = new if self._open is None else self._open.then(new)
        if first:  # people see the run at once, not after the first interval
            self._wake.set()

    def progress(self, progress: Mapping[str, object]) -> None:
        """Ignore Spark's metrics (``CutListener``)."""

    def failure(self, error: Retryable) -> None:
        """Ignore a failure that is retried (``CutListener``): the run goes on."""

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait(self._settings.interval_ms / 1000)
            self._wake.clear()
            if not self._closed:
                self._send_range()

    def _send_range(self, end: EventType | None = None) -> None:
        """Run steps 2 and 3: post the unsent event, then the open range; with ``end`` the end of the run."""
        if self._unsent is not None:
            self._post(self._unsent)
        if self._unsent is None and (body := self._close_range(end)) is not None:
            self._post(body)

    def _close_range(self, end: EventType | None) -> bytes | None:
        """Return the event of the open range, and begin a new range. None if there is nothing to say; a range that has
        read and written nothing stays open."""
        with self._lock:
            cuts, job = self._open, self._job
            if job is None or (cuts is None and end is None):
                return None
            if cuts is not None and cuts.is_idle and self._run_id is not None and end is None:
                return None
            self._open = None
        if self._run_id is None:
            assert cuts is not None, "a run begins with a cut"
            kind, self._run_id = EventType.START, job.run_id(cuts.epoch, cuts.first)
        else:
            kind = end or EventType.RUNNING
        return orjson.dumps(job.event(kind, self._run_id, cuts, time.time_ns() // 1_000_000))

    def _post(self, body: bytes) -> None:
        self._unsent = body
        try:
            self._client.post(body)
        except (Retryable, ConfigError) as error:
            self.counts[FAILED] += 1
            text = f"lineage: {self._settings.url} does not take events: {error}; they are sent later, the app goes on"
            self._warning.warn(text, text)
            return
        except Permanent as error:
            self.counts[REJECTED] += 1
            _LOG.warning("lineage: %s: %s; the event is lost", self._settings.url, error)
        else:
            self.counts[SENT] += 1
        self._unsent = None
        self._warning.end(f"lineage: {self._settings.url} takes events again")
