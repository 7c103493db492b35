"""Why a rule fired, or why it did not: for an event, or for a key over the events that count.

Everything is computed from the events that are handed in, by the code that evaluates rules in production: the kernel
says what fires, the rule's group what its windows held, the naive evaluator what each clause was. What is no condition
(a paused rule, a late event) is somebody else's knowledge and comes as ``Circumstance``.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import orjson
import polars as pl

from rulecore import lang
from rulecore.compiled import CompiledRule
from rulecore.explain import Clause, Truth, explain_condition
from rulecore.explain_windows import WindowStory, around, window_stories
from rulecore.firing import Origin
from rulecore.kinds import Step
from rulecore.lang import Expr, ListType, Scope
from rulecore.lang.compile import to_polars
from rulecore.lists.content import ListContent
from rulecore.lists.past import over_columns
from rulecore.lists.plain import plain
from rulecore.lists.store import ListStore
from rulecore.model import Kind
from rulecore.yamldoc import Json
from streamcore.position import PARTITIONS_PER_TOPIC
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.watermark import NO_WATERMARK

MAX_EVENTS = 20  # that are shown


@dataclass(frozen=True, slots=True)
class Circumstance:
    """A reason that is no condition. ``decisive``: with it the rule cannot have fired, whatever its conditions say."""

    name: str
    said: str
    decisive: bool = True


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: about the event in this row of the frame, or about this time (epoch ms), or about the latest.

    ``closing_ms``: how far event time has come by now; windows that end before it are over.
    """

    row: int | None = None
    at_ms: int | None = None
    closing_ms: int = NO_WATERMARK


@dataclass(frozen=True, slots=True)
class EventStory:
    """An event, its columns as logical values, and the rule's conditions on it by name (``where``, ``step ...``)."""

    origin: Origin
    values: Mapping[str, object]
    conditions: Mapping[str, Clause]


@dataclass(frozen=True, slots=True)
class Refusal:
    """How many of the events did not satisfy this clause of ``where``."""

    clause: str
    events: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """``alerts`` are what the kernel gives over all the events, in order: the JSON objects of the alerts lane.
    ``asked``: those of them that answer the question.

    ``event``: the one in question. ``events``: those of the key that satisfied a condition, the latest of them.
    ``looked_at`` and ``satisfied``: events of the key, and those that satisfied ``where`` (or any condition).
    """

    rule: CompiledRule
    fired: bool
    verdict: str
    alerts: tuple[Mapping[str, Json], ...]
    asked: tuple[Mapping[str, Json], ...] = ()
    event: EventStory | None = None
    events: tuple[EventStory, ...] = ()
    windows: tuple[WindowStory, ...] = ()
    looked_at: int = 0
    satisfied: int = 0
    refused: tuple[Refusal, ...] = ()


def explain_rule(
    rule: CompiledRule,
    schema: StreamSchema,
    topic: str,
    events: pl.DataFrame,
    question: Question,
    support: Sequence[CompiledRule] = (),
    lists: ListStore | None = None,
) -> Explanation:
    """``events``: of a rule per event the one in question; else the key's, in order of arrival (physical columns).

    ``support``: rules whose scores the rule adds. ``lists``: what rules ask, as of the latest event's time.
    ``suppress`` and ``then.alert`` are left aside: they are circumstances.
    """
    lists = lists or ListStore.empty()
    alerts = recomputed(rule, schema, topic, events, question.closing_ms, support, lists)
    own = conditions_of(rule, schema, lists.types())
    conditions = own | _signals(schema, support, lists.types())
    look = _Look(schema, topic, events, conditions, lists.contents(clock_of(events)))
    event = None if question.row is None else look.event(question.row)
    rows = look.held()
    stories = window_stories(rule, schema, events, topic, lists) if rule.kind is Kind.WINDOW else []
    windows = tuple(around(stories, question.row, question.at_ms))
    mine = [alert for alert in alerts if _asked(alert, question, event)]
    return Explanation(
        rule=rule,
        fired=bool(mine),
        verdict=_verdict(rule, event, alerts, mine, windows),
        alerts=tuple(alerts),
        asked=tuple(mine),
        event=event,
        events=tuple(look.event(row) for row in _near(rows, question.row)),
        windows=windows,
        looked_at=events.height,
        satisfied=len(rows),
        refused=look.refused(own["where"]) if not rows and "where" in own else (),
    )


def conditions_of(
    rule: CompiledRule, schema: StreamSchema, lists: Mapping[str, ListType] | None = None
) -> dict[str, Expr]:
    """The rule's conditions on single events as its author wrote them, by name."""
    own = rule.rule
    texts: dict[str, str] = {} if own.where is None else {"where": own.where}
    for number, item in enumerate(own.sequence or ()):
        name = f"step {item.step}" if isinstance(item, Step) else f"without after item {number}"
        texts[name] = item.where if isinstance(item, Step) else item.without
    if own.expect is not None:
        texts["expect"] = own.expect.where
    scope = replace(Scope.of_event(schema), lists=lists or {})
    return {name: lang.parse(text, scope, field="where") for name, text in texts.items()}


