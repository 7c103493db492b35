"""The content of a rule's windows, event by event, whether or not the rule fired in them.

The rule's own group evaluates: its ``having`` is replaced by one that is always true, under a version of its own for
each event that is looked at, for a version that has not fired yet fires. So the values are those that the rule itself
saw. To evaluation at an event takes as long as to take a thousand in, so of a question only those are looked at
whose windows answer it.
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
from rulecore.language import AggregateCall, ColumnRef, Expr, ListType
from rulecore.language.columnar.compiler import to_polars
from rulecore.language.types import Value
from rulecore.lists.content import ListContent
from rulecore.lists.fill_columns import with_list_columns
from rulecore.lists.scalar import logical_lists
from rulecore.lists.store import ListStore
from rulecore.settings import GroupSettings
from streamcore.schema import EVENT_MS, StreamSchema
from streamcore.state import KeyValueTable
from streamcore.watermark import NO_WATERMARK

DETAIL = 500  # events that are looked at one by one
MOST = 3  # windows that answer a question
_END_MS = 2**53
#: For a condition that is longer than its author's.
_ROOMY = RuleLimits(expression=lang.ExpressionLimits(text_bytes=16_384, depth=40, nodes=1_000))


def trace_windows(
    rule: CompiledRule, schema: StreamSchema, events: pl.DataFrame, topic: str, lists: ListStore | None = None
) -> list[WindowTrace]:
    """Trace a windowed rule over one key's events in order of arrival; of early ones the last ``DETAIL`` events.

    A rule without windows has none.
    """
    return _trace(rule, schema, events, topic, lists or ListStore.empty(), _latest)


def windows_for_question(
    rule: CompiledRule,
    schema: StreamSchema,
    events: pl.DataFrame,
    topic: str,
    question: ExplainQuestion,
    lists: ListStore | None = None,
) -> list[WindowTrace]:
    """Return the traces that a question is about (``around``)."""
    chosen = functools.partial(_rows_for_question, rule, question)
    stories = _trace(rule, schema, events, topic, lists or ListStore.empty(), chosen)
    return around(stories, question.row, question.at_ms)


#: Of a rule's own events the places of those to evaluation at, rising.
_Chosen = Callable[[pl.DataFrame], Sequence[int]]


def _trace(
    rule: CompiledRule, schema: StreamSchema, events: pl.DataFrame, topic: str, lists: ListStore, chosen: _Chosen
) -> list[WindowTrace]:
    if rule.having is None or rule.having_on_columns is None or not rule.aggregates:
        return []
    if not events.height:
        return []
    contents = lists.contents(int(events[EVENT_MS].max()))  # type: ignore[arg-type]
    probe = _Probe(rule, _without_threshold(rule, schema, lists.types()), schema, topic, contents)
    own = with_list_columns(events, probe.rule.list_columns, contents).with_row_index("__row").filter(_counts(rule))
    if not own.height:
        return []
    firings = probe.at_ends(own) if rule.rule.emit is Emit.FINAL else probe.after_some(own, chosen(own))
    return [_window_trace(rule, schema, firing, row, logical_lists(contents)) for firing, row in firings]


def _latest(own: pl.DataFrame) -> Sequence[int]:
    return range(max(0, own.height - DETAIL), own.height)


def _rows_for_question(rule: CompiledRule, question: ExplainQuestion, own: pl.DataFrame) -> Sequence[int]:
    """Return the row of the event in question, if it counts; else the last of each window that ``around`` takes.

    A window is asked for in its last pane; an event that enters an earlier one afterwards changes it, too.
    """
    if question.row is not None and (here := own["__row"].index_of(question.row)) is not None:
        return [here]
    group = GroupId.for_rule(rule)
    if group is None or group.kind != RuleKind.WINDOW:
        return _latest(own)  # which window an event belongs to depends on the others
    pane, before = own[EVENT_MS] // group.unit, window_panes(rule) - 1
    last = pane.unique()
    if question.at_ms is not None:
        asked = question.at_ms // group.unit
        last = last.filter(last.is_between(asked, asked + before))
    windows = [pane.is_between(end - before, end) for end in last.top_k(MOST).to_list()]
    return sorted({int(inside.arg_true()[-1]) for inside in windows})


def _counts(rule: CompiledRule) -> pl.Expr:
    where = pl.lit(value=True) if rule.where is None else to_polars(rule.where).fill_null(value=False)
    return where & pl.col(EVENT_MS).is_not_null()


@dataclass(frozen=True, slots=True)
class _Probe:
    """``rule`` is ``of`` without its threshold, to be run over events."""

    of: CompiledRule
    rule: CompiledRule
    schema: StreamSchema
    topic: str
    contents: Mapping[str, ListContent]

    def at_ends(self, own: pl.DataFrame) -> Iterator[tuple[RuleFiring, int | None]]:
        group, memory = self._group(), KeyValueTable()
        _set(group, self.rule, memory)
        group.add(own, self._cut_context(NO_WATERMARK))
        firings, _ = group.close(self._cut_context(_END_MS))
        return ((firing, None) for firing in firings)

    def after_some(self, own: pl.DataFrame, chosen: Sequence[int]) -> Iterator[tuple[RuleFiring, int | None]]:
        group, memory, done = self._group(), KeyValueTable(), 0
        _set(group, _with_version(self.rule, 1), memory)
        for at in chosen:
            if at > done:
                group.add(own[done:at], self._cut_context(NO_WATERMARK))
            _set(group, _with_version(self.rule, at + 2), memory)
            firings, _ = group.add(own[at : at + 1], self._cut_context(NO_WATERMARK))
            done = at + 1
            for firing in firings:
                yield firing, int(own["__row"][at])

    def _group(self) -> RuleGroup:
        group = GroupId.for_rule(self.of)
        assert group is not None, "a windowed rule has a group"
        return make_group(group, self.schema, GroupSettings())

    def _cut_context(self, next_watermark_ms: int) -> CutContext:
        return CutContext(0, 1, self.topic, 0, NO_WATERMARK, next_watermark_ms, self.contents)


def _set(group: RuleGroup, rule: CompiledRule, memory: KeyValueTable) -> None:
    group.set_rules([rule], memory, NO_WATERMARK, NO_WATERMARK)


def _without_threshold(rule: CompiledRule, schema: StreamSchema, lists: Mapping[str, ListType]) -> CompiledRule:
    """Return the rule with the same aggregates, for which every window fires."""
    some = lang.render(_first_aggregate(rule))
    always = f"({rule.rule.having}) or {some} is null or {some} is not null"
    own = rule.rule.model_copy(update={"having": always, "mode": RuleMode.LIVE})
    return compile_rule(own, {schema.name: schema}, _ROOMY, lists)


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
    """Yield each aggregate and the column that stands for it."""
    if isinstance(having, AggregateCall):
        assert isinstance(on_columns, ColumnRef)
        yield having, on_columns.name
        return
    for one, other in zip(having.children, on_columns.children, strict=True):
        yield from _columns(one, other)


def around(stories: Sequence[WindowTrace], row: int | None, at_ms: int | None, most: int = MOST) -> list[WindowTrace]:
    """Return those that a question is about: after this event; in windows that hold this time; else the latest.

    Of each window (by its beginning, for a session's end moves) the last story is taken: it holds everything.
    """
    if row is not None and (here := [story for story in stories if story.row == row]):
        return here[:most]
    last: Mapping[int, WindowTrace] = {s.start_ms: s for s in stories}
    held = [s for s in last.values() if at_ms is None or s.start_ms <= at_ms < s.end_ms]
    return sorted(held, key=lambda s: (s.end_ms, s.start_ms))[-most:]
