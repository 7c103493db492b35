"""How far event time has come: one progress a source partition, one minimum for all.

A watermark of ``w`` says: no event earlier than ``w`` is expected any more. Each source partition has its own (the
latest event time seen in it, less the allowed disorder); the watermark of the app is the smallest over the partitions
that are not idle, and it never goes back. Everything here is a value and a pure function of what was seen and of the
cut's clock, so every shard computes the same watermark in the same cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

#: Before the first event. Far enough from the limits of 64 bits to be subtracted from.
NO_WATERMARK = -(2**62)


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """``disorder_ms``: how late an event may come after a later one of its partition (0: ascending).

    ``idle_ms``: a partition without events for so long, by the clock, no longer holds the others back.
    """

    disorder_ms: int = 10_000
    idle_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class Progress:
    """What one cut read of one source partition: the latest event time in it and the number of events."""

    partition: int
    max_event_ms: int
    events: int


@dataclass(frozen=True, slots=True)
class PartitionTime:
    """A source partition's history: its latest event time ever, and the clock when it last gave an event.

    Before its first event: ``NO_WATERMARK``, and the clock when it was first expected.
    """

    max_event_ms: int
    active_ms: int


@dataclass(frozen=True, slots=True)
class WatermarkState:
    """The app's time at a cut boundary.

    A partition that is expected holds the watermark back until it gives an event or is idle; any other counts from
    the first event that it gave.
    """

    watermark_ms: int = NO_WATERMARK
    partitions: Mapping[int, PartitionTime] = field(default_factory=dict)

    def latest_event_ms(self, partitions: range) -> int:
        """The latest event time of any of these partitions."""
        return max((t.max_event_ms for n, t in self.partitions.items() if n in partitions), default=NO_WATERMARK)

    def expect(self, partitions: Iterable[int], clock_ms: int) -> WatermarkState:
        """The state with these partitions in it. Without them the first cut, which may hold events of one partition
        only, would make the others' backlog late."""
        new = {n: PartitionTime(NO_WATERMARK, clock_ms) for n in partitions if n not in self.partitions}
        return replace(self, partitions={**self.partitions, **new}) if new else self

    def advance(self, progress: Iterable[Progress], clock_ms: int, strategy: WatermarkStrategy) -> WatermarkState:
        """The state after a cut. Monotone: the watermark never goes back, whatever the cut holds.

        When all partitions were silent for ``idle_ms``, the app was away, or its world was: none of them is idle then,
        and the first event after that waits for the others anew.
        """
        progress = [*progress]
        times = dict(self.partitions)
        if progress and all(clock_ms - t.active_ms >= strategy.idle_ms for t in times.values()):
            times = {n: replace(t, active_ms=clock_ms) for n, t in times.items()}
        for seen in progress:
            before = times.get(seen.partition)
            latest = seen.max_event_ms if before is None else max(before.max_event_ms, seen.max_event_ms)
            times[seen.partition] = PartitionTime(latest, clock_ms)
        active = [t for t in times.values() if clock_ms - t.active_ms < strategy.idle_ms]
        smallest = min((t.max_event_ms for t in active), default=NO_WATERMARK)
        candidate = smallest - strategy.disorder_ms if smallest > NO_WATERMARK else NO_WATERMARK
        advanced = replace(self, watermark_ms=max(self.watermark_ms, candidate), partitions=times)
        assert advanced.watermark_ms >= self.watermark_ms, "a watermark may not go back"
        return advanced
