"""Explains why a rule fired or did not, for an event or for a key, over the events of that key.

The explanation is computed from the given events by the code of production: the kernel decides which rules fire, the
rule's group computes its windows, the reference evaluator checks each clause. Reasons other than conditions (a paused
rule, a late event) are found by the caller, as ``RuleReason``.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import orjson
import polars as pl

from rulecore import language as lang
from rulecore.compile.feature import CompiledFeature
from rulecore.compile.overrides import without_suppression
from rulecore.compile.rule import CompiledRule
from rulecore.documents.rule import RuleKind
from rulecore.documents.yaml_reader import Json
from rulecore.errors import RuleError
from rulecore.explain.event import parse_conditions, trace_event
from rulecore.explain.explanation import EventTrace, ExplainQuestion, Explanation, RejectedClause, build_explanation
from rulecore.explain.windows import windows_for_question
from rulecore.key_columns import keyed_schema
from rulecore.language import Expr, ListType, Scope
from rulecore.language.columnar.compiler import to_polars
from rulecore.lists.content import ListContent
from rulecore.lists.fill_columns import with_list_columns
from rulecore.lists.scalar import logical_lists
from rulecore.lists.snapshots import with_columns_for
from rulecore.lists.store import ListStore
from rulecore.streams import STREAM, RuleInput, stream_names
from rulecore.union_events import unite_events
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.watermark import NO_WATERMARK


def explain_rule(
    rule: CompiledRule,
    source: RuleInput,
    frames: Mapping[str, pl.DataFrame],
    question: ExplainQuestion,
    support: Sequence[CompiledRule] = (),
    lists: ListStore | None = None,
) -> Explanation:
    """Explain a rule. ``suppress`` and ``then.alert`` are ignored: the caller reports them as ``RuleReason``.

    ``frames``: by stream, physical columns in order of arrival: of an event rule the event in question, of others all
    events of the key. ``question``: its row is one of the united events. ``support``: rules whose scores the rule
    adds up. ``lists``: the lists that the rules use; their content is that at the time of the latest event.
    """
    lists = lists or ListStore.empty()
    schema = keyed_schema(source.schema, rule.group_by)
    events = with_list_columns(unite_events(source, frames), rule.key_columns, {})
    alerts = recompute_alerts(rule, source, frames, question.closing_ms, support, lists)
    own = parse_conditions(rule, schema, lists.types())
    conditions = own | _signal_conditions(schema, support, lists.types())
    contents = lists.contents(latest_event_ms(events))
    if rule.features:
        from rulecore.explain.features import with_feature_values  # imports their group, which takes time

        events = with_feature_values(rule, schema, events, contents)
        events, question = _select_key(rule, events, question)
        places = {*events.select(PARTITION, OFFSET).iter_rows()}
        alerts = [alert for alert in alerts if _find_place(alert, source) in places]
    evaluation = _ColumnarEvaluation(source, events, conditions, contents, rule.features)
    windows = windows_for_question(rule, source, events, question, lists) if rule.kind is RuleKind.WINDOW else []
    found = build_explanation(rule, question, evaluation, alerts, windows, own.get("where"))
    if rule.kind is RuleKind.SCORE:
        from rulecore.explain.scores import trace_scores  # imports the kernel, which takes time

        return replace(found, scores=trace_scores(rule, source, frames, question, support, found.in_question, lists))
    if rule.kind is not RuleKind.SEQUENCE:
        return found
    from rulecore.explain.sequences import trace_matches  # imports the group of sequences, which takes time

    matches = trace_matches(rule, source, events, question.closing_ms, found.in_question, lists)
    if found.in_question or not events.height:
        return replace(found, matches=tuple(matches))
    from rulecore.explain.partial_matches import trace_partials

    return replace(found, partials=trace_partials(rule, source, events, question, lists))


def _select_key(
    rule: CompiledRule, events: pl.DataFrame, question: ExplainQuestion
) -> tuple[pl.DataFrame, ExplainQuestion]:
    """Return the events of the key in question, or of that of the event in question, and the question about them: the
    others are there because features count them."""
    key, row = question.key, question.row
    if key is None:
        if row is None:
            return events, question
        key = events.select(rule.group_by).row(row, named=True)
    is_own = events.select(
        pl.all_horizontal(pl.lit(value=True), *(pl.col(name).eq_missing(pl.lit(one)) for name, one in key.items()))
        & pl.int_range(pl.len()).is_not_null()
    ).to_series()
    return events.filter(is_own), question if row is None else replace(question, row=int(is_own[:row].sum()))


def _find_place(alert: Mapping[str, Json], source: RuleInput) -> tuple[int, int]:
    """Return the source partition and the offset of the event of an alert."""
    place = alert["source"]
    assert isinstance(place, dict), "a rule with features fires at an event"
    own = source.source(str(place["topic"])) * PARTITIONS_PER_TOPIC
    return own + int(str(place["partition"])), int(str(place["offset"]))


def _signal_conditions(
    schema: StreamSchema, support: Sequence[CompiledRule], lists: Mapping[str, ListType]
) -> dict[str, Expr]:
    """Return the conditions of the event rules among ``support``, by ``signal <rule id>``.

    A rule on some streams of a union has the names of these in its condition. It has none here if it reads a field that
    the union does not have.
    """
    scope = replace(Scope.of_event(schema), lists=lists)
    found = {}
    for rule in support:
        if rule.kind is RuleKind.EVENT and rule.rule.where is not None:
            names = ", ".join(f"'{name}'" for name in stream_names(rule.rule.on))
            others = rule.rule.on != schema.name
            text = f"{STREAM} in ({names}) and ({rule.rule.where})" if others else rule.rule.where
            with suppress(RuleError):
                found[f"signal {rule.rule.id}"] = lang.parse(text, scope, field="where")
    return found


def recompute_alerts(
    rule: CompiledRule,
    source: RuleInput,
    frames: Mapping[str, pl.DataFrame],
    closing_ms: int = NO_WATERMARK,
    support: Sequence[CompiledRule] = (),
    lists: ListStore | None = None,
) -> list[Mapping[str, Json]]:
    """Return the alerts of the rule over these events, as if it were live without ``suppress``."""
    alerts: list[bytes] = []
    latest_ms = max(map(latest_event_ms, frames.values()))
    if any(frame.height for frame in frames.values()):
        from rulecore.backtest.run import BacktestRun  # imports the kernel, which takes time

        run = BacktestRun(source, [without_suppression(rule)], support, lists=lists, on_alert=alerts.append)
        run.step(frames, latest_ms, NO_WATERMARK, closing_ms)
    return [orjson.loads(alert) for alert in alerts]


def latest_event_ms(events: pl.DataFrame) -> int:
    """Return the time of the latest event, which selects the content of lists."""
    return int(events[EVENT_MS].max()) if events.height else 0  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _ColumnarEvaluation:
    """A ``RuleEvaluation`` that evaluates conditions on a frame of events."""

    source: RuleInput
    events: pl.DataFrame
    conditions: Mapping[str, Expr]
    contents: Mapping[str, ListContent]
    features: Sequence[CompiledFeature]

    def __len__(self) -> int:
        return self.events.height

    def event(self, row: int) -> EventTrace:
        physical = self.events.row(row, named=True)
        return trace_event(physical, self.source, self.conditions, logical_lists(self.contents), self.features)

    def satisfied_rows(self) -> Sequence[int]:
        if not self.conditions:
            return [*range(self.events.height)]
        true = [self._true(expr) for expr in self.conditions.values()]
        return functools.reduce(operator.or_, true).arg_true().to_list()

    def rejected_clauses(self, where: Expr) -> Sequence[RejectedClause]:
        height = self.events.height
        clauses = [
            RejectedClause(lang.render(term), height - int(self._true(term).sum())) for term in lang.conjuncts(where)
        ]
        return sorted((clause for clause in clauses if clause.events), key=lambda clause: -clause.events)

    def _true(self, expr: Expr) -> pl.Series:
        """Return for each event whether the condition is TRUE."""
        frame, lifted = with_columns_for(self.events, expr, self.contents)
        true = to_polars(lifted).fill_null(value=False) & pl.int_range(pl.len()).is_not_null()
        return frame.select(true.alias(lang.fingerprint(expr)))[lang.fingerprint(expr)]
