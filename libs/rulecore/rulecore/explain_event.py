"""Why a rule per event fired or did not, one event at a time and in plain Python: for a few events, without columns.

Promises: what ``explain_rule`` says of the same rule and events in order of time. The naive evaluator says what holds,
for it says what the language means; an alert is made by whoever makes them in production. Refuses rules with state, and
those that ask lists: what those need is in columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import orjson

from rulecore import lang
from rulecore.alerts import Given, event_alert
from rulecore.as_live import as_live, outspoken
from rulecore.compiled import CompiledRule
from rulecore.explain import explain_condition
from rulecore.explanation import EventStory, Explanation, Question, Refusal, explanation_of
from rulecore.firing import Origin
from rulecore.kinds import Step
from rulecore.lang import Expr, ListType, Scope
from rulecore.lang.types import Value
from rulecore.model import Kind
from rulecore.yamldoc import Json
from streamcore.lanes import ALERTS
from streamcore.position import PARTITIONS_PER_TOPIC
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema

#: An event: physical values by column, those of the engine too.
Row = Mapping[str, Value]
#: By name of a list: its entries and their values, all of them logical.
Lists = Mapping[str, Mapping[Value, Value]]

_EPOCH = 1  # of a rule set that took this rule and nothing else


def is_plain(rule: CompiledRule) -> bool:
    """Whether one event says all."""
    return rule.kind is Kind.EVENT and not rule.lists


def explain_event(
    rule: CompiledRule, schema: StreamSchema, topic: str, rows: Sequence[Row], question: Question
) -> Explanation:
    """``rows``: events in order of arrival. ``ValueError`` for a rule that is not plain.

    ``suppress`` and ``then.alert`` are left aside: they are circumstances.
    """
    if not is_plain(rule):
        raise ValueError(f"rule {rule.rule.id} needs more than its events")
    where = conditions_of(rule, schema)["where"]
    look = _Look(schema, topic, rows, where)
    spoken = outspoken(rule)
    live = replace(spoken, rule=as_live(spoken.rule))
    alerts = [_alert(live, schema, rows[n], look.origin(n)) for n in look.held()]
    return explanation_of(rule, question, look, alerts, where=where)


def _alert(rule: CompiledRule, schema: StreamSchema, row: Row, origin: Origin) -> Mapping[str, Json]:
    given = Given(ALERTS, _EPOCH, None if rule.rule.suppress is None else 0)
    found: Mapping[str, Json] = orjson.loads(event_alert(rule, schema, row, origin, given).value or b"{}")
    return found


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


def story_of(
    row: Row, schema: StreamSchema, topic: str, conditions: Mapping[str, Expr], lists: Lists | None = None
) -> EventStory:
    """An event, and what each condition is on it."""
    values: dict[str, object] = {f.name: lang.to_logical(row[f.name], f.type) for f in schema.fields}
    clauses = {name: explain_condition(expr, values, lists) for name, expr in conditions.items()}
    return EventStory(origin_of(row, topic), values, clauses)


def origin_of(row: Row, topic: str) -> Origin:
    """Where an event lies."""
    partition, offset, event_ms = row[PARTITION], row[OFFSET], row[EVENT_MS]
    assert isinstance(partition, int)
    assert isinstance(offset, int)
    assert isinstance(event_ms, int)
    return Origin(topic, partition % PARTITIONS_PER_TOPIC, offset, event_ms)


@dataclass(frozen=True, slots=True)
class _Look:
    """The condition at each event (``explanation.Look``)."""

    schema: StreamSchema
    topic: str
    rows: Sequence[Row]
    where: Expr

    def __len__(self) -> int:
        return len(self.rows)

    def origin(self, row: int) -> Origin:
        return origin_of(self.rows[row], self.topic)

    def event(self, row: int) -> EventStory:
        return story_of(self.rows[row], self.schema, self.topic, {"where": self.where})

    def held(self) -> Sequence[int]:
        return [n for n, true in enumerate(self._true(self.where)) if true]

    def refused(self, where: Expr) -> Sequence[Refusal]:
        counts = [(term, self._true(term).count(False)) for term in lang.conjuncts(where)]
        return sorted((Refusal(lang.render(t), n) for t, n in counts if n), key=lambda one: -one.events)

    def _true(self, expr: Expr) -> list[bool]:
        fields = self.schema.fields
        values = [{f.name: lang.to_logical(row[f.name], f.type) for f in fields} for row in self.rows]
        return [lang.evaluate(expr, one) is True for one in values]
