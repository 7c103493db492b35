"""Why a rule per event fired or did not, one event at a time and in plain Python: for a few events, without columns.

Promises: the result equals that of ``explain_rule`` for the same rule and events in order of time. The reference
evaluator decides, for it defines the language; an alert is built by the code of production. Refuses rules with state,
and those that ask lists: these need columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import orjson

from rulecore import language as lang
from rulecore.alerts.alerts import AlertContext, event_alert
from rulecore.compile.overrides import as_live, without_suppression
from rulecore.compile.rule import CompiledRule
from rulecore.documents.rule import RuleKind
from rulecore.documents.rule_kinds import SequenceStep
from rulecore.documents.yaml_reader import Json
from rulecore.explain.condition import explain_condition
from rulecore.explain.explanation import EventTrace, ExplainQuestion, Explanation, RejectedClause, build_explanation
from rulecore.firing import Origin
from rulecore.language import Expr, ListType, Scope
from rulecore.language.types import Value
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.wire.lanes import ALERTS

#: An event: physical values by column, those of the engine too.
Row = Mapping[str, Value]
#: By name of a list: its entries and their values, all of them logical.
Lists = Mapping[str, Mapping[Value, Value]]

_EPOCH = 1  # of a rule set that took this rule and nothing else


def is_plain(rule: CompiledRule) -> bool:
    """Return whether one event is enough to explain the rule."""
    return rule.kind is RuleKind.EVENT and not rule.lists


def explain_event(
    rule: CompiledRule, schema: StreamSchema, topic: str, rows: Sequence[Row], question: ExplainQuestion
) -> Explanation:
    """Explain a rule per event. ``rows``: events by arrival. Raise ``ValueError`` for a rule that is not plain.

    ``suppress`` and ``then.alert`` are left aside: they are reasons of their own.
    """
    if not is_plain(rule):
        raise ValueError(f"rule {rule.rule.id} needs more than its events")
    where = parse_conditions(rule, schema)["where"]
    evaluation = _ScalarEvaluation(schema, topic, rows, where)
    unsuppressed = without_suppression(rule)
    live = replace(unsuppressed, rule=as_live(unsuppressed.rule))
    alerts = [_alert(live, schema, rows[n], evaluation.origin(n)) for n in evaluation.satisfied_rows()]
    return build_explanation(rule, question, evaluation, alerts, where=where)


def _alert(rule: CompiledRule, schema: StreamSchema, row: Row, origin: Origin) -> Mapping[str, Json]:
    context = AlertContext(ALERTS, _EPOCH, None if rule.rule.suppress is None else 0)
    found: Mapping[str, Json] = orjson.loads(event_alert(rule, schema, row, origin, context).value or b"{}")
    return found


def parse_conditions(
    rule: CompiledRule, schema: StreamSchema, lists: Mapping[str, ListType] | None = None
) -> dict[str, Expr]:
    """Return the rule's conditions on single events as its author wrote them, by name."""
    own = rule.rule
    texts: dict[str, str] = {} if own.where is None else {"where": own.where}
    for number, item in enumerate(own.sequence or ()):
        name = f"step {item.step}" if isinstance(item, SequenceStep) else f"without after item {number}"
        texts[name] = item.where if isinstance(item, SequenceStep) else item.without
    if own.expect is not None:
        texts["expect"] = own.expect.where
    scope = replace(Scope.of_event(schema), lists=lists or {})
    return {name: lang.parse(text, scope, field="where") for name, text in texts.items()}


def trace_event(
    row: Row, schema: StreamSchema, topic: str, conditions: Mapping[str, Expr], lists: Lists | None = None
) -> EventTrace:
    """Trace an event: each condition with its clauses."""
    values: dict[str, object] = {f.name: lang.to_logical(row[f.name], f.type) for f in schema.fields}
    clauses = {name: explain_condition(expr, values, lists) for name, expr in conditions.items()}
    return EventTrace(event_origin(row, topic), values, clauses)


def event_origin(row: Row, topic: str) -> Origin:
    """Return the position of an event."""
    partition, offset, event_ms = row[PARTITION], row[OFFSET], row[EVENT_MS]
    assert isinstance(partition, int)
    assert isinstance(offset, int)
    assert isinstance(event_ms, int)
    return Origin(topic, partition % PARTITIONS_PER_TOPIC, offset, event_ms)


@dataclass(frozen=True, slots=True)
class _ScalarEvaluation:
    """The condition at each event (``explanation.Look``)."""

    schema: StreamSchema
    topic: str
    rows: Sequence[Row]
    where: Expr

    def __len__(self) -> int:
        return len(self.rows)

    def origin(self, row: int) -> Origin:
        return event_origin(self.rows[row], self.topic)

    def event(self, row: int) -> EventTrace:
        return trace_event(self.rows[row], self.schema, self.topic, {"where": self.where})

    def satisfied_rows(self) -> Sequence[int]:
        return [n for n, true in enumerate(self._true(self.where)) if true]

    def rejected_clauses(self, where: Expr) -> Sequence[RejectedClause]:
        counts = [(term, self._true(term).count(False)) for term in lang.conjuncts(where)]
        return sorted((RejectedClause(lang.render(t), n) for t, n in counts if n), key=lambda one: -one.events)

    def _true(self, expr: Expr) -> list[bool]:
        fields = self.schema.fields
        values = [{f.name: lang.to_logical(row[f.name], f.type) for f in fields} for row in self.rows]
        return [lang.evaluate(expr, one) is True for one in values]
