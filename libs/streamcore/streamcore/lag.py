"""How far an app is behind its inputs: in rows, and in seconds.

Rows are offsets that are there and not read. Seconds are for how long the oldest of them has been there: known from
having looked at the partitions' ends before, and for a backlog that was there at the first look by asking where
some earlier times were. No record has to be read for it. The figure is late by at most the time between two looks, or,
of an old backlog, by the step between two of ``LADDER_S``.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from streamcore.errors import Retryable
from streamcore.position import Place, Position

#: How old a backlog may be that is found at the first look, in seconds.
LADDER_S = (10, 60, 300, 900, 3_600, 4 * 3_600, 86_400, 3 * 86_400, 7 * 86_400)
_SAMPLES = 512
_EVERY_MS = 200


class Ends(Protocol):
    """Where partitions begin and end (``streamcore.kafka.ends``)."""

    def first(self) -> Mapping[Place, int]:
        """The offset of the first record, for every partition."""
        ...

    def last(self) -> Mapping[Place, int]:
        """The offset after the last record, for every partition."""
        ...

    def at(self, time_ms: int) -> Mapping[Place, int]:
        """The offset of the first record of this time or later, for every partition."""
        ...


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
    ends: Mapping[Place, int]


class LagMeter:
    """Ends that remember what they said. ``topics``: those whose records count, control topics not among them.

    Passes on what it is asked, so a planner uses it without knowing. One thread looks (``last``) and says what is
    ``committed``; any may ask for ``lag``, which is what was seen at the last look and is not committed yet.
    """

    def __init__(self, ends: Ends, topics: Collection[str], now_ms: Callable[[], int] = _now_ms) -> None:
        self._ends = ends
        self._topics = frozenset(topics)
        self._now_ms = now_ms
        self._position: Position | None = None
        self._samples: deque[_Sample] = deque()
        self._newest: _Sample | None = None
        self._oldest_ms: int | None = None

    def first(self) -> Mapping[Place, int]:
        """See ``Ends``."""
        return self._ends.first()

    def at(self, time_ms: int) -> Mapping[Place, int]:
        """See ``Ends``."""
        return self._ends.at(time_ms)

    def last(self) -> Mapping[Place, int]:
        """See ``Ends``; remembered, with the time."""
        ends = self._ends.last()
        self._newest = self._sample(self._now_ms(), ends)
        if not self._samples or self._newest.at_ms - self._samples[-1].at_ms >= _EVERY_MS:
            self._samples.append(self._newest)
        self._forget()
        return ends

    def committed(self, position: Position) -> None:
        """Everything up to there is done. The first time, a backlog that is left is asked for its age.

        The first cut after a crash was planned by the process before, and nobody has looked at the ends since: without
        a look it would be said that nothing waits.
        """
        first, self._position = self._position is None, position
        if self._newest is None:
            with contextlib.suppress(Retryable):  # the cut is done, and a figure is not worth its failure
                self.last()
        if first and self._samples and _waits(self._samples[0], position):
            self._samples.extendleft(self._earlier(position))
        self._forget()

    def lag(self) -> Lag:
        """What waits; nothing before the first commit, for then nobody knows."""
        newest, position, oldest_ms = self._newest, self._position, self._oldest_ms
        if newest is None or position is None:
            return Lag()
        rows = sum(max(0, end - position.offsets.get(place, 0)) for place, end in newest.ends.items())
        return Lag(rows, max(0, self._now_ms() - oldest_ms)) if rows and oldest_ms is not None else Lag(rows)

    def _sample(self, at_ms: int, ends: Mapping[Place, int]) -> _Sample:
        return _Sample(at_ms, {place: end for place, end in ends.items() if place[0] in self._topics})

    def _earlier(self, position: Position) -> list[_Sample]:
        """What the ends were at earlier times, newest first, back to when nothing waited."""
        found: list[_Sample] = []
        now_ms = self._samples[0].at_ms
        for age_s in LADDER_S:
            try:
                sample = self._sample(now_ms - age_s * 1000, self._ends.at(now_ms - age_s * 1000))
            except Retryable:
                break  # the cut is done, and a figure is not worth its failure
            if not _waits(sample, position):
                break
            found.append(sample)
        return found

    def _forget(self) -> None:
        """Samples from when nothing waited of what waits now; and every other one when there are too many."""
        position = self._position
        while self._samples and position is not None and not _waits(self._samples[0], position):
            self._samples.popleft()
        if len(self._samples) > _SAMPLES:
            self._samples = deque([*self._samples][::2])
        self._oldest_ms = self._samples[0].at_ms if self._samples else None


def _waits(sample: _Sample, position: Position) -> bool:
    return any(end > position.offsets.get(place, 0) for place, end in sample.ends.items())
