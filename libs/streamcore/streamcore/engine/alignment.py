"""Watermark alignment: source partitions that are far ahead of others in event time wait, so that state stays small.

A partition waits if its watermark is more than ``max_drift_ms`` ahead of the earliest of its group. The events of a cut
are read before their times are known, so a partition can be ahead by ``max_drift_ms`` and what one cut takes from it. A
partition that has ended or is idle holds no other back, nor does one that has had no event yet. One that waits is not
idle.

What waits follows from the watermarks after the previous cut. The first cut of a process that continues an app does not
know them, and so takes no events of aligned sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from streamcore.app import App
from streamcore.checkpoint.offset_log import CutBounds
from streamcore.offsets import StreamOffsets, TopicPartition
from streamcore.watermark import END_OF_TIME_MS, WatermarkStrategy


@dataclass(slots=True)
class SourceAlignment:
    """The progress of the partitions of aligned sources. ``watermarks``: after the last cut; None if it is unknown.

    ``active_ms``: the ``CutClock.elapsed_ms`` of the last cut that took records of a partition.
    """

    app: App
    watermarks: dict[TopicPartition, int] | None = None
    active_ms: dict[TopicPartition, int] = field(default_factory=dict)

    def record(self, cut: CutBounds, watermarks: Mapping[str, Mapping[str, int]]) -> None:
        """Record the watermarks after a cut, by topic and partition."""
        for place, end in cut.end.offsets.items():
            if end != cut.start.offsets.get(place, 0) or place not in self.active_ms:
                self.active_ms[place] = cut.end.clock.elapsed_ms
        self.watermarks = {(topic, int(n)): ms for topic, found in watermarks.items() for n, ms in found.items()}

    def limit(
        self, start: StreamOffsets, ends: Mapping[TopicPartition, int], elapsed_ms: int
    ) -> Mapping[TopicPartition, int]:
        """Return the ends up to which the next cut may read: those of partitions that wait are where it starts."""
        strategies = self._strategies()
        if not strategies:
            return ends
        aligned = [place for place in ends if place[0] in strategies]
        if self.watermarks is None:
            waiting = aligned if start.clock.clock_ms else []
        else:
            waiting = [*self._waiting(self.watermarks, aligned, strategies, elapsed_ms)]
        held = {place: start.offsets.get(place, 0) for place in waiting}
        for place, offset in held.items():
            if ends[place] > offset:  # it is no idle partition: it has records that it may not give
                self.active_ms[place] = elapsed_ms
        return {**ends, **held}

    def _strategies(self) -> dict[str, WatermarkStrategy]:
        """Return the strategy of each topic whose source is aligned."""
        strategies = {topic: self.app.watermark_for(n) for n, topic in enumerate(self.app.topics)}
        return {topic: strategy for topic, strategy in strategies.items() if strategy.max_drift_ms is not None}

    def _waiting(
        self,
        watermarks: Mapping[TopicPartition, int],
        aligned: list[TopicPartition],
        strategies: Mapping[str, WatermarkStrategy],
        elapsed_ms: int,
    ) -> Iterator[TopicPartition]:
        earliest: dict[str, int] = {}
        for place in aligned:
            strategy, watermark_ms = strategies[place[0]], watermarks.get(place)
            is_idle = elapsed_ms - self.active_ms.get(place, elapsed_ms) >= strategy.idle_timeout_ms
            if watermark_ms is not None and watermark_ms < END_OF_TIME_MS and not is_idle:
                group = strategy.alignment_group
                earliest[group] = min(earliest.get(group, watermark_ms), watermark_ms)
        for place in aligned:
            strategy = strategies[place[0]]
            first_ms = earliest.get(strategy.alignment_group)
            ahead_ms = 0 if first_ms is None else watermarks.get(place, first_ms) - first_ms
            if strategy.max_drift_ms is not None and ahead_ms > strategy.max_drift_ms:
                yield place
