"""Why a rule fired, or why it did not: for an event, or for a key over the events that count.

Everything is computed from the events that are handed in, by the code that evaluates rules in production: the kernel
says what fires, the rule's group what its windows held, the naive evaluator what each clause was. What is no condition
(a paused rule, a late event) is somebody else's knowledge and comes as ``Circumstance``.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson
import polars as pl

from rulecore import lang
from rulecore.as_live import outspoken
from rulecore.compiled import CompiledRule
from rulecore.explain_event import conditions_of, story_of
from rulecore.explain_windows import windows_asked
from rulecore.explanation import EventStory, Explanation, Question, Refusal, explanation_of
from rulecore.lang import Expr, ListType
from rulecore.lang.compile import to_polars
from rulecore.lists.content import ListContent
from rulecore.lists.past import over_columns
from rulecore.lists.plain import plain
from rulecore.lists.store import ListStore
from rulecore.model import Kind
from rulecore.yamldoc import Json
from streamcore.schema import EVENT_MS, StreamSchema
from streamcore.watermark import NO_WATERMARK


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
    windows = windows_asked(rule, schema, events, topic, question, lists) if rule.kind is Kind.WINDOW else []
    return explanation_of(rule, question, look, alerts, windows, own.get("where"))


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

        run = RuleRun(schema, topic, [outspoken(rule)], support, lists=lists, alerts=found.append)
        run.step(events, clock_of(events), NO_WATERMARK, closing_ms)
    return [orjson.loads(alert) for alert in found]


def clock_of(events: pl.DataFrame) -> int:
    """The time of the latest event, for what lists held."""
    return int(events[EVENT_MS].max()) if events.height else 0  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _Look:
    """Conditions at events in columns (``explanation.Look``)."""

    schema: StreamSchema
    topic: str
    events: pl.DataFrame
    conditions: Mapping[str, Expr]
    contents: Mapping[str, ListContent]

    def __len__(self) -> int:
        return self.events.height

    def event(self, row: int) -> EventStory:
        physical = self.events.row(row, named=True)
        return story_of(physical, self.schema, self.topic, self.conditions, plain(self.contents))

    def held(self) -> Sequence[int]:
        if not self.conditions:
            return [*range(self.events.height)]
        true = [self._true(expr) for expr in self.conditions.values()]
        return functools.reduce(operator.or_, true).arg_true().to_list()

    def refused(self, where: Expr) -> Sequence[Refusal]:
        height = self.events.height
        found = [Refusal(lang.render(term), height - int(self._true(term).sum())) for term in lang.conjuncts(where)]
        return sorted((one for one in found if one.events), key=lambda one: -one.events)

    def _true(self, expr: Expr) -> pl.Series:
        frame, lifted = over_columns(self.events, expr, self.contents)
        true = to_polars(lifted).fill_null(value=False) & pl.int_range(pl.len()).is_not_null()
        return frame.select(true.alias(lang.fingerprint(expr)))[lang.fingerprint(expr)]
