"""Plans each batch once: events up to a limit, control records up to a limit of their own, and the clock.

The first cut of an epoch takes every control record that is there, whatever the limit: the first events meet all rules
that were published before the app started.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from streamcore.app import CONTROL, App
from streamcore.checkpoint.offset_log import CutBounds, OffsetLog
from streamcore.cuts.cut_clock import CutClock, CutTimer
from streamcore.engine.alignment import SourceAlignment
from streamcore.engine.inputs import EARLIEST, InputBounds, resolve
from streamcore.engine.projection import Projection
from streamcore.errors import CorruptState, Drained, Permanent
from streamcore.files.listing import FileRange
from streamcore.offsets import (
    FILES_PARTITION,
    OffsetRange,
    PartitionOffsets,
    StreamOffsets,
    TopicPartition,
    assign_ranges,
    next_offsets,
    ranges_between,
    source_partitions,
)
from streamcore.schema_registry.waiting import SchemaPins
from streamcore.storage.checked_json import compute_digest

_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """The part of a cut that one task of stage 1 reads.

    ``partitions``: all source partitions with the offset where the cut begins in each, and ``ended``: those that the
    cut reads to their end; only one task gets them. ``files``: the rows of files, by the index of their source.
    ``schemas``: of the cut, for apps with a schema registry. ``projection``: the fields of its events that become
    columns; None for all.
    """

    ranges: tuple[OffsetRange, ...]
    clock: CutClock
    partitions: tuple[tuple[int, int], ...] = ()
    ended: tuple[int, ...] = ()
    files: tuple[tuple[int, tuple[FileRange, ...]], ...] = ()
    schemas: SchemaPins | None = None
    projection: Projection | None = None


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans the cuts of one app and divides them among tasks.

    ``ends``: the offsets of all topics and files. ``starting``: where a new app begins in topics of events
    (``offsets.PLACE_PATTERN``). ``bounds``: where its inputs end. ``timer``: the clocks, which are read only while a
    cut is planned. ``streams``: digest of the streams that were published while the app ran, written with each cut.
    ``alignment``: of sources with a limit of drift; the caller records each cut in it.
    """

    app: App
    log: OffsetLog
    ends: PartitionOffsets
    starting: str = EARLIEST
    timer: CutTimer = field(default_factory=CutTimer)
    bounds: InputBounds = field(default_factory=InputBounds)
    streams: str = ""
    alignment: SourceAlignment = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "alignment", SourceAlignment(self.app))

    def plan_cut(self, batch: int, on_poll: Callable[[], None], before_write: Callable[[], None]) -> CutBounds:
        """Return the bounds of the batch from the offset log, or plan new ones and write them to it.

        A new cut waits for input, ``Limits.empty_cut_interval_ms`` at most, because the clock must advance without
        input too. ``on_poll`` is called at each poll for input, ``before_write`` before the bounds are written; an
        error of either is raised, and nothing is written then.

        Raises ``Drained`` if all inputs have been read to their end, ``CorruptState`` if the log lacks the previous
        batch, and ``Permanent`` if records that were read before no longer exist.
        """
        planned = self.log.read(batch)
        if planned is not None:
            return planned
        start, previous = self._start(batch)
        if batch and self.bounds.is_finished(start, self.app.control_topic):
            raise Drained(f"app {self.app.name}: all inputs are read to their end")
        limits = self.app.limits
        control_limit = limits.control_records_per_cut if batch else sys.maxsize
        while True:
            on_poll()
            ends = self.ends.latest()
            _reject_shrunk(start, ends)
            own_limits = {self.app.control_topic: control_limit}
            clock = self.timer.read(start.clock)
            bounded = self.bounds.limit(start, ends, self.app.control_topic)
            readable = self.alignment.limit(start, bounded, clock.elapsed_ms)
            end = next_offsets(start, readable, limits.events_per_cut, clock, own_limits)
            if end.offsets != start.offsets or _passed_ms(start.clock, end.clock) >= limits.empty_cut_interval_ms:
                break
            time.sleep(_POLL_S)
        planned = CutBounds(start, end, previous, self.streams)
        before_write()
        self.log.write(batch, planned)
        return planned

    def _start(self, batch: int) -> tuple[StreamOffsets, str]:
        """Return the offsets and the clock at which the batch begins, and the digest of what came before it."""
        previous = self.log.read(batch - 1)
        if previous is not None:
            return previous.end, previous.id(batch - 1).digest
        if batch > 0:
            raise CorruptState(
                f"{self.log.folder}: the position of batch {batch - 1} is missing; restore from a savepoint"
            )
        offsets = dict(self.ends.earliest())
        restored = self.log.read_start()
        if restored is not None:
            offsets = {partition: restored.offsets.get(partition, first) for partition, first in offsets.items()}
            return StreamOffsets(restored.clock, offsets), compute_digest(restored.to_json())
        if self.starting != EARLIEST:
            offsets |= self._starting_offsets(offsets)
        return StreamOffsets(CutClock(), offsets), ""

    def _starting_offsets(self, earliest: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offset at which a new app begins in each partition of its event topics, within those it has."""
        wanted, latest = resolve(self.starting, self.ends, "starting_offsets"), self.ends.latest()
        return {
            place: min(max(offset, earliest.get(place, 0)), latest[place])
            for place, offset in wanted.items()
            if place[0] != self.app.control_topic and place[1] != FILES_PARTITION
        }

    def assign(
        self, cut: CutBounds, tasks: int, schemas: SchemaPins | None = None, projection: Projection | None = None
    ) -> list[TaskAssignment]:
        """Divide the cut among at most ``tasks`` tasks; return at least one assignment. ``schemas``, ``projection``: as
        in it."""
        numbers = _numbers(self.app)
        ranges_by_task = assign_ranges(ranges_between(cut.start, cut.end, numbers), tasks) or [[]]
        event_partitions = [place for place in cut.end.offsets if place[0] != self.app.control_topic]
        starts = sorted(
            (source_partitions(numbers[t])[p], cut.start.offsets.get((t, p), 0))
            for t, p in event_partitions
            if not self.bounds.waits((t, p), cut.end)
        )
        ended = self.bounds.ended(cut.end, self.app.control_topic)
        ended_numbers = tuple(sorted(source_partitions(numbers[t])[p] for t, p in ended))
        return [
            TaskAssignment(
                tuple(one for one in ranges if one.partition != FILES_PARTITION),
                cut.end.clock,
                () if task else tuple(starts),
                () if task else ended_numbers,
                tuple(
                    (one.source, self.bounds.file_ranges(one.topic, one.start, one.end))
                    for one in ranges
                    if one.partition == FILES_PARTITION
                ),
                schemas,
                projection,
            )
            for task, ranges in enumerate(ranges_by_task)
        ]


def control_ranges(app: App, cut: CutBounds) -> list[OffsetRange]:
    """Return the ranges of a cut in the control topic."""
    return [one for one in ranges_between(cut.start, cut.end, _numbers(app)) if one.source == CONTROL]


def _numbers(app: App) -> dict[str, int]:
    """Return the ``source`` of the records of each topic."""
    return {app.control_topic: CONTROL} | {topic: app.topics.index(topic) for topic in app.topics}


def _passed_ms(start: CutClock, end: CutClock) -> int:
    """Return how much time passed in a cut, by the clock or by the time that the app ran: the clock may stand still."""
    return max(end.clock_ms - start.clock_ms, end.elapsed_ms - start.elapsed_ms)


def _reject_shrunk(read: StreamOffsets, ends: Mapping[TopicPartition, int]) -> None:
    """Raise ``Permanent`` if a partition ends before the offset up to which it was read."""
    for (topic, partition), offset in read.offsets.items():
        end = ends.get((topic, partition))
        if end is None or end < offset:
            state = "it does not exist" if end is None else f"it ends at {end}"
            raise Permanent(
                f"topic {topic}, partition {partition}: was read up to offset {offset}, and now {state}; it was "
                "deleted, recreated or truncated: start with a new checkpoint"
            )
