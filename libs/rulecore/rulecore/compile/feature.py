"""Compiles the features of a rule. Features with an equal fingerprint are one feature, whatever their names.

The fingerprint is a hash of the stream, `by`, the condition, the aggregate, the length of a pane and the order in which
the rule evaluates events; how far back the feature reads is not part of it, nor whether the event itself counts. So
rules share the state of a feature, and it survives changes of the rule's condition and of the feature's length.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import orjson

from rulecore import language as lang
from rulecore.compile.conditions import NameScope, compile_condition, compile_expr
from rulecore.documents.features import EventOrder, Feature
from rulecore.documents.published_feature import PublishedFeature
from rulecore.documents.rule import Rule
from rulecore.errors import RuleSetError
from rulecore.language import AggregateCall, Expr, Scope
from rulecore.language.functions import FEATURE_AGGREGATES
from rulecore.language.parsing.lexemes import KEYWORDS
from rulecore.language.suggestions import suggest_field
from rulecore.lists.list_columns import ListColumn
from streamcore.durations import render_duration
from streamcore.schema import StreamSchema, Type

#: Functions of which a key keeps the latest event only, or the latest event of each value.
LATEST_FUNCTIONS: Final = frozenset({"last", "time_since_last"})
#: Those of which it keeps the earliest event of each pane, and a value of it.
FIRST_FUNCTIONS: Final = frozenset({"first"})
VALUE_FUNCTIONS: Final = frozenset({"seen", "count_distinct"})
#: Shortest pane: the number of a pane has 32 bits.
MIN_PANE_MS: Final = 1_000
#: The most half-lives in a pane: two to this power, times a value, is still a double.
MAX_HALF_LIVES: Final = 500
_NAMES: Final = ("count", "count_distinct", "sum", "avg", "min", "max", "stddev", *FEATURE_AGGREGATES)


@dataclass(frozen=True, slots=True)
class CompiledFeature:
    """A feature over the events of a stream. ``where`` and ``argument`` are in normal form.

    ``by``: in the order of the names. ``panes``: panes of ``pane_ms`` that it reads, the one of the event
    included. ``text``: the aggregate as its author wrote it; ``type``: of its value. ``half_life_ms``: after which an
    event counts half, of a time decayed aggregate. ``route_key``: the key by which the events that it counts are
    routed: that of its rule, or another one (``CompiledRule.other_keys``).
    """

    name: str
    function: str
    argument: Expr | None
    where: Expr | None
    by: tuple[str, ...]
    pane_ms: int
    panes: int
    including_this: bool
    fingerprint: str
    text: str
    type: Type
    half_life_ms: int | None = None
    route_key: tuple[str, ...] = ()

    @property
    def column(self) -> str:
        """The column of its value, in the frame on which conditions are evaluated."""
        this = "_with_this" if self.including_this else ""
        return f"feature_{self.fingerprint}_{self.panes}{this}"

    @property
    def size_ms(self) -> int:
        """How far back it reads."""
        return self.pane_ms * self.panes


@dataclass(frozen=True, slots=True)
class FeatureLimits:
    """Limits of a feature: the longest time back in ms, the most panes, and whether it may have another key than the
    events of its rule."""

    window_ms: int
    panes: int
    other_keys: bool = True


def with_definitions(rule: Rule, published: Mapping[str, PublishedFeature]) -> Rule:
    """Return the rule with the definitions of the published features that it names, in place of the names.

    Raise ``RuleSetError`` if there is no such feature, or if it is one of another stream or order.
    """
    found = tuple(
        _find_published(rule, number, one, published) if isinstance(one, str) else one
        for number, one in enumerate(rule.features)
    )
    return rule if found == rule.features else rule.model_copy(update={"features": found})


def _find_published(rule: Rule, number: int, name: str, published: Mapping[str, PublishedFeature]) -> Feature:
    place, feature = f"features.{number}", published.get(name)
    if feature is None:
        raise RuleSetError(f"{place}: there is no published feature {name}; publish it first, or declare it here")
    if feature.on != rule.on:
        raise RuleSetError(f"{place}: {name} is a feature of {feature.on}, and the rule is on {rule.on}")
    if feature.order is not rule.order:
        raise RuleSetError(
            f"{place}: {name} is for rules with order: {feature.order}, and this one has order: {rule.order}; "
            "change the order, or declare the feature here"
        )
    return feature.entry


def compile_features(
    rule: Rule, schema: StreamSchema, names: NameScope, key: tuple[str, ...], limits: FeatureLimits
) -> tuple[tuple[CompiledFeature, ...], tuple[ListColumn, ...]]:
    """Return the features, and the list columns that they read. Raise ``RuleError`` for one that is not possible.

    ``key``: the columns by which the rule's events are routed.
    """
    found: list[CompiledFeature] = []
    lists: tuple[ListColumn, ...] = ()
    for number in range(len(rule.features)):
        compiled, columns = _compile_feature(rule, number, schema, names, key, limits)
        place = f"features.{number}.name"
        if compiled.name in KEYWORDS:
            raise RuleSetError(f"{place}: {compiled.name} is a word of the language; take another name")
        if compiled.name in {name.lower() for name in names.columns}:
            raise RuleSetError(f"{place}: {compiled.name} is a field of {schema.name}; take another name")
        found.append(compiled)
        lists += columns
    return tuple(found), lists


def _compile_feature(
    rule: Rule, number: int, schema: StreamSchema, names: NameScope, key: tuple[str, ...], limits: FeatureLimits
) -> tuple[CompiledFeature, tuple[ListColumn, ...]]:
    feature, place = rule.features[number], f"features.{number}"
    assert isinstance(feature, Feature), "names have become definitions"
    by = _key_columns(feature, rule, schema, f"{place}.by")
    route_key = _route_key(by, schema, key, f"{place}.by", limits)
    call = _parse_call(feature, names, f"{place}.of")
    argument = None if call.argument is None else compile_expr(call.argument)
    where = None if feature.where is None else compile_condition(feature.where, f"{place}.where", names)
    span = feature.span
    assert span is not None, "the document model accepts no other window"
    panes = span.size_ms // span.slide_ms
    if span.size_ms > limits.window_ms:
        longest = render_duration(limits.window_ms)
        raise RuleSetError(f"{place}.within: {render_duration(span.size_ms)} back, at most {longest}")
    if span.slide_ms < MIN_PANE_MS:
        shortest = render_duration(MIN_PANE_MS)
        raise RuleSetError(f"{place}.within: panes of {render_duration(span.slide_ms)}, at least {shortest}")
    if panes > limits.panes:
        raise RuleSetError(f"{place}.within: {panes} panes, at most {limits.panes}; make `every` longer")
    if call.half_life_ms is not None and span.slide_ms > MAX_HALF_LIVES * call.half_life_ms:
        shown = f"panes of {render_duration(span.slide_ms)} for a half-life of {render_duration(call.half_life_ms)}"
        raise RuleSetError(f"{place}.within: {shown}, at most {MAX_HALF_LIVES} times as long; make `every` shorter")
    of, condition = (None if one is None else one.expr for one in (argument, where))
    identity = [schema.name, list(by), lang.fingerprint(condition), lang.fingerprint(of), call.function, span.slide_ms]
    identity += [] if call.half_life_ms is None else [call.half_life_ms]
    identity += [rule.order] if rule.order is EventOrder.IN_ORDER else []
    fingerprint = hashlib.blake2b(orjson.dumps(identity), digest_size=16).hexdigest()
    this = feature.including_this
    made = CompiledFeature(
        name=feature.name,
        function=call.function,
        argument=of,
        where=condition,
        by=by,
        pane_ms=span.slide_ms,
        panes=panes,
        including_this=this,
        fingerprint=fingerprint,
        text=lang.render(call),
        type=call.type,
        half_life_ms=call.half_life_ms,
        route_key=route_key,
    )
    return made, tuple(column for one in (argument, where) if one is not None for column in one.list_columns)


def _key_columns(feature: Feature, rule: Rule, schema: StreamSchema, place: str) -> tuple[str, ...]:
    """Return `by` in the order of the names, which does not depend on other fields. Raise ``RuleSetError`` for what is
    no column of a key."""
    given = feature.by or rule.group_by
    if unknown := [name for name in given if schema.get(name) is None]:
        hint = suggest_field(unknown[0], schema)
        raise RuleSetError(f"{place}: stream {schema.name} has no {', '.join(unknown)}; {hint}")
    if nested := [n for n in given if (field := schema.get(n)) is not None and field.type.is_nested]:
        raise RuleSetError(f"{place}: {', '.join(nested)} is no single value of {schema.name}")
    return tuple(sorted(given))


def _route_key(
    by: tuple[str, ...], schema: StreamSchema, key: tuple[str, ...], place: str, limits: FeatureLimits
) -> tuple[str, ...]:
    """Return the key by which the events that a feature counts are routed: that of the rule if they are in its shards.
    Raise ``RuleSetError`` if it is another one, and the app computes none of others."""
    if not {*key} - {*by}:
        return key
    if not limits.other_keys:
        raise RuleSetError(
            f"{place}: does not contain {', '.join(key)}, by which the rule's events are routed; the app computes "
            "features of other keys with the setting feature_stage: true"
        )
    return schema.routing_key(tuple(name for name in schema.names if name in by))


def _parse_call(feature: Feature, names: NameScope, place: str) -> AggregateCall:
    scope = Scope({}, aggregates=True, arguments=names.columns, lists=names.lists, more_aggregates=FEATURE_AGGREGATES)
    parsed = lang.parse(feature.of, scope, field=place, limits=names.limits, expect=None)
    if not isinstance(parsed, AggregateCall):
        raise RuleSetError(f"{place}: is one aggregate, such as avg(amount); there are {', '.join(_NAMES)}")
    return parsed


def with_features(names: NameScope, features: tuple[CompiledFeature, ...]) -> NameScope:
    """Return the scope of the rule's condition: the fields of the event, and the features by name."""
    return replace(names, columns={**names.columns, **{one.name: one.type for one in features}})


def rename_features(expr: Expr, columns: Mapping[str, str]) -> Expr:
    """Return the condition with the columns of features in place of their names. ``columns``: by name."""
    if isinstance(expr, lang.ColumnRef):
        return lang.ColumnRef(name=columns[expr.name], type=expr.type) if expr.name in columns else expr
    return lang.rebuild(expr, lambda child: rename_features(child, columns))
