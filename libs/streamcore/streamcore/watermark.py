"""Watermarks: the progress of event time of each source partition, and their minimum.

A watermark of ``w`` means that no event earlier than ``w`` is expected any more. The watermark of a source partition is
its latest event time minus the allowed out-of-orderness, or the time that its events carry, or the clock of the cut
(``EventTime.PROCESSING``). The watermark of an operator is the minimum over its partitions that are not idle, and never
decreases. All functions are pure functions of the events and of the cut's times, so all shards compute equal watermarks
in a cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from streamcore.durations import Duration, DurationField, duration_ms
from streamcore.errors import ConfigError

#: The watermark before the first event. Durations can be subtracted from it without overflow.
NO_WATERMARK: Final = -(2**62)
#: The watermark after the end of a stream, later than every event time.
END_OF_TIME_MS: Final = 2**62


@dataclass(frozen=True)
class WatermarkStrategy:
    """How the watermark of a source's partitions follows from their events.

    ``max_out_of_orderness_ms``: by how much event time an event may come after a later one of its partition; 0: event
    times ascend. ``idle_timeout_ms``: a partition without events for this time, while the app runs, is idle and no
    longer holds the watermark back. ``punctuation``: a field of the events. If it is set, only events with this field
    advance the watermark, and ``max_out_of_orderness_ms`` has no effect: a boolean that is true advances it to the
    event time, a timestamp to that timestamp. ``end``: a boolean field, true in the last event of a partition.
    ``max_drift_ms``, ``alignment_group``: set by ``with_alignment``; None: no partition waits for another.
    """

    max_out_of_orderness_ms: DurationField = DurationField(10_000)
    idle_timeout_ms: DurationField = DurationField(30_000)
    punctuation: str | None = None
    end: str | None = None
    max_drift_ms: int | None = None
    alignment_group: str = ""

    def with_alignment(self, max_drift_ms: Duration, *, group: str = "") -> WatermarkStrategy:
        """Return the strategy of a source whose partitions wait when they are far ahead (``engine.alignment``).

        ``max_drift_ms``: by how much the watermark of a partition may be ahead of the earliest of all partitions of
        the sources of this ``group``.
        """
        drift_ms = duration_ms("max_drift_ms", max_drift_ms)
        if drift_ms < 0:
            raise ConfigError(f"with_alignment: max_drift_ms is at least 0, not {drift_ms}")
        return replace(self, max_drift_ms=drift_ms, alignment_group=group)

    def __post_init__(self) -> None:
        if self.max_out_of_orderness_ms < 0 or self.idle_timeout_ms < 1:
            raise ConfigError(f"{self}: max_out_of_orderness_ms is at least 0, idle_timeout_ms at least 1")


def ascending_timestamps(idle_timeout_ms: Duration = 30_000) -> WatermarkStrategy:
    """Return the strategy for events that come in the order of their times within each partition."""
    return WatermarkStrategy(0, idle_timeout_ms)


def bounded_out_of_orderness(
    max_out_of_orderness_ms: Duration, idle_timeout_ms: Duration = 30_000
) -> WatermarkStrategy:
    """Return the strategy for events that come at most ``max_out_of_orderness_ms`` of event time after a later one of
    their partition."""
    return WatermarkStrategy(max_out_of_orderness_ms, idle_timeout_ms)


def from_punctuation(field_name: str, idle_timeout_ms: Duration = 30_000) -> WatermarkStrategy:
    """Return the strategy for streams whose events carry the progress of event time
    (``WatermarkStrategy.punctuation``)."""
    return WatermarkStrategy(0, idle_timeout_ms, punctuation=field_name)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of one source partition in one cut: its latest event time (``NO_WATERMARK`` without events), its
    number of events, and the watermark of this partition alone (``NO_WATERMARK`` if its events give none)."""

    partition: int
    max_event_ms: int
    events: int
    watermark_ms: int


@dataclass(frozen=True, slots=True)
class PartitionTime:
    """The time of a source partition: its latest event time, ``CutClock.elapsed_ms`` at its last event (``active_ms``),
    and its watermark.

    Before its first event the times are ``NO_WATERMARK``, and ``active_ms`` is that of the cut that registered it.
    """

    max_event_ms: int
    active_ms: int
    watermark_ms: int = NO_WATERMARK

    @property
    def has_begun(self) -> bool:
        """Whether the partition has a watermark."""
        return self.watermark_ms > NO_WATERMARK


#: Returns the idle time-out of a source partition, in milliseconds.
IdleMs = Callable[[int], int]


@dataclass(frozen=True, slots=True)
class WatermarkState:
    """The watermark of a group of sources at a cut boundary, with the time of each of their partitions.

    A partition that was registered with ``expect`` holds the watermark back until its first event or until it is idle;
    any other partition does so from its first event on.
    """

    watermark_ms: int = NO_WATERMARK
    partitions: Mapping[int, PartitionTime] = field(default_factory=dict)

    def latest_event_ms(self, partitions: range) -> int:
        """Return the latest event time of any of these partitions."""
        return max((t.max_event_ms for n, t in self.partitions.items() if n in partitions), default=NO_WATERMARK)

    def expect(self, partitions: Iterable[int], elapsed_ms: int) -> WatermarkState:
        """Return the state with these partitions registered. Otherwise a first cut with events of one partition only
        would advance the watermark, and make the backlog of the other partitions late."""
        new = {n: PartitionTime(NO_WATERMARK, elapsed_ms) for n in partitions if n not in self.partitions}
        return replace(self, partitions={**self.partitions, **new}) if new else self

    def advance(self, progress: Iterable[Progress], elapsed_ms: int, idle_timeout_ms: IdleMs) -> WatermarkState:
        """Return the state after a cut. The watermark never decreases. ``elapsed_ms``: of the cut's ``CutClock``.

        If all partitions are idle when an event arrives, all producers were down. The idle time of every partition then
        begins anew, so that the first event does not advance the watermark past the others' backlog. A partition that
        has ended no longer holds the watermark back. The watermark is ``END_OF_TIME_MS`` when all partitions have
        ended; an idle partition has not ended.
        """
        progress = [*progress]
        times = dict(self.partitions)
        if progress and all(elapsed_ms - t.active_ms >= idle_timeout_ms(n) for n, t in times.items()):
            times = {n: replace(t, active_ms=elapsed_ms) for n, t in times.items()}
        for seen in progress:
            before = times.get(seen.partition, PartitionTime(NO_WATERMARK, elapsed_ms))
            latest = max(before.max_event_ms, seen.max_event_ms)
            times[seen.partition] = PartitionTime(latest, elapsed_ms, max(before.watermark_ms, seen.watermark_ms))
        open_ended = {n: t for n, t in times.items() if t.watermark_ms < END_OF_TIME_MS}
        active = [t.watermark_ms for n, t in open_ended.items() if elapsed_ms - t.active_ms < idle_timeout_ms(n)]
        candidate = min(active, default=NO_WATERMARK if open_ended or not times else END_OF_TIME_MS)
        advanced = replace(self, watermark_ms=max(self.watermark_ms, candidate), partitions=times)
        assert advanced.watermark_ms >= self.watermark_ms, "a watermark may not go back"
        return advanced
