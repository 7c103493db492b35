"""Listeners of a running app's cuts: standard output, the report, telemetry. A runner knows one ``Listeners``."""

from __future__ import annotations

import dataclasses
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import orjson

from streamcore.engine.lag import Lag
from streamcore.errors import Retryable
from streamcore.outages import LastingWarning

if TYPE_CHECKING:
    from streamcore.engine.report import CutReport, Listeners


class CutListener(Protocol):
    """Receives the events of a runner's ``Listeners``; ``cut`` is called in the cut, so it must be quick."""

    def cut(self, report: CutReport) -> None:
        """Receive the report of a finished cut."""
        ...

    def progress(self, progress: Mapping[str, object]) -> None:
        """Spark's own metrics of a batch, later."""
        ...

    def failure(self, error: Retryable) -> None:
        """Receive the error that ended the query, which is started again."""
        ...


class StdoutListener:
    """One JSON object a cut, and one for each wait of a start, to standard output, for a program that watches.

    ``lag``: returns how far the app is behind its inputs.
    """

    def __init__(self, lag: Callable[[], Lag] = Lag) -> None:
        self._lag = lag

    def cut(self, report: CutReport) -> None:
        """See ``CutListener``."""
        _print({"cut": dataclasses.asdict(report), "lag": dataclasses.asdict(self._lag())})

    def progress(self, progress: Mapping[str, object]) -> None:
        """See ``CutListener``."""
        _print({"spark": {name: progress[name] for name in ("batchId", "durationMs")}})

    def failure(self, error: Retryable) -> None:
        """See ``CutListener``: messages are the log's."""

    def waiting(self, what: str) -> None:
        """Report the reason of a wait."""
        _print({"waiting": what})


class StartMessage:
    """Logs one line when the first cut of the process is committed. ``pages``: where its metrics are."""

    def __init__(self, app: str, pages: str, log: logging.Logger) -> None:
        self._app = app
        self._pages = pages
        self._log = log
        self._started = False

    def cut(self, report: CutReport) -> None:
        """See ``CutListener``."""
        if not self._started:
            self._started = True
            text = "running: app %s, epoch %d, batch %d is committed; %s"
            self._log.info(text, self._app, report.epoch, report.batch, self._pages)

    def progress(self, progress: Mapping[str, object]) -> None:
        """See ``CutListener``. Do nothing: ``cut`` reports the first cut."""

    def failure(self, error: Retryable) -> None:
        """See ``CutListener``: messages are the log's."""


class FailureMessages:
    """Logs the failures after which the query starts again: each at once, the same one each minute, and the first cut
    after them. ``now_s``: monotonic seconds."""

    def __init__(self, log: logging.Logger, now_s: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._warning = LastingWarning(log, now_s)
        self._last = ""

    def cut(self, report: CutReport) -> None:
        """See ``CutListener``."""
        self._warning.end(f"batch {report.batch} is committed, {self._warning.seconds:.0f} s after the first failure")

    def progress(self, progress: Mapping[str, object]) -> None:
        """See ``CutListener``. Do nothing: ``cut`` reports the end of a failure."""

    def failure(self, error: Retryable) -> None:
        """See ``CutListener``."""
        text = str(error)
        if self._warning.lasts and text != self._last:
            self._log.warning("trying again: %s", text)
        else:
            again = f"trying again, for {self._warning.seconds:.0f} s now: {text}"
            self._warning.warn(f"trying again: {text}", again)
        self._last = text


def ignore_waiting(_: str) -> None:
    """Ignore the reason of a wait."""


def combine_listeners(
    observers: Sequence[CutListener], log: logging.Logger, waiting: Callable[[str], None] = ignore_waiting
) -> Listeners:
    """All of them, in order, and the log for failures. ``waiting`` gets the reason of a wait."""
    from streamcore.engine.report import Listeners

    observers = [FailureMessages(log), *observers]

    def report(cut: CutReport) -> None:
        for observer in observers:
            observer.cut(cut)

    def progress(metrics: Mapping[str, object]) -> None:
        for observer in observers:
            observer.progress(metrics)

    def failure(error: Retryable) -> None:
        for observer in observers:
            observer.failure(error)

    return Listeners(report, progress, failure, waiting)


def _print(document: Mapping[str, object]) -> None:
    sys.stdout.buffer.write(orjson.dumps(document, default=str) + b"\n")
    sys.stdout.buffer.flush()
