"""The partial matches of one sequence and one key: a few numbers each over events that they share.

A partial is the place of its first event, how many events it has taken, and until when it lives; which events it has
taken follows from those and is worked out for a match only: every event that a partial waits for is taken by it, so it
is among the shared ones. That keeps a rule with ``times: 1000`` from holding a thousand lists of a thousand events.

Promises: the result of events that are given in order, one call or many, with any ``settle`` between whose time is true
(no event before it will come), is the same. Knows nothing of rules, frames and tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from rulecore.compile.sequence_program import BEGINS, UNCHANGED, SequenceProgram
from rulecore.documents.rule_kinds import Skip
from rulecore.language.types import Value

#: Event time, partition, offset, roles for the sequence, captured values by column.
Event = tuple[int, int, int, int, dict[str, Value]]

_FIRST, _TAKEN, _UNTIL = range(3)
_NEVER = -(2**63)


@dataclass(frozen=True, slots=True)
class Match:
    """``events`` in order; ``end_ms``: time of the last, or end of the time without an event after it."""

    events: Sequence[Event]
    end_ms: int


class MatchSet:
    """``partials``: [place of the first event, events taken, last time at which it lives], in order of beginning.

    A pending partial lives until the end of its quiet time.
    """

    def __init__(self, program: SequenceProgram, limit: int, stored: bytes | None = None) -> None:
        """``limit``: the number of partials kept. ``stored``: the result of an earlier ``stored``."""
        events, partials = orjson.loads(stored) if stored else ((), [])
        self.program = program
        self.limit = limit
        self.events: list[Event] = list(map(tuple, events))
        self.partials: list[list[int]] = partials
        self.dropped = 0
        self._soonest = _NEVER  # nothing is over before this time, or it is not known

    def to_bytes(self) -> bytes | None:
        """Return the state as bytes, None if there is none."""
        if not self.partials:
            return None
        self._drop_unused_events()
        return orjson.dumps((self.events, self.partials))

    @property
    def wake_ms(self) -> int:
        """When ``settle`` has something to do: something pending may match then, or nothing is alive after it."""
        whole = self.program.length
        pending = [p[_UNTIL] for p in self.partials if p[_TAKEN] == whole]
        return min(pending) if pending else max(p[_UNTIL] for p in self.partials)

    def take(self, event: Event) -> list[Match]:
        """Look at the next event: the matches that are certain by now, in order."""
        matches = self.advance_to(event[0])
        done = self._advance(event)
        if done:
            matches += self._complete(done)
            if self.program.skip is Skip.PAST_LAST:
                self.partials = []
                return matches
        if event[3] & BEGINS:
            self._begin(event)
        return matches

    def advance_to(self, before_ms: int) -> list[Match]:
        """Drop expired partials and match those pending until before this time; no event before it will come."""
        if before_ms <= self._soonest or not self.partials:
            return []
        whole = self.program.length
        self.partials = [p for p in self.partials if p[_UNTIL] >= before_ms or p[_TAKEN] == whole]
        matches = []
        while due := [p for p in self.partials if p[_UNTIL] < before_ms]:
            matches.append(self._quiet(due))
        self._soonest = min((p[_UNTIL] for p in self.partials), default=before_ms)
        return matches

    def _quiet(self, due: Sequence[list[int]]) -> Match:
        """Return the first match of pending partials after their quiet time, and drop the partials that it discards."""
        until_ms, last, _, one = min((p[_UNTIL], self._event_indexes(p)[-1], p[_FIRST], p) for p in due)
        match = Match([self.events[i] for i in self._event_indexes(one)], until_ms)
        past_last = self.program.skip is Skip.PAST_LAST
        self.partials = [p for p in self.partials if p is not one and not (past_last and p[_FIRST] <= last)]
        return match

    def _advance(self, event: Event) -> list[list[int]]:
        """Show the event to every partial; remove and return those that it completes."""
        ms, roles, program = event[0], event[3], self.program
        done, kept, taken_by = [], [], 0
        for partial in self.partials:
            taken = partial[_TAKEN]
            if roles & program.ends[taken]:
                continue
            if taken < program.length and roles & program.awaits[taken]:
                taken_by += 1
                if self._take(partial, ms):
                    done.append(partial)
                    continue
            kept.append(partial)
        self.partials = kept
        if taken_by:
            self.events.append(event)
        return done

    def _take(self, partial: list[int], ms: int) -> bool:
        """Take one more event; return whether that completes the match."""
        program = self.program
        partial[_TAKEN] += 1
        taken = partial[_TAKEN]
        if taken == program.length:
            if program.quiet_ms is None:
                return True
            self._set_deadline(partial, ms + program.quiet_ms)
        elif program.limit_ms[taken] != UNCHANGED:
            first_ms = self.events[partial[_FIRST]][0]
            self._set_deadline(partial, min(first_ms + program.span_ms, ms + program.limit_ms[taken]))
        return False

    def _set_deadline(self, partial: list[int], until_ms: int) -> None:
        partial[_UNTIL] = until_ms
        self._soonest = min(self._soonest, until_ms)

    def _complete(self, done: Sequence[list[int]]) -> list[Match]:
        """Return the matches of partials that the last event completed."""
        if self.program.skip is Skip.PAST_LAST:
            done = done[:1]
        return [
            Match(events, events[-1][0]) for events in ([self.events[i] for i in self._event_indexes(p)] for p in done)
        ]

    def _begin(self, event: Event) -> None:
        if len(self.partials) >= self.limit:
            del self.partials[0]
            self.dropped += 1
        if not self.partials:
            self.events = []
        if not self.events or self.events[-1] is not event:
            self.events.append(event)
        ms, program = event[0], self.program
        wait_ms = min(program.span_ms, program.limit_ms[1]) if program.length > 1 else program.quiet_ms
        assert wait_ms is not None, "one event without anything after it is no sequence"
        partial = [len(self.events) - 1, 1, 0]
        self._set_deadline(partial, ms + wait_ms)
        self.partials.append(partial)

    def _event_indexes(self, partial: Sequence[int]) -> list[int]:
        """Return the places of a partial's events."""
        awaits, taken = self.program.awaits, partial[_TAKEN]
        place = partial[_FIRST]
        places = [place]
        while len(places) < taken:
            place += 1
            if self.events[place][3] & awaits[len(places)]:
                places.append(place)
        return places

    def _drop_unused_events(self) -> None:
        """Forget events that no partial holds: those before the first one, and the others where they may be many."""
        if len(self.events) > sum(p[_TAKEN] for p in self.partials):
            used = sorted({place for p in self.partials for place in self._event_indexes(p)})
        elif first := min(p[_FIRST] for p in self.partials):
            used = list(range(first, len(self.events)))
        else:
            return
        now = {place: i for i, place in enumerate(used)}
        self.events = [self.events[place] for place in used]
        for partial in self.partials:
            partial[_FIRST] = now[partial[_FIRST]]
