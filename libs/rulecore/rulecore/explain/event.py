"""Explains why an event rule fired or did not, one event at a time in plain Python, without importing the kernel.

The result equals that of ``explain_rule`` for events in order of time. The reference evaluator checks the conditions;
the code of production builds the alerts. Rules with state and rules that use lists are rejected: see ``explain_rule``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from rulecore import language as lang
from rulecore.alerts.alerts import AlertContext, event_alert
from rulecore.compile.feature import CompiledFeature
from rulecore.compile.overrides import as_live, without_suppression
from rulecore.compile.rule import CompiledRule
from rulecore.compile.sequence_conditions import parse_condition, reads_steps
from rulecore.documents.rule import RuleKind
from rulecore.documents.rule_kinds import SequenceStep, StepGroup, flatten_steps
from rulecore.documents.yaml_reader import Json
from rulecore.explain.condition import explain_condition
from rulecore.explain.explanation import EventTrace, ExplainQuestion, Explanation, RejectedClause, build_explanation
from rulecore.firing import Origin
from rulecore.language import Expr, ListType, Scope
from rulecore.language.types import Value
from rulecore.streams import RuleInput
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema, Type
from streamcore.wire.lanes import ALERTS

#: An event: physical values by column, including the columns of the engine (partition, offset, event time).
Row = Mapping[str, Any]
#: By name of a list: its entries with their values, all logical.
Lists = Mapping[str, Mapping[Value, Value]]

_EPOCH = 1  # the epoch of a rule set with this rule only


def is_plain(rule: CompiledRule) -> bool:
    """Return whether the rule can be explained from the event alone: an event rule that uses no list."""
    return rule.kind is RuleKind.EVENT and not rule.lists


def explain_event(rule: CompiledRule, source: RuleInput, rows: Sequence[Row], question: ExplainQuestion) -> Explanation:
    """Explain an event rule. ``rows``: events by arrival. Raise ``ValueError`` for a rule that is not plain.

    ``suppress`` and ``then.alert`` are ignored: the caller reports them as ``RuleReason``.
    """
    if not is_plain(rule):
        raise ValueError(f"rule {rule.rule.id} needs more than its events")
    where = parse_conditions(rule, source.schema)["where"]
    evaluation = _ScalarEvaluation(source, rows, where)
    unsuppressed = without_suppression(rule)
    live = replace(unsuppressed, rule=as_live(unsuppressed.rule))
    alerts = [_alert(live, source, rows[n], evaluation.origin(n)) for n in evaluation.satisfied_rows()]
    return build_explanation(rule, question, evaluation, alerts, where=where)


def _alert(rule: CompiledRule, source: RuleInput, row: Row, origin: Origin) -> Mapping[str, Json]:
    context = AlertContext(ALERTS, _EPOCH, None if rule.rule.suppress is None else 0)
    record = event_alert(rule, source.schema, row, origin, context, source.find_fields(row)).record()
    alert: Mapping[str, Json] = orjson.loads(record.value or b"{}")
    return alert


def parse_conditions(
    rule: CompiledRule, schema: StreamSchema, lists: Mapping[str, ListType] | None = None
) -> dict[str, Expr]:
    """Return the rule's conditions on single events as its author wrote them, by name."""
    own = rule.rule
    texts: dict[str, str] = {} if own.where is None else {"where": own.where}
    if own.expect is not None:
        texts["expect"] = own.expect.where
    fields = Scope.of_event(schema)
    scope = replace(fields, columns={**fields.columns, **_feature_types(rule)}, lists=lists or {})
    found = {name: lang.parse(text, scope, field="where") for name, text in texts.items()}
    return found | _sequence_conditions(rule, scope)


def _feature_types(rule: CompiledRule) -> Mapping[str, Type]:
    return {feature.name: feature.type for feature in rule.features}


def _sequence_conditions(rule: CompiledRule, scope: Scope) -> dict[str, Expr]:
    """Return the conditions of a sequence's entries on single events; what reads earlier steps is left out."""
    found: dict[str, Expr] = {}
    for name, expr in sequence_conditions(rule, scope).items():
        simple = tuple(term for term in lang.conjuncts(expr) if not reads_steps(term))
        if simple:
            found[name] = simple[0] if len(simple) == 1 else lang.And(terms=simple)
    return found


def sequence_conditions(rule: CompiledRule, scope: Scope) -> dict[str, Expr]:
    """Return the conditions of a sequence's steps and ``without``, with what they read of earlier steps, by name."""
    items = rule.rule.sequence or ()
    with_steps = scope.with_steps(tuple(step.step for step in flatten_steps(items)))
    found: dict[str, Expr] = {}
    after = ""
    for item in [inner for one in items for inner in (one.group if isinstance(one, StepGroup) else (one,))]:
        if isinstance(item, SequenceStep):
            after = item.step
            name, text, own = f"step {after}", item.where, after
        else:
            name, text, own = f"without after {after}", item.without, ""
        found[name] = parse_condition(text, "where", with_steps, own, lang.ExpressionLimits())
    return found


def trace_event(
    row: Row,
    source: RuleInput,
    conditions: Mapping[str, Expr],
    lists: Lists | None = None,
    features: Sequence[CompiledFeature] = (),
) -> EventTrace:
    """Return the event with the truth of each clause of the conditions. ``features``: whose values the row has."""
    types = [(one.name, one.type) for one in source.schema.fields] + [(one.name, one.type) for one in features]
    values: dict[str, object] = {name: lang.to_logical(row[name], kind) for name, kind in types}
    clauses = {name: explain_condition(expr, values, lists) for name, expr in conditions.items()}
    own = {field.name: values[field.name] for field in source.find_fields(row)}
    return EventTrace(event_origin(row, source), own, clauses, source.schema.places)


def event_origin(row: Row, source: RuleInput) -> Origin:
    """Return the origin of an event."""
    partition, offset, event_ms = row[PARTITION], row[OFFSET], row[EVENT_MS]
    assert isinstance(partition, int)
    assert isinstance(offset, int)
    assert isinstance(event_ms, int)
    return Origin(source.find_topic(partition), partition % PARTITIONS_PER_TOPIC, offset, event_ms)


@dataclass(frozen=True, slots=True)
class _ScalarEvaluation:
    """A ``RuleEvaluation`` that evaluates one condition on one event at a time."""

    source: RuleInput
    rows: Sequence[Row]
    where: Expr

    def __len__(self) -> int:
        return len(self.rows)

    def origin(self, row: int) -> Origin:
        return event_origin(self.rows[row], self.source)

    def event(self, row: int) -> EventTrace:
        return trace_event(self.rows[row], self.source, {"where": self.where})

    def satisfied_rows(self) -> Sequence[int]:
        return [n for n, true in enumerate(self._true(self.where)) if true]

    def rejected_clauses(self, where: Expr) -> Sequence[RejectedClause]:
        counts = [(term, self._true(term).count(False)) for term in lang.conjuncts(where)]
        return sorted((RejectedClause(lang.render(t), n) for t, n in counts if n), key=lambda clause: -clause.events)

    def _true(self, expr: Expr) -> list[bool]:
        """Return for each event whether the condition is TRUE."""
        fields = self.source.schema.fields
        values = [{f.name: lang.to_logical(row[f.name], f.type) for f in fields} for row in self.rows]
        return [lang.evaluate(expr, event) is True for event in values]
