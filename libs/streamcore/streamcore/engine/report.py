"""The reports of a running app: a ``CutReport`` per cut, Spark's progress, and the failures that restart the query.

This module imports neither Spark nor a Kafka client, so that telemetry, services and tests can use it without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamcore.errors import Retryable

if TYPE_CHECKING:
    from streamcore.engine.output import SinkReport
    from streamcore.kafka.delivery import CommitOutcome


@dataclass(frozen=True, slots=True)
class CutReport:
    """One cut, reported after its output was committed.

    ``events``: decoded events, without rejected records. ``lanes``: number of records of each lane. ``reasons``: number
    of dead letters by code. ``starts``, ``offsets``: the offset where the cut begins and ends, by topic and partition.
    ``clock_ms``: the cut's clock; ``clock_ahead_ms``: by how much it is ahead of the machine's (``CutClock``).
    ``watermarks``: the watermark in milliseconds of each partition that has had events, by topic and partition.
    ``newest_event_ms``: the time of the newest event since the checkpoint was created; 0 before the first.
    ``run_ms``: duration of the Spark job;
    ``commit_ms``: duration of writing the output. ``state_bytes``: bytes of state written. ``shards_loaded``: number of
    shards that had to read their state. ``counters``: of the operators, by operator and name. ``oversized``: number of
    records above the size limit. ``shards``: number of shards. ``latencies_ms``: for each lane that got records, the
    time from the broker's timestamp of the oldest record in the cut that its topics have, until the output was
    committed.
    """

    batch: int
    epoch: int
    outcome: CommitOutcome
    events: int
    lanes: Mapping[str, int]
    reasons: Mapping[str, int]
    offsets: Mapping[str, Mapping[str, int]]
    clock_ms: int
    clock_ahead_ms: int
    watermark_ms: int
    watermarks: Mapping[str, Mapping[str, int]]
    run_ms: int
    commit_ms: int
    state_bytes: int
    shards_loaded: int
    counters: Mapping[str, int]
    oversized: int
    sinks: Mapping[str, SinkReport]
    shards: int = 1
    latencies_ms: Mapping[str, int] = field(default_factory=dict)
    starts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    newest_event_ms: int = 0

    @property
    def wall_ms(self) -> int:
        """The machine's clock when the cut was planned, in milliseconds since 1970."""
        return self.clock_ms - self.clock_ahead_ms

    @property
    def inputs(self) -> Mapping[str, int]:
        """The number of offsets that the cut reads of each topic; with those of a producer's transaction markers."""
        return {
            topic: sum(end - self.starts[topic].get(partition, 0) for partition, end in partitions.items())
            for topic, partitions in self.offsets.items()
            if topic in self.starts
        }


def _ignore_failure(_: Retryable) -> None:
    return None


def _ignore_report(_: CutReport) -> None:
    return None


def _ignore_waiting(_: str) -> None:
    return None


def _ignore_progress(_: Mapping[str, object]) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Listeners:
    """Callbacks for the reports of an app. ``report`` is called within the cut, so it must be quick. ``progress`` gets
    Spark's metrics of a batch, some time after the batch. ``failure`` gets the error that ended the query, before the
    query starts again. ``waiting`` gets the reason of a wait of a start, when it begins."""

    report: Callable[[CutReport], None] = _ignore_report
    progress: Callable[[Mapping[str, object]], None] = _ignore_progress
    failure: Callable[[Retryable], None] = _ignore_failure
    waiting: Callable[[str], None] = _ignore_waiting
