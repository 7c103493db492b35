"""The explanation of a rule, and how it is built from an evaluation of the rule's conditions (``RuleEvaluation``).

There are two evaluations: one event at a time (``explain_event``), and on frames (``explain_rule``). The module itself
evaluates nothing.
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

MAX_EVENTS = 20  # most events in an explanation
#: The kinds of rules whose alerts have a window that includes its end.
_WITH_END = (RuleKind.SCORE.value, RuleKind.SEQUENCE.value, RuleKind.FEATURE.value)


@dataclass(frozen=True, slots=True)
class RuleReason:
    """A reason other than a condition. ``decisive``: the rule cannot have fired, whatever its conditions."""

    name: str
    text: str
    decisive: bool = True


@dataclass(frozen=True, slots=True)
class ExplainQuestion:
    """The subject of an explanation: the event in row ``row`` of the frame, the time ``at_ms`` (epoch ms), or
    else the latest event.

    ``closing_ms``: the watermark to assume; windows that end before it are closed. ``key``: physical values by column
    of ``group_by``, if the question is about a key; the events may have others, too, which its features count.
    """

    row: int | None = None
    at_ms: int | None = None
    closing_ms: int = NO_WATERMARK
    key: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class EventTrace:
    """An event with its logical values by column, and the rule's conditions on it by name (``where``, ``step ...``).

    ``places``: the path in the record of each column that has another one than its name.
    """

    origin: Origin
    values: Mapping[str, object]
    conditions: Mapping[str, Clause]
    places: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RejectedClause:
    """A clause of ``where``, and the number of events that do not satisfy it."""

    clause: str
    events: int


@dataclass(frozen=True, slots=True)
class WindowTrace:
    """A window just after the event in row ``row`` of the frame, or at its end (``row`` None).

    ``time_ms``: the time of that event or end. ``seen``: the values of the aggregates. ``having``: its clauses.
    """

    start_ms: int
    end_ms: int
    row: int | None
    time_ms: int
    seen: tuple[ObservedValue, ...]
    having: Clause


@dataclass(frozen=True, slots=True)
class MatchTrace:
    """A match of a sequence. ``events``: those that its steps took, each with the whole condition of its step.

    ``end_ms``: the time of the last event, or the end of a quiet time. ``timed_out``: its time was over before the end.
    """

    start_ms: int
    end_ms: int
    timed_out: bool
    events: tuple[EventTrace, ...]


@dataclass(frozen=True, slots=True)
class PartialTrace:
    """The beginning of a match of a sequence that came no further; without ``events`` none began.

    ``end_ms``: when it ended, or the time of the latest event if it waits. ``waited_for``: the steps that could have
    taken a next event; none if only a quiet time was missing. ``ended``: how it ended. ``missed``: the events that came
    closest to going on, or ended it, each with the conditions that decided.
    """

    start_ms: int
    end_ms: int
    events: tuple[EventTrace, ...]
    waited_for: tuple[str, ...]
    ended: str
    missed: tuple[EventTrace, ...]


@dataclass(frozen=True, slots=True)
class SignalTrace:
    """A match of a rule that a score adds up. ``points``: its own, or those that the score rule gives it. ``place``:
    topic, partition and offset of its event; None for one that fired at a watermark. ``alert_id``: of its alert; None
    if the rule gives none. ``counts``: whether the points are in the sum."""

    rule: str
    version: int
    points: int
    time_ms: int
    message: str
    place: Mapping[str, Json] | None
    alert_id: str | None
    counts: bool = True


@dataclass(frozen=True, slots=True)
class ScoreTrace:
    """The sum of a score rule over the signals in ``(start_ms, end_ms]``. ``signals``: the latest of them, in order of
    time; ``count``: the number of all."""

    start_ms: int
    end_ms: int
    total: int
    limit: int
    count: int
    signals: tuple[SignalTrace, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a rule. ``verdict``: one sentence.

    ``alerts``: all alerts that the events raise, as JSON objects, in order. ``in_question``: those that the question is
    about; ``fired``: whether there are any. ``event``: the event in question. ``events``: the latest events of the key
    that satisfy a condition. ``windows``: the windows that the question is about. ``matches``: those of a sequence for
    the latest alerts in question; without such alerts ``partials``, the beginnings that came furthest. ``scores``: the
    sums of a score rule at the latest alerts in question, or else at the time of the question.
    ``looked_at``: the number of events; ``satisfied``: the number of those that satisfy ``where`` (or any condition).
    ``rejected``: if none does, the clauses that events do not satisfy.
    """

    rule: CompiledRule
    fired: bool
    verdict: str
    alerts: tuple[Mapping[str, Json], ...]
    in_question: tuple[Mapping[str, Json], ...] = ()
    event: EventTrace | None = None
    events: tuple[EventTrace, ...] = ()
    windows: tuple[WindowTrace, ...] = ()
    matches: tuple[MatchTrace, ...] = ()
    partials: tuple[PartialTrace, ...] = ()
    scores: tuple[ScoreTrace, ...] = ()
    looked_at: int = 0
    satisfied: int = 0
    rejected: tuple[RejectedClause, ...] = ()


