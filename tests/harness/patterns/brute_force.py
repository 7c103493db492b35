"""The matches of a pattern by definition: every choice of events is tried. It shares no code with the engine.

A pattern is plain data (``Item``). For every number of times that its steps may take, there is a list of positions, one
for each event (``choices`` yields them one after the other). A choice of events, one for each position, is a match if
what lies between two of its events is what the contiguity allows, and the limits of time hold. The skip strategy is
applied to the matches in the order in which they become certain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

#: Time, letter, value.
Event = tuple[int, str, int]
#: An event, and the events taken before with the names of their steps.
Taken = tuple[tuple[str, int], ...]
#: The events taken so far, with their steps.
Values = list[tuple[str, Event]]
#: Changes to a position.
Context = dict[str, Any]
Predicate = Callable[[Event, Sequence[tuple[str, Event]]], bool]

STRICT, RELAXED, RELAXED_ANY = "next", "followed_by", "followed_by_any"


@dataclass(frozen=True)
class Item:
    """A step. ``kind``: begin, next, followed_by, followed_by_any, not_next or not_followed_by."""

    name: str
    kind: str
    where: Predicate = lambda _event, _before: True
    least: int = 1
    most: int | None = 1
    optional: bool = False
    greedy: bool = False
    inner: str = RELAXED
    until: Predicate | None = None
    group: tuple[Item, ...] = ()
    gap_ms: int | None = None
    text: str = ""


@dataclass(frozen=True)
class Position:
    """One event of a match. ``forbidden``: what no event up to it, and not it, may satisfy.

    ``forbidden_first``: what the first event after the one before may not satisfy. ``lifted_by``: if the first event
    satisfies it, ``greedy`` does not hold. ``stops``: as ``forbidden``, but not for an event that completes the match.
    """

    step: str
    where: Predicate
    contiguity: str
    until: Predicate | None = None
    until_between: Predicate | None = None
    stops: tuple[Predicate, ...] = ()
    forbidden_first: tuple[Predicate, ...] = ()
    greedy: Predicate | None = None
    greedy_first: Predicate | None = None
    lifted_by: Predicate | None = None
    gap_ms: int | None = None


@dataclass(frozen=True)
class End:
    """What must hold after the last event: ``not_next``, or ``not_followed_by`` until a time."""

    gap_ms: int | None = None
    not_next: Predicate | None = None
    not_followed_by: Predicate | None = None
    greedy: Predicate | None = None
    lifted_by: Predicate | None = None


#: What may come next: a position with what may come after it, or the end.
Choice = tuple[Position | End, Callable[[], Iterator["Choice"]]]


def choices(items: Sequence[Item]) -> Iterator[Choice]:
    """Yield what the first event of a match may be, for each number of times that the steps may take."""
    return _from(tuple(items), 0, {}, lambda context: iter([(_end(items, context), _nothing)]))


def _nothing() -> Iterator[Choice]:
    return iter(())


def _end(items: Sequence[Item], context: Context) -> End:
    last, end = items[-1], End()
    if last.kind == "not_next":
        end = End(not_next=last.where, greedy=context.get("greedy_first"), lifted_by=context.get("lifted_by"))
    elif last.kind == "not_followed_by":
        end = End(
            last.gap_ms, not_followed_by=last.where, greedy=context.get("greedy"), lifted_by=context.get("lifted_by")
        )
    return end


def _without(where: Predicate, other: Predicate | None) -> Predicate:
    """Return what satisfies one condition and not the other."""
    return lambda event, before: where(event, before) and not (other is not None and other(event, before))


def _from(
    items: tuple[Item, ...], number: int, context: Context, then: Callable[[Context], Iterator[Choice]]
) -> Iterator[Choice]:
    """Yield what may come next when these items from ``number`` on are left. ``context``: changes to the position."""
    if number == len(items):
        yield from then(context)
        return
    item = items[number]
    if item.kind == "not_followed_by":
        yield from _from(items, number + 1, {**context, "stops": (*context.get("stops", ()), item.where)}, then)
        return
    if item.kind == "not_next":
        greedy = {"greedy": None, "greedy_first": context.get("greedy")}
        yield from _from(items, number + 1, {**context, "forbidden_first": (item.where,), **greedy}, then)
        return
    following = items[number + 1] if number + 1 < len(items) else None
    inside = (following.where,) if following is not None and following.kind == "not_followed_by" else ()
    is_greedy = item.greedy and item.most != item.least

    def behind(changed: Context) -> Iterator[Choice]:
        if is_greedy:
            changed = {**changed, "greedy": item.where, "lifted_by": item.until}
        yield from _from(items, number + 1, changed, then)

    def after(times: int, changed: Context) -> Iterator[Choice]:
        if item.most is None or times < item.most:
            again = {**changed, "contiguity": item.inner}
            if not item.group:
                again |= {"until_between": item.until, "stops": inside}
            if times >= item.least and following is not None and following.kind == "not_next":
                again |= {"forbidden_first": (_without(following.where, item.where if is_greedy else None),)}
            yield from take(times, again)
        if times >= item.least:
            yield from behind(changed)

    def take(times: int, changed: Context) -> Iterator[Choice]:
        if item.group:
            first, *others = item.group
            if first.inner == RELAXED:  # it has none of its own
                first = replace(first, inner=item.inner)
            yield from _from((first, *others), 0, changed, lambda rest: after(times + 1, rest))
        else:
            one = Position(item.name, item.where, item.kind, item.until, gap_ms=item.gap_ms)
            yield replace(one, **changed), lambda: after(times + 1, {})

    if item.optional:
        yield from behind(dict(context))
    changed = dict(context)
    if number or "contiguity" not in changed:  # the first step of a group has the contiguity of the group
        changed["contiguity"] = item.kind
    yield from take(0, changed)


@dataclass(order=True)
class Found:
    """A match. ``certain``: the time and the number of the event at which it is certain."""

    certain_ms: int
    certain: int
    taken: Taken = field(compare=False)


@dataclass(frozen=True)
class Prefix:
    """The first events of a match that may go on, until the event ``dies`` or the deadline."""

    taken: Taken
    dies: int
    deadline_ms: int | None
    pending: bool = False


class BruteForce:
    """The matches of a pattern over the events of one key, in order."""

    def __init__(
        self, items: Sequence[Item], events: Sequence[Event], within_ms: int | None = None, *, end_ms: int | None = None
    ) -> None:
        """``end_ms``: the time to which the watermark goes after the last event; None: time does not go on."""
        self.events = events
        self.within_ms = within_ms
        self.end_ms = end_ms if end_ms is not None else (events[-1][0] if events else 0)
        self.found: list[Found] = []
        self.prefixes: set[Prefix] = set()
        for position, then in choices(items):
            for start in range(len(events)):
                self._extend(position, then, start, (), [])

    def _extend(
        self,
        position: Position | End,
        then: Callable[[], Iterator[Choice]],
        event: int,
        taken: Taken,
        values: Values,
    ) -> None:
        """Try to take this event for a position, and go on."""
        assert isinstance(position, Position)
        if not self._may_take(position, event, taken, values):
            return
        stopped = bool(taken) and self._forbids(position, taken[-1][1], event, values)
        taken, values = (*taken, (position.step, event)), [*values, (position.step, self.events[event])]
        for after, rest in then():
            if isinstance(after, End):
                if not stopped or after == End():
                    self._complete(after, taken, values)
            elif not stopped:
                self._note_prefix(after, taken, values)
                for later in range(event + 1, len(self.events)):
                    self._extend(after, rest, later, taken, values)

    def _may_take(self, position: Position, event: int, taken: Taken, values: Values) -> bool:
        """Return whether the event is one for this position, whatever may come next."""
        candidate = self.events[event]
        if not position.where(candidate, values) or (position.until and position.until(candidate, values)):
            return False
        if not taken:
            lifted = position.lifted_by and position.lifted_by(candidate, values)
            return not (position.greedy and position.greedy(candidate, values) and not lifted)
        first, before = taken[0][1], taken[-1][1]
        too_late = (self.within_ms is not None and candidate[0] - self.events[first][0] >= self.within_ms) or (
            position.gap_ms is not None and candidate[0] - self.events[before][0] >= position.gap_ms
        )
        return not (
            too_late
            or any(self._kills(position, before, e, values) for e in range(before + 1, event))
            or (position.contiguity == STRICT and event != before + 1)
            or self._forbids(position, before, event, values, completes=True)
        )

    def _forbids(self, position: Position, before: int, event: int, values: Values, *, completes: bool = False) -> bool:
        candidate = self.events[event]
        if not completes and any(stop(candidate, values) for stop in position.stops):
            return True
        first = event == before + 1
        if first and any(forbidden(candidate, values) for forbidden in position.forbidden_first):
            return True
        lifted_first = position.lifted_by and position.lifted_by(candidate, values)
        if first and position.greedy_first and position.greedy_first(candidate, values) and not lifted_first:
            return True
        if position.greedy and position.greedy(candidate, values):
            lifted = position.lifted_by and position.lifted_by(self.events[before + 1], values)
            return not lifted
        return False

    def _kills(self, position: Position, before: int, event: int, values: Values) -> bool:
        """Return whether an event that is passed over ends the wait for a position."""
        candidate = self.events[event]
        if position.contiguity == STRICT:
            return True
        if position.contiguity == RELAXED and position.where(candidate, values):
            return True
        if position.until_between and position.until_between(candidate, values):
            return True
        return self._forbids(position, before, event, values)

    def _note_prefix(self, position: Position, taken: Taken, values: Values) -> None:
        before = taken[-1][1]
        dies = len(self.events)
        for event in range(before + 1, len(self.events)):
            if self._kills(position, before, event, values):
                dies = event
                break
        limits = []
        if self.within_ms is not None:
            limits.append(self.events[taken[0][1]][0] + self.within_ms)
        if position.gap_ms is not None:
            limits.append(self.events[before][0] + position.gap_ms)
        self.prefixes.add(Prefix(taken, dies, min(limits, default=None)))

    def _complete(self, end: End, taken: Taken, values: Values) -> None:
        last = taken[-1][1]
        if end.not_next is not None:
            after = last + 1
            limit = None if self.within_ms is None else self.events[taken[0][1]][0] + self.within_ms
            self.prefixes.add(Prefix(taken, min(after, len(self.events)), limit))
            if after < len(self.events) and (limit is None or self.events[after][0] < limit):
                candidate = self.events[after]
                lifted = end.lifted_by and end.lifted_by(candidate, values)
                is_taken = end.greedy and not lifted and end.greedy(candidate, values)
                if not end.not_next(candidate, values) and not is_taken:
                    self.found.append(Found(candidate[0], after, taken))
            return
        if end.not_followed_by is None:
            self.found.append(Found(self.events[last][0], last, taken))
            return
        limits = []
        if self.within_ms is not None:
            limits.append(self.events[taken[0][1]][0] + self.within_ms)
        if end.gap_ms is not None:
            limits.append(self.events[last][0] + end.gap_ms)
        deadline = min(limits)
        dies = len(self.events)
        for event in range(last + 1, len(self.events)):
            candidate = self.events[event]
            lifted = end.lifted_by and end.lifted_by(self.events[last + 1], values)
            greedy = end.greedy and not lifted and end.greedy(candidate, values)
            if candidate[0] < deadline and (end.not_followed_by(candidate, values) or greedy):
                dies = event
                break
        self.prefixes.add(Prefix(taken, dies, deadline, pending=True))
        if dies == len(self.events) and deadline <= self.end_ms:
            self.found.append(Found(deadline, -1, taken))

    # --- results ------------------------------------------------------------------------------------------------

    def matches(self, skip: str = "no_skip", step: str = "", chosen: Sequence[Taken] = ()) -> list[Taken]:
        """Return the matches that are emitted. ``chosen``: of several that begin with one event and are certain at one
        moment, a skip strategy emits any: the one that is among these."""
        if skip == "no_skip":
            return [found.taken for found in self.found]
        self._discarded: list[tuple[int, int, int]] = []  # moment, time: and what begins before this event is discarded
        emitted: list[Taken] = []
        waiting: list[Taken] = []
        discarded_below = 0
        for moment_ms, event, complete in self._moments():
            waiting += [taken for taken in complete if taken[0][1] >= discarded_below]
            while waiting:
                first = min(taken[0][1] for taken in waiting)
                if self._is_alive_before(first, discarded_below, moment_ms, event):
                    break
                alike = [taken for taken in waiting if taken[0][1] == first]
                match = next((taken for taken in chosen if taken in alike and taken not in emitted), alike[0])
                waiting.remove(match)
                emitted.append(match)
                discarded_below = max(discarded_below, self._discards(match, skip, step))
                waiting = [taken for taken in waiting if taken[0][1] >= discarded_below]
            self._discarded.append((event, moment_ms, discarded_below))
        return emitted

    def _moments(self) -> list[tuple[int, int, list[Taken]]]:
        """Return the moments in order, with the matches that are certain then: events, and deadlines (event -1)."""
        deadlines = {p.deadline_ms for p in self.prefixes if p.deadline_ms is not None and p.deadline_ms <= self.end_ms}
        moments = [(ms, 0, -1) for ms in deadlines] + [(e[0], 1, n) for n, e in enumerate(self.events)]
        moments.sort()
        return [
            (ms, n, [f.taken for f in self.found if f.certain == n and (n >= 0 or f.certain_ms == ms)])
            for ms, _, n in moments
        ]

    def _is_alive_before(self, first: int, discarded_below: int, moment_ms: int, event: int) -> bool:
        """Return whether a partial match that began before event ``first`` is still waiting after this moment."""
        now = event if event >= 0 else max((n for n, e in enumerate(self.events) if e[0] < moment_ms), default=-1)
        return any(
            discarded_below <= p.taken[0][1] < first
            and p.taken[-1][1] <= now < p.dies
            and (p.deadline_ms is None or p.deadline_ms > moment_ms)
            for p in self.prefixes
        )

    def _discards(self, match: Taken, skip: str, step: str) -> int:
        """Return the first event with which a partial match may begin that survives the match."""
        if skip == "skip_to_next":
            return match[0][1] + 1
        if skip == "skip_past_last_event":
            return match[-1][1] + 1
        taken = [event for name, event in match if name == step]
        if not taken:
            return 0
        return taken[0] if skip == "skip_to_first" else taken[-1]

    def timed_out(self) -> set[Taken]:
        """Return the partial matches whose time is over, without a skip strategy."""
        return {
            p.taken
            for p in self.prefixes
            if p.deadline_ms is not None
            and p.deadline_ms <= self.end_ms
            and (p.dies == len(self.events) or self.events[p.dies][0] >= p.deadline_ms)
            and not p.pending
        }
