"""The automaton of one sequence and one key: its partial matches (partials), over events that they share.

A partial is three numbers: the index of its first event, how many events it has taken, and its deadline. The events
that it has taken are computed from these for a match only: a partial takes every event that it waits for, so those are
among the shared events. Otherwise a rule with ``times: 1000`` would hold a thousand lists of a thousand events.

The result for events in order does not depend on how they are divided into calls, nor on calls of ``advance_to`` in
between, provided that no event before its time follows. The module knows no rules, frames and tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from rulecore.compile.sequence_program import BEGINS, UNCHANGED, SequenceProgram
from rulecore.documents.rule_kinds import Skip
from rulecore.language.types import Value
from streamcore.compact import compact

#: Event time, partition, offset, roles for the sequence, captured values by column.
Event = tuple[int, int, int, int, dict[str, Value]]

_FIRST, _TAKEN, _UNTIL = range(3)
_NEVER = -(2**63)


@dataclass(frozen=True, slots=True)
class Match:
    """A match: its events in order, and its time ``end_ms``: that of the last event, or the end of the quiet time."""

    events: Sequence[Event]
    end_ms: int


class MatchSet:
    """The partials of one sequence and key, in order of their first events.

    A partial is a list: the index of its first event in ``events``, the number of events taken, and its deadline in
    epoch milliseconds. A *pending* partial has taken all events, and matches at its deadline, the end of its quiet time
    (``without`` after the last step), unless an event ends it before. ``dropped``: partials dropped by the limit.
    """

    def __init__(self, program: SequenceProgram, limit: int, stored: bytes | None = None) -> None:
        """``limit``: most partials kept. ``stored``: the result of an earlier ``to_bytes``."""
        events, partials = orjson.loads(stored) if stored else ((), [])
        self.program = program
        self.limit = limit
        self.events: list[Event] = list(map(tuple, events))
        self.partials: list[list[int]] = partials
        self.dropped = 0
        self._soonest = _NEVER  # no deadline is before this time; _NEVER: not computed yet

    def to_bytes(self) -> bytes | None:
        """Return the state as bytes, None if there is none."""
        if not self.partials:
            return None
        self._drop_unused_events()
        return compact(orjson.dumps((self.events, self.partials)))

    @property
    def wake_ms(self) -> int:
        """The time to which ``advance_to`` must go even without an event: a pending partial matches or all expire."""
        length = self.program.length
        pending = [p[_UNTIL] for p in self.partials if p[_TAKEN] == length]
        return min(pending) if pending else max(p[_UNTIL] for p in self.partials)

    def take(self, event: Event) -> list[Match]:
        """Take the next event, and return the matches that are certain then, in order."""
        matches = self.advance_to(event[0])
        completed = self._advance(event)
        if completed:
            matches += self._complete(completed)
            if self.program.skip is Skip.PAST_LAST:
                self.partials = []
                return matches
        if event[3] & BEGINS:
            self._begin(event)
        return matches

    def advance_to(self, before_ms: int) -> list[Match]:
        """Return the matches of partials whose quiet time ends before this time, and drop expired partials.

        No event before this time may follow.
        """
        if before_ms <= self._soonest or not self.partials:
            return []
        length = self.program.length
        self.partials = [p for p in self.partials if p[_UNTIL] >= before_ms or p[_TAKEN] == length]
        matches = []
        while due := [p for p in self.partials if p[_UNTIL] < before_ms]:
            matches.append(self._complete_pending(due))
        self._soonest = min((p[_UNTIL] for p in self.partials), default=before_ms)
        return matches

    def _complete_pending(self, due: Sequence[list[int]]) -> Match:
        """Return the first match of the pending partials ``due``, and drop the partials that this match discards."""
        until_ms, last, _, matched = min((p[_UNTIL], self._event_indexes(p)[-1], p[_FIRST], p) for p in due)
        match = Match([self.events[i] for i in self._event_indexes(matched)], until_ms)
        past_last = self.program.skip is Skip.PAST_LAST
        self.partials = [p for p in self.partials if p is not matched and not (past_last and p[_FIRST] <= last)]
        return match

    def _advance(self, event: Event) -> list[list[int]]:
        """Let every partial take the event or be ended by it; remove and return the partials that it completes."""
        ms, roles, program = event[0], event[3], self.program
        completed, kept, taken_by = [], [], 0
        for partial in self.partials:
            taken = partial[_TAKEN]
            if roles & program.ends[taken]:
                continue
            if taken < program.length and roles & program.awaits[taken]:
                taken_by += 1
                if self._take(partial, ms):
                    completed.append(partial)
                    continue
            kept.append(partial)
        self.partials = kept
        if taken_by:
            self.events.append(event)
        return completed

    def _take(self, partial: list[int], ms: int) -> bool:
        """Count one more event of a partial; return whether that completes a match."""
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

    def _complete(self, completed: Sequence[list[int]]) -> list[Match]:
        """Return the matches of the partials that the last event completed."""
        if self.program.skip is Skip.PAST_LAST:
            completed = completed[:1]
        return [
            Match(events, events[-1][0])
            for events in ([self.events[i] for i in self._event_indexes(p)] for p in completed)
        ]

    def _begin(self, event: Event) -> None:
        """Begin a partial with this event; at the limit, drop the oldest partial."""
        if len(self.partials) >= self.limit:
            del self.partials[0]
            self.dropped += 1
        if not self.partials:
            self.events = []
        if not self.events or self.events[-1] is not event:
            self.events.append(event)
        ms, program = event[0], self.program
        wait_ms = min(program.span_ms, program.limit_ms[1]) if program.length > 1 else program.quiet_ms
        assert wait_ms is not None, "a sequence of one event has a quiet time"
        partial = [len(self.events) - 1, 1, 0]
        self._set_deadline(partial, ms + wait_ms)
        self.partials.append(partial)

    def _event_indexes(self, partial: Sequence[int]) -> list[int]:
        """Return the indexes in ``events`` of a partial's events."""
        awaits, taken = self.program.awaits, partial[_TAKEN]
        index = partial[_FIRST]
        indexes = [index]
        while len(indexes) < taken:
            index += 1
            if self.events[index][3] & awaits[len(indexes)]:
                indexes.append(index)
        return indexes

    def _drop_unused_events(self) -> None:
        """Drop the events that no partial holds: those before the first one, and the others if there may be many."""
        if len(self.events) > sum(p[_TAKEN] for p in self.partials):
            used = sorted({index for p in self.partials for index in self._event_indexes(p)})
        elif first := min(p[_FIRST] for p in self.partials):
            used = list(range(first, len(self.events)))
        else:
            return
        new_indexes = {index: i for i, index in enumerate(used)}
        self.events = [self.events[index] for index in used]
        for partial in self.partials:
            partial[_FIRST] = new_indexes[partial[_FIRST]]