class RuleEvaluation(Protocol):
    """The rule's conditions on the given events, which are in order of arrival."""

    def __len__(self) -> int:
        """Return the number of events."""
        ...

    def event(self, row: int) -> EventTrace:
        """Return the trace of the event in a row."""
        ...

    def satisfied_rows(self) -> Sequence[int]:
        """Return the rows that satisfy a condition; all rows if the rule has none."""
        ...

    def rejected_clauses(self, where: Expr) -> Sequence[RejectedClause]:
        """Return the clauses that events do not satisfy, by the number of these events, most first."""
        ...


def build_explanation(
    rule: CompiledRule,
    question: ExplainQuestion,
    evaluation: RuleEvaluation,
    alerts: Sequence[Mapping[str, Json]],
    windows: Sequence[WindowTrace] = (),
    where: Expr | None = None,
) -> Explanation:
    """Build an explanation.

    ``alerts``: all alerts that the events raise. ``windows``: those that the question is about. ``where``: the
    condition as the author wrote it.
    """
    event = None if question.row is None else evaluation.event(question.row)
    rows = evaluation.satisfied_rows()
    in_question = [alert for alert in alerts if _is_in_question(alert, question, event)]
    return Explanation(
        rule=rule,
        fired=bool(in_question),
        verdict=_find_verdict(rule, event, alerts, in_question, windows),
        alerts=tuple(alerts),
        in_question=tuple(in_question),
        event=event,
        events=tuple(evaluation.event(row) for row in _latest_rows(rows, question.row)),
        windows=tuple(windows),
        looked_at=len(evaluation),
        satisfied=len(rows),
        rejected=tuple(evaluation.rejected_clauses(where)) if not rows and where is not None else (),
    )


def _latest_rows(rows: Sequence[int], row: int | None) -> Sequence[int]:
    """Return the last ``MAX_EVENTS`` of the rows, up to the row in question if there is one."""
    before = [n for n in rows if row is None or n <= row]
    return before[-MAX_EVENTS:]


def _is_in_question(alert: Mapping[str, Json], question: ExplainQuestion, event: EventTrace | None) -> bool:
    """Return whether the question is about this alert."""
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

    The window of a score includes its latest signal but not its start; that of a sequence includes its first and last
    event; others exclude their end.
    """
    window = alert["window"]
    assert isinstance(window, dict)
    start_ms, end_ms, kind = int(str(window["start_ms"])), int(str(window["end_ms"])), alert["kind"]
    begun = start_ms < at_ms if kind == RuleKind.SCORE.value else start_ms <= at_ms
    return begun and (at_ms <= end_ms if kind in _WITH_END else at_ms < end_ms)


def _find_verdict(
    rule: CompiledRule,
    event: EventTrace | None,
    alerts: Sequence[Mapping[str, Json]],
    in_question: Sequence[Mapping[str, Json]],
    windows: Sequence[WindowTrace],
) -> str:
    """Return the verdict. ``in_question``: the alerts that the question is about."""
    if in_question:
        if rule.kind in (RuleKind.EVENT, RuleKind.FEATURE):
            return "fires for this event"
        return f"fires: {_format_count(len(in_question), 'alert')}"
    if event is not None and (own := event.conditions.get("where")) is not None and own.truth is not Truth.TRUE:
        return f"does not fire: the event does not satisfy where, which is {own.truth}"
    if windows and all(window.having.truth is Truth.TRUE for window in windows):
        if alerts_in(windows[-1], alerts):
            return "does not fire again: it has already fired in this window"
        return "does not fire yet: having is TRUE, and the window is not over"
    if windows:
        return f"does not fire: having is {windows[-1].having.truth}"
    if alerts:
        moment = "at this event" if event else "at this time"
        return f"does not fire {moment}: see its alerts over the key's events below"
    return "does not fire for these events"


def alerts_in(window: WindowTrace, alerts: Sequence[Mapping[str, Json]]) -> list[Mapping[str, Json]]:
    """Return the alerts of this window: those with an equal start, since the end of a session moves."""
    windows = [(alert, alert["window"]) for alert in alerts]
    return [alert for alert, span in windows if isinstance(span, dict) and span["start_ms"] == window.start_ms]


def _format_count(number: int, noun: str) -> str:
    """Return the number and the noun, in the plural if needed."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
