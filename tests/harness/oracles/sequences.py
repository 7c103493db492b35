"""The sequences among all events of one key, in plain Python without code of the product.

It looks at each possible beginning by itself. From there the events of a match are certain, whatever else goes on: the
next event that is wanted is the one that is taken. Times are checked at the end, for they can only say no. Then, in the
order of their first events, because a match waits for those that began before it, discarded matches are struck out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Row = Mapping[str, object]


@dataclass(frozen=True)
class Event:
    """Ordered as events are: by time, then by place."""

    ms: int
    partition: int
    offset: int
    row: Row


@dataclass(frozen=True)
class Wanted:
    """An entry of a sequence: a step, or with ``times`` 0 a ``without``.

    ``holds``: its condition on an event, given the rows of the events that each step has taken before, by the step's
    place among the steps.
    """

    holds: Callable[[Row, Sequence[Sequence[Row]]], bool]
    times: int
    within_ms: int | None


@dataclass(frozen=True)
class Found:
    """``end_ms``: time of the last event, or the end of the time in which nothing came after it."""

    events: tuple[Event, ...]
    end_ms: int


def find(entries: Sequence[Wanted], span_ms: int, events: Sequence[Event], *, past_last: bool) -> list[Found]:
    """Return all matches in the order of their first events."""
    events = sorted(events, key=lambda e: (e.ms, e.partition, e.offset))
    every = [m for first in range(len(events)) if (m := _from(entries, span_ms, events, first)) is not None]
    kept: list[tuple[list[int], int]] = []
    for places, end_ms in every:
        if not past_last or all(places[0] > other[-1] for other, _ in kept):
            kept.append((places, end_ms))
    return [Found(tuple(events[i] for i in places), end_ms) for places, end_ms in kept]


def _from(entries: Sequence[Wanted], span_ms: int, events: Sequence[Event], first: int) -> tuple[list[int], int] | None:
    """Return the places of the match that begins with this event, and its end."""
    steps = [e for e in entries if e.times]
    guards = [entries[i - 1] if i and not entries[i - 1].times else None for i, e in enumerate(entries) if e.times]
    wanted = [
        (step, guard if n == 0 else None) for step, guard in zip(steps, guards, strict=True) for n in range(step.times)
    ]
    taken: list[list[Row]] = [[] for _ in steps]
    if not wanted[0][0].holds(events[first].row, taken):
        return None
    places = [first]
    taken[0].append(events[first].row)
    for place in range(first + 1, len(events)):
        if len(places) == len(wanted):
            break
        step, guard = wanted[len(places)]
        if guard is not None and guard.holds(events[place].row, taken):
            return None
        if step.holds(events[place].row, taken):
            places.append(place)
            taken[next(n for n, one in enumerate(steps) if one is step)].append(events[place].row)
    if len(places) < len(wanted) or not _in_time(steps, span_ms, [events[i].ms for i in places]):
        return None
    last = events[places[-1]]
    if entries[-1].times:
        return places, last.ms
    end_ms = last.ms + (entries[-1].within_ms or 0)
    after = [e for e in events[places[-1] + 1 :] if e.ms <= end_ms]
    return None if any(entries[-1].holds(e.row, taken) for e in after) else (places, end_ms)


def _in_time(steps: Sequence[Wanted], span_ms: int, times: Sequence[int]) -> bool:
    if times[-1] - times[0] > span_ms:
        return False
    began, done = times[0], 0
    for step in steps:
        done += step.times
        if step.within_ms is not None and times[done - 1] - began > step.within_ms:
            return False
        began = times[done - 1]
    return True
