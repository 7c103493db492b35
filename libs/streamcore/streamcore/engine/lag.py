"""Measures how far an app is behind its inputs: in offsets, and in milliseconds.

The lag in offsets counts the offsets that exist and are not committed. The lag in time is the age of the oldest of
them. It is known from the end offsets that were sampled before; for a backlog that is older than the first sample, the
tracker asks the broker for the end offsets at some earlier times. No record is read. The age is too small by at most
the time between two samples plus 200 ms, or, for an old backlog, by the step between two entries of ``LADDER_S``.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from streamcore.errors import Retryable
from streamcore.offsets import PartitionOffsets, StreamOffsets, TopicPartition

#: The ages, in seconds, at which the end offsets are looked up for a backlog that is older than the first sample.
LADDER_S = (10, 60, 300, 900, 3_600, 4 * 3_600, 86_400, 3 * 86_400, 7 * 86_400)
_MAX_SAMPLES = 512
_MIN_SAMPLE_GAP_MS = 200


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Lag:
    """``rows`` offsets are not committed, and the oldest of them is ``ms`` milliseconds old.

    ``control_records``: offsets of the control topic that are not committed.
    """

    rows: int = 0
    ms: int = 0
    control_records: int = 0


@dataclass(frozen=True, slots=True)
class _Sample:
    """The end offset of each partition at the time ``at_ms``."""

    at_ms: int
    ends: Mapping[TopicPartition, int]


class LagTracker:
    """Wraps the planner's ``PartitionOffsets`` and samples the end offsets that the planner asks for.

    ``topics``: the topics of events; the other one is the control topic. One thread calls ``latest`` and
    ``record_commit``; any thread may call ``current``.
    """

    def __init__(self, ends: PartitionOffsets, topics: Collection[str], now_ms: Callable[[], int] = _now_ms) -> None:
        self._ends = ends
        self._topics = frozenset(topics)
        self._now_ms = now_ms
        self._position: StreamOffsets | None = None
        self._samples: deque[_Sample] = deque()
        self._newest: _Sample | None = None
        self._control_ends: Mapping[TopicPartition, int] = {}
        self._oldest_ms: int | None = None

    def earliest(self) -> Mapping[TopicPartition, int]:
        """See ``PartitionOffsets``."""
        return self._ends.earliest()

    def for_timestamp(self, time_ms: int) -> Mapping[TopicPartition, int]:
        """See ``PartitionOffsets``."""
        return self._ends.for_timestamp(time_ms)

    def latest(self) -> Mapping[TopicPartition, int]:
        """Return what ``PartitionOffsets.latest`` returns, and keep it as a sample."""
        ends = self._ends.latest()
        self._newest = self._sample(self._now_ms(), ends)
        self._control_ends = {place: end for place, end in ends.items() if place[0] not in self._topics}
        # Within 200 ms after the last but one sample, this sample replaces the last one.
        if len(self._samples) > 1 and self._newest.at_ms - self._samples[-2].at_ms <= _MIN_SAMPLE_GAP_MS:
            self._samples.pop()
        self._samples.append(self._newest)
        self._drop_old_samples()
        return ends

    def record_commit(self, position: StreamOffsets) -> None:
        """Record that everything up to ``position`` is committed. The first call also finds the age of the backlog.

        If the previous process planned the first cut, this process has no sample yet; it takes one here, because it
        would otherwise report no lag.
        """
        first, self._position = self._position is None, position
        if self._newest is None:
            with contextlib.suppress(Retryable):  # the cut is committed; it must not fail for a metric
                self.latest()
        if first and self._samples and _has_backlog(self._samples[0], position):
            self._samples.extendleft(self._look_up_earlier(position))
        self._drop_old_samples()

    def current(self) -> Lag:
        """Return the lag; zero before the first commit, when the committed offsets are unknown."""
        newest, position, oldest_ms = self._newest, self._position, self._oldest_ms
        if newest is None or position is None:
            return Lag()
        rows, control_records = _count_waiting(newest.ends, position), _count_waiting(self._control_ends, position)
        ms = max(0, self._now_ms() - oldest_ms) if rows and oldest_ms is not None else 0
        return Lag(rows, ms, control_records)

    def _sample(self, at_ms: int, ends: Mapping[TopicPartition, int]) -> _Sample:
        return _Sample(at_ms, {place: end for place, end in ends.items() if place[0] in self._topics})

    def _look_up_earlier(self, position: StreamOffsets) -> list[_Sample]:
        """Look up the end offsets at earlier times, newest first, back to a time without backlog."""
        earlier: list[_Sample] = []
        now_ms = self._samples[0].at_ms
        for age_s in LADDER_S:
            try:
                sample = self._sample(now_ms - age_s * 1000, self._ends.for_timestamp(now_ms - age_s * 1000))
            except Retryable:
                break  # the cut is committed; it must not fail for a metric
            if not _has_backlog(sample, position):
                break
            earlier.append(sample)
        return earlier

    def _drop_old_samples(self) -> None:
        """Drop the samples from before the current backlog, and every other sample if there are too many."""
        position = self._position
        while self._samples and position is not None and not _has_backlog(self._samples[0], position):
            self._samples.popleft()
        if len(self._samples) > _MAX_SAMPLES:
            self._samples = deque([*self._samples][::2])
        self._oldest_ms = self._samples[0].at_ms if self._samples else None


def _count_waiting(ends: Mapping[TopicPartition, int], position: StreamOffsets) -> int:
    """Return how many offsets before ``ends`` are not committed at ``position``."""
    return sum(max(0, end - position.offsets.get(place, 0)) for place, end in ends.items())


def _has_backlog(sample: _Sample, position: StreamOffsets) -> bool:
    """Return whether offsets before the ends of the sample are not committed at ``position``."""
    return any(end > position.offsets.get(place, 0) for place, end in sample.ends.items())
