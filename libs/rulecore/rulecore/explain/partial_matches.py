"""Traces why a sequence did not match: how far its beginnings came, how each ended, and which events came closest.

The engine of patterns takes the events of the key one by one, and what there is afterwards is compared with what there
was. The events that came closest are sought among all events of the key while a beginning waited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from rulecore.compile.rule import CompiledRule
from rulecore.documents.windows import SequenceSpan
from rulecore.explain.condition import Clause, Truth
from rulecore.explain.event import Row
from rulecore.explain.explanation import EventTrace, ExplainQuestion, PartialTrace
from rulecore.explain.sequences import SequenceTracer, Taken
from rulecore.groups.sequences.group import Chain, ReplayedMoment
from rulecore.groups.sequences.ids import required_sequence
from rulecore.lists.store import ListStore
from rulecore.streams import RuleInput
from streamcore.durations import render_duration
from streamcore.patterns.graph import StateKind
from streamcore.schema import EVENT_MS, OFFSET, PARTITION

MAX_PARTIALS: Final = 2
MAX_MISSED: Final = 2
_MAX_TRIED: Final = 500  # the events for which conditions are explained, of each beginning
_STILL: Final = "it still waits"
_OVER: Final = "its time was over"
_DISCARDED: Final = "a match that began before, or the limit of partial matches, discarded it"


@dataclass(frozen=True, slots=True)
class _Ended:
    """A beginning that ended in this state, at this time, by this event if one is given."""

    chain: Chain
    state: int
    end_ms: int
    place: tuple[int, int] | None
    how: str


def trace_partials(
    rule: CompiledRule, source: RuleInput, events: pl.DataFrame, question: ExplainQuestion, lists: ListStore
) -> tuple[PartialTrace, ...]:
    """Return the beginnings that came furthest, over the events of the key; one without events if none began.

    Of a question about an event or a time: of those that waited then, if there are any.
    """
    tracer = SequenceTracer(rule, source, events, question.closing_ms, lists)
    asked = None if question.row is None else events.row(question.row, named=True)
    asked_ms = question.at_ms if asked is None else int(asked[EVENT_MS])
    latest_ms = int(tracer.rows[-1][EVENT_MS])
    tracing = _Tracing(tracer, latest_ms, None if asked is None else (asked[PARTITION], asked[OFFSET]))
    ended = [*_find_ended(tracer.group.replay(tracer.context, latest_ms), latest_ms)]
    if asked_ms is not None:
        ended = [one for one in ended if tracing.start_ms(one) <= asked_ms <= one.end_ms] or ended
    if not ended:
        return (tracing.without_beginning(),)
    furthest = sorted(ended, key=lambda one: (one.how == _DISCARDED, -one.chain[-1][2], -len(one.chain), -one.end_ms))
    return tuple(map(tracing.trace, furthest[:MAX_PARTIALS]))


def _find_ended(moments: Iterator[ReplayedMoment], latest_ms: int) -> Iterator[_Ended]:
    """Yield the beginnings that neither matched nor went on."""
    before: Mapping[Chain, int] = {}
    for now in moments:
        matched = now.matches
        for chain, state in before.items():
            size = len(chain)
            if any(other[:size] == chain for other in (*now.partials, *matched)):
                continue
            if matched:
                yield _Ended(chain, state, now.ms, None, _DISCARDED)
            elif now.place is None:
                yield _Ended(chain, state, now.ms, None, _OVER if now.ms <= latest_ms else _STILL)
            else:
                yield _Ended(chain, state, now.ms, now.place, "")
        before = now.partials
    yield from (_Ended(chain, state, latest_ms, None, _STILL) for chain, state in before.items())


@dataclass(frozen=True, slots=True)
class _Tracing:
    """``asked``: partition and offset of the event in question."""

    tracer: SequenceTracer
    latest_ms: int
    asked: tuple[int, int] | None

    def start_ms(self, one: _Ended) -> int:
        partition, offset, _ = one.chain[0]
        return int(self.tracer.row_at[partition, offset][EVENT_MS])

    def without_beginning(self) -> PartialTrace:
        """Return the trace of a sequence that did not begin."""
        automaton = required_sequence(self.tracer.rule).automaton
        waited = self._waited_for(automaton.start)
        rows = self.tracer.rows
        missed = self._closest(rows, waited, {})
        return PartialTrace(int(rows[0][EVENT_MS]), self.latest_ms, (), waited, "no event began it", missed)

    def trace(self, one: _Ended) -> PartialTrace:
        """Return the trace of a beginning."""
        tracer = self.tracer
        events = [(tracer.steps[step], tracer.row_at[partition, offset]) for partition, offset, step in one.chain]
        taken: dict[str, list[Row]] = {}
        for step, row in events:
            taken.setdefault(step, []).append(row)
        last = events[-1][1]
        waited = self._waited_for(one.state)
        how, missed = self._how(one), tuple[EventTrace, ...]()
        if one.place is not None:
            how, missed = self._ended_by(tracer.row_at[one.place], events[-1][0], waited, taken)
        else:
            behind = [row for row in tracer.rows if _order(row) > _order(last) and row[EVENT_MS] <= one.end_ms]
            missed = self._closest(behind, waited, taken)
        end_ms = min(one.end_ms, self.latest_ms)
        return PartialTrace(self.start_ms(one), end_ms, tracer.trace_taken(events), waited, how, missed)

    def _how(self, one: _Ended) -> str:
        within = self.tracer.rule.rule.within
        if one.how != _OVER or not isinstance(within, SequenceSpan):
            return one.how
        whole = one.end_ms > self.start_ms(one) + within.span
        return f"{_OVER}: within {render_duration(within.span)}" if whole else f"{_OVER}: within of a step"

    def _waited_for(self, state: int) -> tuple[str, ...]:
        """Return the steps that may take an event next."""
        automaton = required_sequence(self.tracer.rule).automaton
        if automaton.states[state].kind is StateKind.PENDING:
            return ()
        steps = [move.step for _, move, _ in automaton.states[state].moves if move.step >= 0]
        return tuple(automaton.steps[step] for step in sorted(set(steps)))

    def _ended_by(self, row: Row, last: str, waited: Sequence[str], taken: Taken) -> tuple[str, tuple[EventTrace, ...]]:
        """Return how an event ended a beginning, and the trace of the event."""
        name = f"without after {last}"
        if name in self.tracer.conditions:
            clause = self.tracer.explain(name, row, taken)
            if clause.truth is Truth.TRUE:
                return "an event came that must not come", (self.tracer.trace(row, {name: clause}),)
        return "an event came between that nothing allows", (self._tried(row, waited, taken)[1],)

    def _closest(self, rows: Sequence[Row], waited: Sequence[str], taken: Taken) -> tuple[EventTrace, ...]:
        """Return the traces of the events that fail the fewest clauses, the latest of them, in order of time.

        Events that satisfy no clause are left out; the event in question is not.
        """
        found = []
        for number, row in enumerate(rows[-_MAX_TRIED:] if waited else ()):
            failed, trace, satisfied = self._tried(row, waited, taken)
            is_asked = (row[PARTITION], row[OFFSET]) == self.asked
            if is_asked or satisfied:
                found.append((not is_asked, failed, -number, trace))
        best = sorted(found, key=lambda one: one[:3])[:MAX_MISSED]
        return tuple(trace for *_, trace in sorted(best, key=lambda one: -one[2]))

    def _tried(self, row: Row, waited: Sequence[str], taken: Taken) -> tuple[int, EventTrace, bool]:
        """Return of the awaited step that an event comes closest to: the clauses that it fails, its trace, and whether
        it satisfies one."""
        common = {"where": self.tracer.explain("where", row, {})} if "where" in self.tracer.conditions else {}
        tried = []
        for step in waited:
            name = f"step {step}"
            clauses = {**common, name: self.tracer.explain(name, row, taken)}
            terms = [term for clause in clauses.values() for term in _terms(clause)]
            failed = sum(term.truth is not Truth.TRUE for term in terms)
            own = [term for term in _terms(clauses[name]) if term.truth is Truth.TRUE]
            tried.append((failed, clauses, bool(own)))
        failed, clauses, satisfied = min(tried, key=lambda one: one[0])
        return failed, self.tracer.trace(row, clauses), satisfied


def _terms(clause: Clause) -> Sequence[Clause]:
    return clause.parts if clause.joint == "and" else (clause,)


def _order(row: Row) -> tuple[int, int, int]:
    return row[EVENT_MS], row[PARTITION], row[OFFSET]
