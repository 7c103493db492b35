"""The reports of a running app: one ``CutReport`` a cut, Spark's progress, and the failures that restart the query.

The report is a value without Spark or Kafka clients, so that telemetry, services and tests can read it without loading
either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamcore.errors import Retryable

if TYPE_CHECKING:
    from streamcore.engine.output import SinkReport
    from streamcore.kafka.delivery import CommitOutcome


@dataclass(frozen=True, slots=True)
class CutReport:
    """One cut, after its output was committed. Times are milliseconds; ``lanes`` counts the records of each lane,
    ``reasons`` its rejected records by their code.

    ``offsets``: by topic and partition, up to where the cut has read; ``watermarks``: how far event time has come in
    those that have had events. ``events`` were decoded in this cut (rejected records not among them); ``shards_loaded``
    shards had to read their state. ``counters``: those of the operators, by operator and name.
    """

    batch: int
    epoch: int
    outcome: CommitOutcome
    events: int
    lanes: Mapping[str, int]
    reasons: Mapping[str, int]
    offsets: Mapping[str, Mapping[str, int]]
    clock_ms: int
    watermark_ms: int
    watermarks: Mapping[str, Mapping[str, int]]
    run_ms: int
    commit_ms: int
    state_bytes: int
    shards_loaded: int
    counters: Mapping[str, int]
    oversized: int
    sinks: Mapping[str, SinkReport]


def _ignore_failure(_: Retryable) -> None:
    return None


def _ignore_report(_: CutReport) -> None:
    return None


def _ignore_progress(_: Mapping[str, object]) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Listeners:
    """``report`` is called in the cut, so it must be quick; ``progress`` gets Spark's own metrics of a batch, later;
    ``failure`` gets the error that ended the query, before the query starts again."""

    report: Callable[[CutReport], None] = _ignore_report
    progress: Callable[[Mapping[str, object]], None] = _ignore_progress
    failure: Callable[[Retryable], None] = _ignore_failure
