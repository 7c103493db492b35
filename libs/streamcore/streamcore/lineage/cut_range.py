"""A range of cuts: the offsets that they read and the rows that they wrote, together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamcore.engine.report import CutReport

#: Offsets by topic and partition.
Offsets = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class CutRange:
    """The cuts ``first`` to ``last`` of an epoch. ``starts``, ``ends``: the offsets at which the range begins and ends.
    ``lanes``: the rows of each lane. ``reasons``: dead letters by code. ``clock_ms``: of the last cut."""

    epoch: int
    first: int
    last: int
    events: int
    starts: Offsets
    ends: Offsets
    lanes: Mapping[str, int]
    reasons: Mapping[str, int]
    clock_ms: int

    @classmethod
    def of(cls, report: CutReport) -> CutRange:
        """Return the range of one cut."""
        return cls(
            report.epoch,
            report.batch,
            report.batch,
            report.events,
            report.starts,
            report.offsets,
            report.lanes,
            report.reasons,
            report.wall_ms,
        )

    def then(self, later: CutRange) -> CutRange:
        """Return the range of these cuts and the later ones, which begin where these end."""
        starts = {
            topic: {**later.starts.get(topic, {}), **self.starts.get(topic, {})}
            for topic in {**later.starts, **self.starts}
        }
        return CutRange(
            later.epoch,
            self.first,
            later.last,
            self.events + later.events,
            starts,
            later.ends,
            dict(Counter(self.lanes) + Counter(later.lanes)),
            dict(Counter(self.reasons) + Counter(later.reasons)),
            later.clock_ms,
        )

    @property
    def is_idle(self) -> bool:
        """Whether the range has read and written nothing."""
        return not any(self.lanes.values()) and not any(self.count(topic) for topic in self.ends)

    def count(self, topic: str) -> int:
        """Return how many offsets of a topic the range has."""
        starts = self.starts.get(topic, {})
        return sum(end - starts.get(partition, 0) for partition, end in self.ends.get(topic, {}).items())
