"""Traces the windows of a rule event by event, whether or not the rule fired in them.

The rule's group computes the values, with a ``having`` that is always true. A version fires only once per window, so
each traced event gets a new version number. Tracing an event takes as long as adding a thousand, so for a question only
the events are traced whose windows it is about.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from rulecore import language as lang
from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.rule import Emit, RuleKind, RuleMode
from rulecore.explain.condition import ObservedValue, explain_with
from rulecore.explain.explanation import ExplainQuestion, WindowTrace
from rulecore.firing import RuleFiring
from rulecore.groups.base import CutContext, GroupId, RuleGroup
from rulecore.groups.registry import make_group
from rulecore.groups.windows.members import window_panes
from rulecore.key_columns import keyed_schema
from rulecore.language import AggregateCall, ColumnRef, Expr, ListType
from rulecore.language.columnar.compiler import to_polars
from rulecore.language.types import Value
from rulecore.lists.content import ListContent
from rulecore.lists.fill_columns import with_list_columns
from rulecore.lists.scalar import logical_lists
from rulecore.lists.store import ListStore
from rulecore.settings import GroupSettings
from rulecore.streams import RuleInput
from streamcore.key_space import KeySpace
from streamcore.schema import EVENT_MS, StreamSchema
from streamcore.state import KeyValueTable
from streamcore.watermark import NO_WATERMARK

MAX_TRACED_EVENTS = 500
MAX_WINDOWS = 3  # in the answer to a question
_END_MS = 2**53
#: Limits for ``having`` with the added condition that makes it always true.
_PROBE_LIMITS = RuleLimits(expression=lang.ExpressionLimits(text_bytes=16_384, depth=40, nodes=1_000))


def trace_windows(
    rule: CompiledRule, source: RuleInput, events: pl.DataFrame, lists: ListStore | None = None
) -> list[WindowTrace]:
    """Return the windows of a rule over one key's events, in order of arrival; nothing for a rule without windows.

    An early rule is traced at the last ``MAX_TRACED_EVENTS`` events, a final rule at the end of each window.
    """
    return _trace(rule, source, events, lists or ListStore.empty(), _latest_rows)


def windows_for_question(
    rule: CompiledRule,
    source: RuleInput,
    events: pl.DataFrame,
    question: ExplainQuestion,
    lists: ListStore | None = None,
) -> list[WindowTrace]:
    """Return the windows that a question is about (see ``select_windows``)."""
    chosen = functools.partial(_rows_for_question, rule, question)
    traces = _trace(rule, source, events, lists or ListStore.empty(), chosen)
    return select_windows(traces, question.row, question.at_ms)


#: Returns, for the events that satisfy a rule's ``where``, the ascending rows at which to trace.
_Chosen = Callable[[pl.DataFrame], Sequence[int]]


def _trace(
    rule: CompiledRule, source: RuleInput, events: pl.DataFrame, lists: ListStore, chosen: _Chosen
) -> list[WindowTrace]:
    if rule.having is None or rule.having_on_columns is None or not rule.aggregates:
        return []
    if not events.height:
        return []
    contents = lists.contents(int(events[EVENT_MS].max()))  # type: ignore[arg-type]
    probe = _Probe(rule, _without_threshold(rule, source, lists.types()), source, contents)
    numbered = with_list_columns(events, probe.rule.columns, contents).with_row_index("__row")
    own = numbered.filter(_satisfies_where(rule))
    if not own.height:
        return []
    firings = probe.at_window_ends(own) if rule.rule.emit is Emit.FINAL else probe.after_events(own, chosen(own))
    return [
        _window_trace(rule, keyed_schema(source.schema, rule.group_by), firing, row, logical_lists(contents))
        for firing, row in firings
    ]


def _latest_rows(own: pl.DataFrame) -> Sequence[int]:
    """Return the last ``MAX_TRACED_EVENTS`` rows."""
    return range(max(0, own.height - MAX_TRACED_EVENTS), own.height)


def _rows_for_question(rule: CompiledRule, question: ExplainQuestion, own: pl.DataFrame) -> Sequence[int]:
    """Return the row of the event in question, if it satisfies ``where``; else the last row of each window to trace."""
    if question.row is not None and (here := own["__row"].index_of(question.row)) is not None:
        return [here]
    group = GroupId.for_rule(rule)
    if group is None or group.kind != RuleKind.WINDOW:
        return _latest_rows(own)  # which window an event belongs to depends on the others
    pane, before = own[EVENT_MS] // group.unit, window_panes(rule) - 1
    last = pane.unique()
    if question.at_ms is not None:
        pane_in_question = question.at_ms // group.unit
        last = last.filter(last.is_between(pane_in_question, pane_in_question + before))
    windows = [pane.is_between(end - before, end) for end in last.top_k(MAX_WINDOWS).to_list()]
    return sorted({int(inside.arg_true()[-1]) for inside in windows})


def _satisfies_where(rule: CompiledRule) -> pl.Expr:
    """Return the expression that is true for events that satisfy the rule's ``where``."""
    where = pl.lit(value=True) if rule.where is None else to_polars(rule.where).fill_null(value=False)
    return where & pl.col(EVENT_MS).is_not_null()