def _signals(schema: StreamSchema, support: Sequence[CompiledRule], lists: Mapping[str, ListType]) -> dict[str, Expr]:
    """Conditions of the rules per event whose scores are added."""
    own = [rule for rule in support if rule.kind is Kind.EVENT and rule.rule.on == schema.name]
    return {f"signal {rule.rule.id}": conditions_of(rule, schema, lists)["where"] for rule in own}


def recomputed(
    rule: CompiledRule,
    schema: StreamSchema,
    topic: str,
    events: pl.DataFrame,
    closing_ms: int = NO_WATERMARK,
    support: Sequence[CompiledRule] = (),
    lists: ListStore | None = None,
) -> list[Mapping[str, Json]]:
    """The alerts of the rule over these events, as if it were live and suppressed none; identities of production."""
    found: list[bytes] = []
    if events.height:
        from rulecore.backtest_run import RuleRun  # the kernel, which few questions need

        run = RuleRun(schema, topic, [_outspoken(rule)], support, lists=lists, alerts=found.append)
        run.step(events, clock_of(events), NO_WATERMARK, closing_ms)
    return [orjson.loads(alert) for alert in found]


def clock_of(events: pl.DataFrame) -> int:
    """The time of the latest event, for what lists held."""
    return int(events[EVENT_MS].max()) if events.height else 0  # type: ignore[arg-type]


def _outspoken(rule: CompiledRule) -> CompiledRule:
    """The rule without a silence after an alert. One per event keeps the route that ``suppress`` gave it."""
    own = rule.rule
    short = own.suppress.model_copy(update={"duration": 1}) if own.suppress and rule.kind is Kind.EVENT else None
    then = own.then.model_copy(update={"alert": True})
    return replace(rule, rule=own.model_copy(update={"suppress": short, "then": then}))


def _near(rows: Sequence[int], row: int | None) -> Sequence[int]:
    """The latest, or those up to the one in question."""
    before = [n for n in rows if row is None or n <= row]
    return before[-MAX_EVENTS:]


@dataclass(frozen=True, slots=True)
class _Look:
    """Conditions at events, one by one and all together."""

    schema: StreamSchema
    topic: str
    events: pl.DataFrame
    conditions: Mapping[str, Expr]
    contents: Mapping[str, ListContent]

    def event(self, row: int) -> EventStory:
        """The event in a row."""
        physical = self.events.row(row, named=True)
        values: dict[str, object] = {f.name: lang.to_logical(physical[f.name], f.type) for f in self.schema.fields}
        place = physical[PARTITION] % PARTITIONS_PER_TOPIC, physical[OFFSET]
        lists = plain(self.contents)
        clauses = {name: explain_condition(expr, values, lists) for name, expr in self.conditions.items()}
        return EventStory(Origin(self.topic, *place, physical[EVENT_MS]), values, clauses)

    def held(self) -> list[int]:
        """Rows that satisfy a condition; all where there is none."""
        if not self.conditions:
            return [*range(self.events.height)]
        true = [self._true(expr) for expr in self.conditions.values()]
        return functools.reduce(operator.or_, true).arg_true().to_list()

    def refused(self, where: Expr) -> tuple[Refusal, ...]:
        """Clauses by the number of events that they refused, most first."""
        height = self.events.height
        found = [Refusal(lang.render(term), height - int(self._true(term).sum())) for term in lang.conjuncts(where)]
        return tuple(sorted((one for one in found if one.events), key=lambda one: -one.events))

    def _true(self, expr: Expr) -> pl.Series:
        frame, lifted = over_columns(self.events, expr, self.contents)
        true = to_polars(lifted).fill_null(value=False) & pl.int_range(pl.len()).is_not_null()
        return frame.select(true.alias(lang.fingerprint(expr)))[lang.fingerprint(expr)]


def _asked(alert: Mapping[str, Json], question: Question, event: EventStory | None) -> bool:
    """Whether an alert answers the question."""
    if event is not None:
        if alert["source"] is not None:
            return alert["source"] == event.origin.place
        window = alert["window"]
        assert isinstance(window, dict)
        return bool(window["start_ms"] <= event.origin.event_ms < window["end_ms"])  # type: ignore[operator]
    if question.at_ms is None:
        return True
    window = alert["window"]
    if not isinstance(window, dict):
        return alert["event_time_ms"] == question.at_ms
    return bool(window["start_ms"] <= question.at_ms <= window["end_ms"])  # type: ignore[operator]


def _verdict(
    rule: CompiledRule,
    event: EventStory | None,
    alerts: Sequence[Mapping[str, Json]],
    mine: Sequence[Mapping[str, Json]],
    windows: Sequence[WindowStory],
) -> str:
    """One sentence."""
    if mine:
        return "fires for this event" if rule.kind is Kind.EVENT else f"fires: {_count(len(mine), 'alert')}"
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


def alerts_in(window: WindowStory, alerts: Sequence[Mapping[str, Json]]) -> list[Mapping[str, Json]]:
    """Those of this window: of the same beginning, for a session's end moves."""
    found = [(alert, alert["window"]) for alert in alerts]
    return [alert for alert, span in found if isinstance(span, dict) and span["start_ms"] == window.start_ms]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
