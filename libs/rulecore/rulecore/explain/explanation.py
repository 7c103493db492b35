"""An explanation as a value, and how one is built from the results of an evaluation.

Promises: the same answers give the same explanation, however the rule was evaluated: one event at a time
(``explain_event``) or the kernel over columns (``explain_rule``). Refuses to evaluate anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rulecore.compile.rule import CompiledRule
from rulecore.documents.rule import RuleKind
from rulecore.documents.yaml_reader import Json
from rulecore.explain.condition import Clause, ObservedValue, Truth
from rulecore.firing import Origin
from rulecore.language import Expr
from streamcore.watermark import NO_WATERMARK

MAX_EVENTS = 20  # that are shown
#: Kinds of rules of whose alerts the window holds its end.
_WITH_END = (RuleKind.SCORE.value, RuleKind.SEQUENCE.value)


@dataclass(frozen=True, slots=True)
class RuleReason:
    """A reason that is no condition. ``decisive``: with it the rule cannot have fired, whatever its conditions are."""

    name: str
    text: str
    decisive: bool = True


@dataclass(frozen=True, slots=True)
class ExplainQuestion:
    """The subject of the question: the event in this row of the frame, this time (epoch ms), or the latest event.

    ``closing_ms``: how far event time has come by now; windows that end before it are over.
    """

    row: int | None = None
    at_ms: int | None = None
    closing_ms: int = NO_WATERMARK


@dataclass(frozen=True, slots=True)
class EventTrace:
    """An event, its columns as logical values, and the rule's conditions on it by name (``where``, ``step ...``)."""

    origin: Origin
    values: Mapping[str, object]
    conditions: Mapping[str, Clause]


@dataclass(frozen=True, slots=True)
class RejectedClause:
    """How many of the events did not satisfy this clause of ``where``."""

    clause: str
    events: int


@dataclass(frozen=True, slots=True)
class WindowTrace:
    """A window as it was after an event, or at its end (``row`` None). ``row`` counts the frame that was given."""

    start_ms: int
    end_ms: int
    row: int | None
    time_ms: int
    seen: tuple[ObservedValue, ...]
    having: Clause


@dataclass(frozen=True, slots=True)
class Explanation:
    """``alerts`` are the output of the kernel for all the events, in order: the JSON objects of the alerts lane.
    ``asked``: those of them that answer the question.

    ``event``: the one in question. ``events``: those of the key that satisfied a condition, the latest of them.
    ``looked_at`` and ``satisfied``: events of the key, and those that satisfied ``where`` (or any condition).
    """

    rule: CompiledRule
    fired: bool
    verdict: str
    alerts: tuple[Mapping[str, Json], ...]
    asked: tuple[Mapping[str, Json], ...] = ()
    event: EventTrace | None = None
    events: tuple[EventTrace, ...] = ()
    windows: tuple[WindowTrace, ...] = ()
    looked_at: int = 0
    satisfied: int = 0
    refused: tuple[RejectedClause, ...] = ()


class RuleEvaluation(Protocol):
    """The events that count, in order of arrival, and the rule's conditions on them."""

    def __len__(self) -> int:
        """Return the number of events."""
        ...

    def event(self, row: int) -> EventTrace:
        """Return the trace of the event in a row."""
        ...

    def satisfied_rows(self) -> Sequence[int]:
        """Return the rows that satisfy a condition; all where there is none."""
        ...

    def rejected_clauses(self, where: Expr) -> Sequence[RejectedClause]:
        """Return the clauses by the number of events that they refused, most first, without those of none."""
        ...


def build_explanation(
    rule: CompiledRule,
    question: ExplainQuestion,
    evaluation: RuleEvaluation,
    alerts: Sequence[Mapping[str, Json]],
    windows: Sequence[WindowTrace] = (),
    where: Expr | None = None,
) -> Explanation:
    """``alerts``: of all the events. ``windows``: those that the question is about. ``where``: as it was written."""
    event = None if question.row is None else evaluation.event(question.row)
    rows = evaluation.satisfied_rows()
    mine = [alert for alert in alerts if _answers(alert, question, event)]
    return Explanation(
        rule=rule,
        fired=bool(mine),
        verdict=_verdict(rule, event, alerts, mine, windows),
        alerts=tuple(alerts),
        asked=tuple(mine),
        event=event,
        events=tuple(evaluation.event(row) for row in _near(rows, question.row)),
        windows=tuple(windows),
        looked_at=len(evaluation),
        satisfied=len(rows),
        refused=tuple(evaluation.rejected_clauses(where)) if not rows and where is not None else (),
    )


def _near(rows: Sequence[int], row: int | None) -> Sequence[int]:
    """Return the latest, or those up to the one in question."""
    before = [n for n in rows if row is None or n <= row]
    return before[-MAX_EVENTS:]


def _answers(alert: Mapping[str, Json], question: ExplainQuestion, event: EventTrace | None) -> bool:
    """Return whether an alert answers the question."""
    if event is not None:
        if alert["source"] is not None:
            return alert["source"] == event.origin.place
        return _spans(alert, event.origin.event_ms)
    if question.at_ms is None:
        return True
    window = alert["window"]
    if not isinstance(window, dict):
        return alert["event_time_ms"] == question.at_ms
    return bool(window["start_ms"] <= question.at_ms <= window["end_ms"])  # type: ignore[operator]


def _spans(alert: Mapping[str, Json], at_ms: int) -> bool:
    """Return whether a time lies in the window of an alert.

    A score's span ends with its latest signal, that one included, and a sequence's goes from its first event to its
    last; others are without their end.
    """
    window = alert["window"]
    assert isinstance(window, dict)
    start_ms, end_ms, kind = int(str(window["start_ms"])), int(str(window["end_ms"])), alert["kind"]
    begun = start_ms < at_ms if kind == RuleKind.SCORE.value else start_ms <= at_ms
    return begun and (at_ms <= end_ms if kind in _WITH_END else at_ms < end_ms)


def _verdict(
    rule: CompiledRule,
    event: EventTrace | None,
    alerts: Sequence[Mapping[str, Json]],
    mine: Sequence[Mapping[str, Json]],
    windows: Sequence[WindowTrace],
) -> str:
    """Return the verdict as one sentence."""
    if mine:
        return "fires for this event" if rule.kind is RuleKind.EVENT else f"fires: {_count(len(mine), 'alert')}"
    if event is not None and (own := event.conditions.get("where")) is not None and own.truth is not Truth.TRUE:
        return f"does not fire: the event does not satisfy where, which is {own.truth}"
    if windows and all(window.having.truth is Truth.TRUE for window in windows):
        if alerts_in(windows[-1], alerts):
            return "does not fire again: it had fired in this window already"
        return "does not fire yet: having is TRUE, and the window is not over"
    if windows:
        return f"does not fire: having is {windows[-1].having.truth}"
    if alerts:
        return f"does not fire {'at this event' if event else 'then'}: see its alerts over the key's events below"
    return "does not fire for these events"


def alerts_in(window: WindowTrace, alerts: Sequence[Mapping[str, Json]]) -> list[Mapping[str, Json]]:
    """Return the alerts of this window: of the same beginning, for a session's end moves."""
    found = [(alert, alert["window"]) for alert in alerts]
    return [alert for alert, span in found if isinstance(span, dict) and span["start_ms"] == window.start_ms]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