@dataclass(frozen=True, slots=True)
class _Probe:
    """Runs a rule without its threshold over events. ``of``: the rule; ``rule``: the rule without its threshold."""

    of: CompiledRule
    rule: CompiledRule
    source: RuleInput
    contents: Mapping[str, ListContent]

    def at_window_ends(self, own: pl.DataFrame) -> Iterator[tuple[RuleFiring, int | None]]:
        """Return the firings at the end of each window; their rows are None."""
        group, table = self._group(), KeyValueTable()
        _set_rule(group, self.rule, table)
        group.add(own, self._cut_context(NO_WATERMARK))
        firings, _ = group.close(self._cut_context(_END_MS))
        return ((firing, None) for firing in firings)

    def after_events(self, own: pl.DataFrame, chosen: Sequence[int]) -> Iterator[tuple[RuleFiring, int | None]]:
        """Yield the firings just after each chosen event, with the row of the event in the caller's frame."""
        group, table, added = self._group(), KeyValueTable(), 0
        _set_rule(group, _with_version(self.rule, 1), table)
        for at in chosen:
            if at > added:
                group.add(own[added:at], self._cut_context(NO_WATERMARK))
            _set_rule(group, _with_version(self.rule, at + 2), table)
            firings, _ = group.add(own[at : at + 1], self._cut_context(NO_WATERMARK))
            added = at + 1
            for firing in firings:
                yield firing, int(own["__row"][at])

    def _group(self) -> RuleGroup:
        group = GroupId.for_rule(self.of)
        assert group is not None, "a window rule has a group"
        return make_group(group, self.source.schema, GroupSettings())

    def _cut_context(self, next_watermark_ms: int) -> CutContext:
        return CutContext(
            0,
            KeySpace(),
            self.source.topics[0],
            0,
            NO_WATERMARK,
            next_watermark_ms,
            self.contents,
            self.source.topics,
        )


def _set_rule(group: RuleGroup, rule: CompiledRule, table: KeyValueTable) -> None:
    group.set_rules([rule], table, NO_WATERMARK, NO_WATERMARK)


def _without_threshold(rule: CompiledRule, source: RuleInput, lists: Mapping[str, ListType]) -> CompiledRule:
    """Return the rule with a ``having`` that is always true and has all aggregates of the rule's own."""
    aggregate = lang.render(_first_aggregate(rule))
    always = f"({rule.rule.having}) or {aggregate} is null or {aggregate} is not null"
    own = rule.rule.model_copy(update={"having": always, "mode": RuleMode.LIVE})
    return compile_rule(own, {one.schema.name: one.schema for one in source.streams}, _PROBE_LIMITS, lists)


def _first_aggregate(rule: CompiledRule) -> Expr:
    assert rule.having is not None
    return lang.aggregates(rule.having)[0]


def _with_version(probe: CompiledRule, version: int) -> CompiledRule:
    return replace(probe, rule=probe.rule.model_copy(update={"version": version}))


def _window_trace(
    rule: CompiledRule,
    schema: StreamSchema,
    firing: RuleFiring,
    row: int | None,
    lists: Mapping[str, Mapping[Value, Value]],
) -> WindowTrace:
    assert rule.having is not None
    assert rule.having_on_columns is not None
    names = dict(_columns(rule.having, rule.having_on_columns))
    values: dict[str, object] = {f.column: lang.to_logical(firing.values[f.column], f.type) for f in rule.alert_fields}
    types = {f.name: f.type for f in schema.fields}
    values |= {name: lang.to_logical(value, types[name]) for name, value in firing.key.items()}
    having = explain_with(rule.having, lambda part: lang.evaluate(lang.replace_aggregates(part, names), values, lists))
    seen = tuple(
        ObservedValue(f.text, lang.to_logical(firing.values[f.column], f.type), f.type) for f in rule.alert_fields
    )
    return WindowTrace(firing.start_ms, firing.end_ms, row, firing.time_ms, seen, having)


def _columns(having: Expr, on_columns: Expr) -> Iterator[tuple[AggregateCall, str]]:
    """Yield each aggregate and the column that replaces it."""
    if isinstance(having, AggregateCall):
        assert isinstance(on_columns, ColumnRef)
        yield having, on_columns.name
        return
    for child, child_on_columns in zip(having.children, on_columns.children, strict=True):
        yield from _columns(child, child_on_columns)


def select_windows(
    traces: Sequence[WindowTrace], row: int | None, at_ms: int | None, limit: int = MAX_WINDOWS
) -> list[WindowTrace]:
    """Return at most ``limit`` traces: those at ``row``; else of windows that contain ``at_ms``; else the latest.

    Of each window (by its start, since the end of a session moves) the last trace is returned, which has all events.
    """
    if row is not None and (at_row := [trace for trace in traces if trace.row == row]):
        return at_row[:limit]
    last: Mapping[int, WindowTrace] = {trace.start_ms: trace for trace in traces}
    held = [s for s in last.values() if at_ms is None or s.start_ms <= at_ms < s.end_ms]
    return sorted(held, key=lambda s: (s.end_ms, s.start_ms))[-limit:]
