"""Decides what each batch reads, once: events up to a limit, every control record that is there, and the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from streamcore.app import CONTROL, App
from streamcore.checkpoint.positions import Bounds, PositionLog
from streamcore.errors import CorruptState, Permanent
from streamcore.position import Place, Position, Span, next_position, partitions_of, share_out, spans

_PULSE_MS = 1_000
_LOOK_S = 0.02


class Ends(Protocol):
    """What a planner asks a cluster (``streamcore.kafka.ends``)."""

    def first(self) -> Mapping[Place, int]:
        """The offset of the first record that is still there, for every partition."""
        ...

    def last(self) -> Mapping[Place, int]:
        """The offset after the last record that may be read, for every partition."""
        ...


@dataclass(frozen=True, slots=True)
class Share:
    """What one task of stage 1 has to do.

    ``partitions``: the source partitions that there are and where the cut begins in each, told to one task.
    """

    spans: tuple[Span, ...]
    clock_ms: int
    partitions: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Planner:
    """For one app. ``from_the_end``: an app without a history leaves out the events that are there already.

    ``now_ms``: the clock, which is asked when a cut is planned and at no other time.
    """

    app: App
    log: PositionLog
    ends: Ends
    from_the_end: bool = False
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000

    def cut(self, batch: int, meanwhile: Callable[[], None], check: Callable[[], None]) -> Bounds:
        """What the batch reads: as decided before, or decided now.

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
            ends = self.ends.last()
            _refuse_shrunk(start, ends)
            end = next_position(start, ends, unlimited, limit, self.now_ms())
            if end.offsets != start.offsets or end.clock_ms - start.clock_ms >= _PULSE_MS:
                break
            time.sleep(_LOOK_S)
        decided = Bounds(start, end)
        check()
        self.log.write(batch, decided)
        return decided

    def _start(self, batch: int) -> Position:
        before = self.log.read(batch - 1)
        if before is not None:
            return before.end
        if batch > 0:
            raise CorruptState(
                f"{self.log.folder}: the position of batch {batch - 1} is missing; restore from a savepoint"
            )
        offsets = dict(self.ends.first())
        begun = self.log.beginning()
        if begun is not None:
            return Position(
                begun.clock_ms, {place: begun.offsets.get(place, first) for place, first in offsets.items()}
            )
        if self.from_the_end:
            offsets |= {place: end for place, end in self.ends.last().items() if place[0] != self.app.control_topic}
        return Position(0, offsets)

    def shares(self, cut: Bounds, tasks: int) -> list[Share]:
        """The cut for at most so many tasks, at least one."""
        numbers = {self.app.control_topic: CONTROL} | {topic: n for n, topic in enumerate(self.app.topics)}
        every = share_out(spans(cut.start, cut.end, numbers), tasks) or [[]]
        places = [place for place in cut.end.offsets if place[0] != self.app.control_topic]
        known = sorted((partitions_of(numbers[t])[p], cut.start.offsets.get((t, p), 0)) for t, p in places)
        return [Share(tuple(s), cut.end.clock_ms, () if task else tuple(known)) for task, s in enumerate(every)]


def _refuse_shrunk(before: Position, ends: Mapping[Place, int]) -> None:
    for (topic, partition), offset in before.offsets.items():
        end = ends.get((topic, partition))
        if end is None or end < offset:
            found = "it is not there" if end is None else f"it ends at {end}"
            raise Permanent(
                f"topic {topic}, partition {partition}: was read up to offset {offset}, and now {found}; it was "
                "deleted or made anew, or lost records: start with a new checkpoint"
            )
