"""How far event time has come: one progress a source partition, one minimum for all.

A watermark of ``w`` means: no event earlier than ``w`` is expected any more. Each source partition has its own (the
latest event time seen in it, less the allowed disorder, or the progress that its events carry); the watermark of an
operator is the smallest over the partitions that feed it and are not idle, and it never goes back. Everything here is
a value and a pure function of the events and of the cut's clock, so every shard computes the same in the same cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from streamcore.errors import ConfigError

#: Before the first event. Far enough from the limits of 64 bits to be subtracted from.
NO_WATERMARK: Final = -(2**62)
#: The watermark after the last event of all. No event time comes near it.
END_OF_TIME_MS: Final = 2**62


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """How the watermark of a source's partitions follows from their events.

    ``max_out_of_orderness_ms``: how late an event may come after a later one of its partition (0: ascending).
    ``idle_timeout_ms``: a partition without events for so long, by the clock, no longer holds the others back.
    ``punctuation``: a field of the events. Only an event with a value there moves the watermark: a boolean
    that is true (to the event's own time) or a timestamp (to that time). ``max_out_of_orderness_ms`` then plays no
    part.
    ``end``: a boolean field; an event where it is true is the last one of its partition.
    """

    max_out_of_orderness_ms: int = 10_000
    idle_timeout_ms: int = 30_000
    punctuation: str | None = None
    end: str | None = None

    def __post_init__(self) -> None:
        if self.max_out_of_orderness_ms < 0 or self.idle_timeout_ms < 1:
            raise ConfigError(f"{self}: max_out_of_orderness_ms is at least 0, idle_timeout_ms at least 1")


def ascending_timestamps(idle_timeout_ms: int = 30_000) -> WatermarkStrategy:
    """Return the strategy for events that come in the order of their times within each partition."""
    return WatermarkStrategy(0, idle_timeout_ms)


def bounded_out_of_orderness(max_out_of_orderness_ms: int, idle_timeout_ms: int = 30_000) -> WatermarkStrategy:
    """Return the strategy for events that come at most ``max_out_of_orderness_ms`` of event time after a later one of
    their
    partition."""
    return WatermarkStrategy(max_out_of_orderness_ms, idle_timeout_ms)


def from_punctuation(field_name: str, idle_timeout_ms: int = 30_000) -> WatermarkStrategy:
    """Return the strategy for streams whose events carry the progress of event time
    (``WatermarkStrategy.punctuation``)."""
    return WatermarkStrategy(0, idle_timeout_ms, punctuation=field_name)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of one source partition in one cut: the latest event time, how many events, and the watermark of
    that partition alone (``NO_WATERMARK`` where they give none)."""

    partition: int
    max_event_ms: int
    events: int
    watermark_ms: int


@dataclass(frozen=True, slots=True)
class PartitionTime:
    """A source partition's history: its latest event time ever, the clock when it last gave an event, its watermark.

    Before its first event: ``NO_WATERMARK``, and the clock when it was first expected.
    """

    max_event_ms: int
    active_ms: int
    watermark_ms: int = NO_WATERMARK

    @property
    def has_begun(self) -> bool:
        """Whether the partition has a watermark."""
        return self.watermark_ms > NO_WATERMARK


#: How long each source partition may be silent before it is idle.
IdleMs = Callable[[int], int]


@dataclass(frozen=True, slots=True)
class WatermarkState:
    """The time of some sources at a cut boundary: of all sources of an app, or of those that feed an operator.

    A partition that is expected holds the watermark back until it gives an event or is idle; any other counts from
    the first event that it gave.
    """

    watermark_ms: int = NO_WATERMARK
    partitions: Mapping[int, PartitionTime] = field(default_factory=dict)

    def latest_event_ms(self, partitions: range) -> int:
        """Return the latest event time of any of these partitions."""
        return max((t.max_event_ms for n, t in self.partitions.items() if n in partitions), default=NO_WATERMARK)

    def expect(self, partitions: Iterable[int], clock_ms: int) -> WatermarkState:
        """Return the state with these partitions in it. Without them the first cut, which may hold events of one
        partition only, would make the others' backlog late."""
        new = {n: PartitionTime(NO_WATERMARK, clock_ms) for n in partitions if n not in self.partitions}
        return replace(self, partitions={**self.partitions, **new}) if new else self

    def advance(self, progress: Iterable[Progress], clock_ms: int, idle_timeout_ms: IdleMs) -> WatermarkState:
        """Return the state after a cut. Monotone: the watermark never goes back, whatever the cut holds.

        When all partitions were silent until they were idle, the app was away, or its world was: none of them is idle
        then, and the first event after that waits for the others anew. A partition that has ended holds no other back,
        and one that is only idle may go on: the stream has ended when all have.
        """
        progress = [*progress]
        times = dict(self.partitions)
        if progress and all(clock_ms - t.active_ms >= idle_timeout_ms(n) for n, t in times.items()):
            times = {n: replace(t, active_ms=clock_ms) for n, t in times.items()}
        for seen in progress:
            before = times.get(seen.partition, PartitionTime(NO_WATERMARK, clock_ms))
            latest = max(before.max_event_ms, seen.max_event_ms)
            times[seen.partition] = PartitionTime(latest, clock_ms, max(before.watermark_ms, seen.watermark_ms))
        open_ended = {n: t for n, t in times.items() if t.watermark_ms < END_OF_TIME_MS}
        active = [t.watermark_ms for n, t in open_ended.items() if clock_ms - t.active_ms < idle_timeout_ms(n)]
        candidate = min(active, default=NO_WATERMARK if open_ended or not times else END_OF_TIME_MS)
        advanced = replace(self, watermark_ms=max(self.watermark_ms, candidate), partitions=times)
        assert advanced.watermark_ms >= self.watermark_ms, "a watermark may not go back"
        return advanced
