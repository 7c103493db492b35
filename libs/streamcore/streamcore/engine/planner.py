"""Plans each batch once: events up to a limit, every control record that has arrived, and the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamcore.app import CONTROL, App
from streamcore.checkpoint.offset_log import CutBounds, OffsetLog
from streamcore.errors import CorruptState, Permanent
from streamcore.offsets import (
    OffsetRange,
    PartitionOffsets,
    StreamOffsets,
    TopicPartition,
    assign_ranges,
    next_offsets,
    ranges_between,
    source_partitions,
)

_PULSE_MS = 1_000
_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """The part of a cut that one task of stage 1 reads.

    ``partitions``: all source partitions with the offset where the cut begins in each; only one task gets them.
    """

    ranges: tuple[OffsetRange, ...]
    clock_ms: int
    partitions: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Planner:
    """For one app. ``from_the_end``: an app without a history leaves out the events that are there already.

    ``now_ms``: the clock, which is read only when a cut is planned.
    """

    app: App
    log: OffsetLog
    ends: PartitionOffsets
    from_the_end: bool = False
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000

    def plan_cut(self, batch: int, meanwhile: Callable[[], None], check: Callable[[], None]) -> CutBounds:
        """Return the bounds of the batch: those planned before, or new ones.

        Then it waits for input, a second at most, for time goes on without any, and calls ``meanwhile`` at each look.
        ``check``: whether it may be decided, asked once that is known and before it is written down. Both may raise.
        ``CorruptState`` when the batch before it is unknown, ``Permanent`` when records that were read are gone.
        """
        decided = self.log.read(batch)
        if decided is not None:
            return decided
        start = self._start(batch)
        unlimited, limit = (self.app.control_topic,), self.app.limits.events_per_cut
        while True:
            meanwhile()
            ends = self.ends.latest()
            _refuse_shrunk(start, ends)
            end = next_offsets(start, ends, unlimited, limit, self.now_ms())
            if end.offsets != start.offsets or end.clock_ms - start.clock_ms >= _PULSE_MS:
                break
            time.sleep(_LOOK_S)
        decided = CutBounds(start, end)
        check()
        self.log.write(batch, decided)
        return decided

    def _start(self, batch: int) -> StreamOffsets:
        before = self.log.read(batch - 1)
        if before is not None:
            return before.end
        if batch > 0:
            raise CorruptState(
                f"{self.log.folder}: the position of batch {batch - 1} is missing; restore from a savepoint"
            )
        offsets = dict(self.ends.earliest())
        begun = self.log.read_start()
        if begun is not None:
            return StreamOffsets(
                begun.clock_ms, {place: begun.offsets.get(place, first) for place, first in offsets.items()}
            )
        if self.from_the_end:
            offsets |= {place: end for place, end in self.ends.latest().items() if place[0] != self.app.control_topic}
        return StreamOffsets(0, offsets)

    def assign(self, cut: CutBounds, tasks: int) -> list[TaskAssignment]:
        """Divide the cut among at most ``tasks`` tasks; returns at least one assignment."""
        numbers = {self.app.control_topic: CONTROL} | {topic: n for n, topic in enumerate(self.app.topics)}
        every = assign_ranges(ranges_between(cut.start, cut.end, numbers), tasks) or [[]]
        places = [place for place in cut.end.offsets if place[0] != self.app.control_topic]
        known = sorted((source_partitions(numbers[t])[p], cut.start.offsets.get((t, p), 0)) for t, p in places)
        return [
            TaskAssignment(tuple(s), cut.end.clock_ms, () if task else tuple(known)) for task, s in enumerate(every)
        ]


def _refuse_shrunk(before: StreamOffsets, ends: Mapping[TopicPartition, int]) -> None:
    for (topic, partition), offset in before.offsets.items():
        end = ends.get((topic, partition))
        if end is None or end < offset:
            found = "it is not there" if end is None else f"it ends at {end}"
            raise Permanent(
                f"topic {topic}, partition {partition}: was read up to offset {offset}, and now {found}; it was "
                "deleted or made anew, or lost records: start with a new checkpoint"
            )
