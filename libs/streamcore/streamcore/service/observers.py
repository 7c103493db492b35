"""Who hears of a running app's cuts: standard output, the report, telemetry. A runner knows one ``Listeners``."""

from __future__ import annotations

import dataclasses
import logging
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import orjson

from streamcore.errors import Retryable

if TYPE_CHECKING:
    from streamcore.spark.runner import CutReport, Listeners


class Observer(Protocol):
    """Hears what ``Listeners`` of a runner hear; ``cut`` is called in the cut, so it must be quick."""

    def cut(self, report: CutReport) -> None:
        """A cut is done."""
        ...

    def progress(self, progress: Mapping[str, object]) -> None:
        """Spark's own figures of a batch, later."""
        ...

    def failure(self, error: Retryable) -> None:
        """The query ended, and is started again."""
        ...


class Printer:
    """One JSON object a cut to standard output."""

    def cut(self, report: CutReport) -> None:
        """See ``Observer``."""
        _print({"cut": dataclasses.asdict(report)})

    def progress(self, progress: Mapping[str, object]) -> None:
        """See ``Observer``."""
        _print({"spark": {name: progress[name] for name in ("batchId", "durationMs")}})

    def failure(self, error: Retryable) -> None:
        """See ``Observer``: messages are the log's."""


def listeners_of(observers: Sequence[Observer], log: logging.Logger) -> Listeners:
    """All of them, in order, and the log for failures."""
    from streamcore.spark.runner import Listeners

    def report(cut: CutReport) -> None:
        for observer in observers:
            observer.cut(cut)

    def progress(figures: Mapping[str, object]) -> None:
        for observer in observers:
            observer.progress(figures)

    def failure(error: Retryable) -> None:
        log.warning("trying again: %s", error)
        for observer in observers:
            observer.failure(error)

    return Listeners(report, progress, failure)


def _print(document: Mapping[str, object]) -> None:
    sys.stdout.buffer.write(orjson.dumps(document, default=str) + b"\n")
    sys.stdout.buffer.flush()
