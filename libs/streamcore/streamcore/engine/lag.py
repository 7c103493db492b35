"""How far an app is behind its inputs: in rows, and in seconds.

Rows are offsets that are there and not read. Seconds are for how long the oldest of them has been there: known from
having looked at the partitions' ends before, and for a backlog that was there at the first look by asking where some
earlier times were. No record has to be read for it. The figure is late by at most the time between two looks and 200
ms, or, of an old backlog, by the step between two of ``LADDER_S``.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from streamcore.errors import Retryable
from streamcore.offsets import PartitionOffsets, StreamOffsets, TopicPartition

#: How old a backlog may be that is found at the first look, in seconds.
LADDER_S = (10, 60, 300, 900, 3_600, 4 * 3_600, 86_400, 3 * 86_400, 7 * 86_400)
_SAMPLES = 512
_EVERY_MS = 200


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Lag:
    """``rows`` wait, the oldest for ``ms``."""

    rows: int = 0
    ms: int = 0


@dataclass(frozen=True, slots=True)
class _Sample:
    at_ms: int
    ends: Mapping[TopicPartition, int]


class LagTracker:
    """``PartitionOffsets`` that remembers the offsets it returned. ``topics``: those whose records count (no control
    topic).

    It wraps the planner's ``PartitionOffsets``, so the planner needs no change. One thread calls ``latest`` and
    ``record_commit``; any thread may call ``current``, which compares the last two.
    """

    def __init__(self, ends: PartitionOffsets, topics: Collection[str], now_ms: Callable[[], int] = _now_ms) -> None:
        self._ends = ends
        self._topics = frozenset(topics)
        self._now_ms = now_ms
        self._position: StreamOffsets | None = None
        self._samples: deque[_Sample] = deque()
        self._newest: _Sample | None = None
        self._oldest_ms: int | None = None

    def earliest(self) -> Mapping[TopicPartition, int]:
        """See ``PartitionOffsets``."""
        return self._ends.earliest()

    def for_time(self, time_ms: int) -> Mapping[TopicPartition, int]:
        """See ``PartitionOffsets``."""
        return self._ends.for_time(time_ms)

    def latest(self) -> Mapping[TopicPartition, int]:
        """See ``PartitionOffsets``; remembered, with the time."""
        ends = self._ends.latest()
        self._newest = self._sample(self._now_ms(), ends)
        # The last look within 200 ms after a sample is the next sample, so that none stands for what was seen long
        # before.
        if len(self._samples) > 1 and self._newest.at_ms - self._samples[-2].at_ms <= _EVERY_MS:
            self._samples.pop()
        self._samples.append(self._newest)
        self._forget()
        return ends

    def record_commit(self, position: StreamOffsets) -> None:
        """Record that everything up to ``position`` is committed. The first call dates the backlog that is left.

        The first cut after a crash was planned by the previous process, so the end offsets are unknown here: without
        a look-up the lag would be reported as zero.
        """
        first, self._position = self._position is None, position
        if self._newest is None:
            with contextlib.suppress(Retryable):  # the cut is done, and a figure is not worth its failure
                self.latest()
        if first and self._samples and _waits(self._samples[0], position):
            self._samples.extendleft(self._earlier(position))
        self._forget()

    def current(self) -> Lag:
        """Return the records that wait; ``Lag()`` before the first commit, when the committed offsets are unknown."""
        newest, position, oldest_ms = self._newest, self._position, self._oldest_ms
        if newest is None or position is None:
            return Lag()
        rows = sum(max(0, end - position.offsets.get(place, 0)) for place, end in newest.ends.items())
        return Lag(rows, max(0, self._now_ms() - oldest_ms)) if rows and oldest_ms is not None else Lag(rows)

    def _sample(self, at_ms: int, ends: Mapping[TopicPartition, int]) -> _Sample:
        return _Sample(at_ms, {place: end for place, end in ends.items() if place[0] in self._topics})

    def _earlier(self, position: StreamOffsets) -> list[_Sample]:
        """Look up the end offsets at earlier times, newest first, back to when nothing waited."""
        found: list[_Sample] = []
        now_ms = self._samples[0].at_ms
        for age_s in LADDER_S:
            try:
                sample = self._sample(now_ms - age_s * 1000, self._ends.for_time(now_ms - age_s * 1000))
            except Retryable:
                break  # the cut is done, and a figure is not worth its failure
            if not _waits(sample, position):
                break
            found.append(sample)
        return found

    def _forget(self) -> None:
        """Drop samples that hold nothing of the current backlog, and every other one when there are too many."""
        position = self._position
        while self._samples and position is not None and not _waits(self._samples[0], position):
            self._samples.popleft()
        if len(self._samples) > _SAMPLES:
            self._samples = deque([*self._samples][::2])
        self._oldest_ms = self._samples[0].at_ms if self._samples else None


def _waits(sample: _Sample, position: StreamOffsets) -> bool:
    return any(end > position.offsets.get(place, 0) for place, end in sample.ends.items())
