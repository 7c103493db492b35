"""What the windows of a rule held, event by event, whether or not the rule fired in them.

The rule's own group evaluates: its ``having`` is replaced by one that is always true, under a version of its own for
each event, for a version that has not fired yet fires. So the values are those that the rule itself saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from rulecore import lang
from rulecore.compiled import CompiledRule, RuleLimits, compile_rule
from rulecore.explain import Clause, Seen, explain_with
from rulecore.families import make_group
from rulecore.firing import Firing
from rulecore.groups import GroupId, Moment, RuleGroup
from rulecore.lang import Aggregate, Column, Expr
from rulecore.model import Emit, Mode
from rulecore.settings import GroupSettings
from streamcore.schema import EVENT_MS, StreamSchema
from streamcore.state import KeyValueTable
from streamcore.watermark import NO_WATERMARK

DETAIL = 500  # events that are looked at one by one
_END_MS = 2**53
#: For a condition that is longer than its author's.
_ROOMY = RuleLimits(expression=lang.Limits(text_bytes=16_384, depth=40, nodes=1_000))


@dataclass(frozen=True, slots=True)
class WindowStory:
    """A window as it was after an event, or at its end (``row`` None). ``row`` counts the frame that was given."""

    start_ms: int
    end_ms: int
    row: int | None
    time_ms: int
    seen: tuple[Seen, ...]
    having: Clause


def window_stories(rule: CompiledRule, schema: StreamSchema, events: pl.DataFrame, topic: str) -> list[WindowStory]:
    """Of a windowed rule over one key's events in order of arrival; of early ones the last ``DETAIL`` events.

    A rule without windows has none.
    """
    if rule.having is None or rule.having_on_columns is None or not rule.aggregates:
        return []
    own = events.with_row_index("__row").filter(_counts(rule))
    if not own.height:
        return []
    final = rule.rule.emit is Emit.FINAL
    firings = _at_ends(rule, schema, own, topic) if final else _after_each(rule, schema, own, topic)
    return [_story(rule, schema, firing, row) for firing, row in firings]


def _counts(rule: CompiledRule) -> pl.Expr:
    where = pl.lit(value=True) if rule.where is None else lang.to_polars(rule.where).fill_null(value=False)
    return where & pl.col(EVENT_MS).is_not_null()


def _at_ends(
    rule: CompiledRule, schema: StreamSchema, own: pl.DataFrame, topic: str
) -> Iterator[tuple[Firing, int | None]]:
    group, memory = _group(rule, schema), KeyValueTable()
    _set(group, _probe(rule, schema), memory)
    group.add(own, _moment(topic, NO_WATERMARK))
    firings, _ = group.close(_moment(topic, _END_MS))
    return ((firing, None) for firing in firings)


def _after_each(
    rule: CompiledRule, schema: StreamSchema, own: pl.DataFrame, topic: str
) -> Iterator[tuple[Firing, int | None]]:
    group, memory = _group(rule, schema), KeyValueTable()
    probe = _probe(rule, schema)
    before = max(0, own.height - DETAIL)
    _set(group, _versioned(probe, 1), memory)
    if before:
        group.add(own[:before], _moment(topic, NO_WATERMARK))
    for number in range(before, own.height):
        _set(group, _versioned(probe, number + 2), memory)
        firings, _ = group.add(own[number : number + 1], _moment(topic, NO_WATERMARK))
        for firing in firings:
            yield firing, int(own["__row"][number])


def _group(rule: CompiledRule, schema: StreamSchema) -> RuleGroup:
    group = GroupId.of(rule)
    assert group is not None, "a windowed rule has a group"
    return make_group(group, schema, GroupSettings())


def _set(group: RuleGroup, rule: CompiledRule, memory: KeyValueTable) -> None:
    group.set_rules([rule], memory, NO_WATERMARK, NO_WATERMARK)


def _moment(topic: str, next_watermark_ms: int) -> Moment:
    return Moment(0, 1, topic, 0, NO_WATERMARK, next_watermark_ms)


def _probe(rule: CompiledRule, schema: StreamSchema) -> CompiledRule:
    """The rule with the same aggregates and without its threshold."""
    some = lang.render(_first_aggregate(rule))
    always = f"({rule.rule.having}) or {some} is null or {some} is not null"
    own = rule.rule.model_copy(update={"having": always, "mode": Mode.LIVE})
    return compile_rule(own, {schema.name: schema}, _ROOMY)


def _first_aggregate(rule: CompiledRule) -> Expr:
    assert rule.having is not None
    return lang.aggregates(rule.having)[0]


def _versioned(probe: CompiledRule, version: int) -> CompiledRule:
    return replace(probe, rule=probe.rule.model_copy(update={"version": version}))


def _story(rule: CompiledRule, schema: StreamSchema, firing: Firing, row: int | None) -> WindowStory:
    assert rule.having is not None
    assert rule.having_on_columns is not None
    names = dict(_columns(rule.having, rule.having_on_columns))
    values: dict[str, object] = {f.column: lang.to_logical(firing.values[f.column], f.type) for f in rule.figures}
    types = {f.name: f.type for f in schema.fields}
    values |= {name: lang.to_logical(value, types[name]) for name, value in firing.key.items()}
    having = explain_with(rule.having, lambda part: lang.evaluate(lang.replace_aggregates(part, names), values))
    seen = tuple(Seen(f.text, lang.to_logical(firing.values[f.column], f.type), f.type) for f in rule.figures)
    return WindowStory(firing.start_ms, firing.end_ms, row, firing.time_ms, seen, having)


def _columns(having: Expr, on_columns: Expr) -> Iterator[tuple[Aggregate, str]]:
    """Which column stands for which aggregate."""
    if isinstance(having, Aggregate):
        assert isinstance(on_columns, Column)
        yield having, on_columns.name
        return
    for one, other in zip(having.children, on_columns.children, strict=True):
        yield from _columns(one, other)


def around(stories: Sequence[WindowStory], row: int | None, at_ms: int | None, most: int = 3) -> list[WindowStory]:
    """Those that a question is about: after this event; in windows that hold this time; else the latest.

    Of each window (by its beginning, for a session's end moves) the last story is taken: it holds everything.
    """
    if row is not None and (here := [story for story in stories if story.row == row]):
        return here[:most]
    last: Mapping[int, WindowStory] = {s.start_ms: s for s in stories}
    held = [s for s in last.values() if at_ms is None or s.start_ms <= at_ms < s.end_ms]
    return sorted(held, key=lambda s: (s.end_ms, s.start_ms))[-most:]
