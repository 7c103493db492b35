"""A rule that has been checked against its stream, with everything that evaluation needs worked out once.

Promises: compiling is a pure function of the rule, the schema and the limits, and raises nothing but ``RuleError``.
An aggregate's fingerprint says *what is counted*: stream, filter, groups, value, function and pane. Neither the
threshold of ``having`` nor the length of the window nor the rule's version is part of it, so state kept under it
outlives such changes and is shared by all rules that count the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import orjson

from rulecore import lang, message
from rulecore.errors import RuleSetError
from rulecore.lang import Aggregate, Expr, Scope
from rulecore.message import Message
from rulecore.model import Kind, Rule, canonical_json
from rulecore.plan import Plan, plan
from rulecore.sequences.compile import (
    COUNT,
    DURATION,
    NAMED,
    CompiledSequence,
    compile_sequence,
    refuse_unknown_captures,
)
from rulecore.spans import Sliding, Span, Tumbling
from rulecore.values import render_duration
from streamcore.schema import LONG, StreamSchema, Type

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class RuleLimits:
    """What one rule may ask for, and how many rules there may be."""

    rules: int = 20_000
    record_bytes: int = 64 * 1024
    panes_per_window: int = 2_000
    window_ms: int = 400 * _DAY_MS
    aggregates: int = 16
    expression: lang.Limits = field(default_factory=lang.Limits)


@dataclass(frozen=True, slots=True)
class Window:
    """[start, start + size), a start every ``slide_ms``; a pane is ``slide_ms`` long."""

    size_ms: int
    slide_ms: int

    @property
    def panes(self) -> int:
        """Panes in a window."""
        return self.size_ms // self.slide_ms


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """One aggregate of a windowed rule. ``text`` is how an alert names it; ``type`` is that of its result.

    ``group_by`` is in the order of the stream's fields, whatever order the rule has.
    """

    function: str
    argument: Expr | None
    where: Expr | None
    stream: str
    group_by: tuple[str, ...]
    pane_ms: int
    fingerprint: str
    text: str
    type: Type

    @property
    def column(self) -> str:
        """The column that stands for the aggregate in ``CompiledRule.having_on_columns``."""
        return f"agg_{self.fingerprint}"


@dataclass(frozen=True, slots=True)
class Figure:
    """A value that alerts of a rule show: its name there, its column in ``Firing.values`` and its logical type."""

    text: str
    column: str
    type: Type


@dataclass(frozen=True, slots=True)
class Placeholder:
    """What a name in the message stands for: an event's, a group's or an aggregate's column, and its logical type."""

    name: str
    column: str
    type: Type


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """``digest`` is that of the canonical JSON. A rule per event has a ``plan`` and no window, groups, aggregates.

    ``family`` and ``unit`` say which rules share state, see ``groups.GroupId``. ``figures`` are what alerts show.

    ``where`` is normalised, ``having`` is as its author wrote it. ``route`` is the index of the stream's key that the
    rule's events are routed by (0 for a rule per event: it sees each event once, under any of the keys).
    """

    rule: Rule
    digest: str
    where: Expr | None
    message: Message
    placeholders: tuple[Placeholder, ...]
    having: Expr | None = None
    group_by: tuple[str, ...] = ()
    route: int = 0
    window: Window | None = None
    aggregates: tuple[AggregateSpec, ...] = ()
    having_on_columns: Expr | None = None
    plan: Plan | None = None
    figures: tuple[Figure, ...] = ()
    family: str = Kind.EVENT
    unit: int = 0
    sequence: CompiledSequence | None = None

    @property
    def kind(self) -> Kind:
        """What the rule looks at."""
        return self.rule.kind


def compile_rule(rule: Rule, streams: Mapping[str, StreamSchema], limits: RuleLimits) -> CompiledRule:
    """Check and compile; ``ExpressionError`` with a place, or ``RuleSetError``, says what is wrong."""
    schema = streams.get(rule.on)
    if schema is None:
        raise RuleSetError(f"on: there is no stream {rule.on!r}; there are {', '.join(sorted(streams)) or 'none'}")
    columns = {f.name: f.type for f in schema.fields}
    where = None
    if rule.where is not None:
        parsed = lang.parse(rule.where, Scope(columns), field="where", limits=limits.expression)
        where = lang.normalise(parsed)
    if rule.kind is Kind.WINDOW:
        return _windowed(rule, where, schema, columns, limits)
    if rule.kind is Kind.SEQUENCE:
        return _sequence(rule, where, schema, columns, limits)
    if rule.kind is not Kind.EVENT:
        raise RuleSetError(f"rules of kind {rule.kind} are not supported yet")
    assert where is not None  # the model refuses a rule per event without one
    placeholders = [Placeholder(name, name, kind) for name, kind in columns.items()]
    text, used = _message(rule, placeholders)
    return CompiledRule(rule, _digest(rule), where, text, used, plan=plan(where))


def _windowed(
    rule: Rule, where: Expr | None, schema: StreamSchema, columns: Mapping[str, Type], limits: RuleLimits
) -> CompiledRule:
    window = _window(rule, limits)
    group_by, route = _groups(rule, schema)
    having = _having(rule, {name: columns[name] for name in group_by}, columns, limits)
    aggregates = {a: _spec(a, where, rule.on, group_by, window.slide_ms) for a in lang.aggregates(having)}
    if len(aggregates) > limits.aggregates:
        raise RuleSetError(f"having: {len(aggregates)} aggregates, at most {limits.aggregates}")
    # Not the same name twice: the first aggregate of a function, in the order of the text, has the function's name.
    aliases = {s.function: Placeholder(s.function, s.column, s.type) for s in reversed(aggregates.values())}
    groups = {name: Placeholder(name, name, columns[name]) for name in group_by}
    text, used = _message(rule, [*(aliases | groups).values()])
    kept = _distinct(aggregates.values())
    return CompiledRule(
        rule=rule,
        digest=_digest(rule),
        where=where,
        having=having,
        group_by=group_by,
        route=route,
        window=window,
        aggregates=kept,
        figures=tuple(Figure(s.text, s.column, s.type) for s in kept),
        family=Kind.WINDOW,
        unit=window.slide_ms,
        having_on_columns=lang.replace_aggregates(having, {a: s.column for a, s in aggregates.items()}),
        message=text,
        placeholders=used,
    )


def _sequence(
    rule: Rule, where: Expr | None, schema: StreamSchema, columns: Mapping[str, Type], limits: RuleLimits
) -> CompiledRule:
    assert isinstance(rule.within, Span)
    if rule.within.span > limits.window_ms:
        longest = render_duration(limits.window_ms)
        raise RuleSetError(f"within: a sequence of {render_duration(rule.within.span)}, at most {longest}")
    group_by, route = _groups(rule, schema)
    sequence = compile_sequence(rule, group_by, where, columns, limits.expression)
    refuse_unknown_captures(rule, columns)
    named = {name: Placeholder(name, column, kind) for name, (column, kind) in NAMED.items()}
    captured = [Placeholder(c.name, c.name, c.type) for c in sequence.captures]
    groups = {name: Placeholder(name, name, columns[name]) for name in group_by}
    text, used = _message(rule, [*(named | groups).values(), *captured])
    return CompiledRule(
        rule=rule,
        digest=_digest(rule),
        where=where,
        message=text,
        placeholders=used,
        group_by=group_by,
        route=route,
        figures=(
            Figure("count", COUNT, LONG),
            Figure("duration_ms", DURATION, LONG),
            *(Figure(c.name, c.name, c.type) for c in sequence.captures),
        ),
        family=Kind.SEQUENCE,
        sequence=sequence,
    )


def _distinct(specs: Iterable[AggregateSpec]) -> tuple[AggregateSpec, ...]:
    """The first of each fingerprint: ``sum(a * b)`` and ``sum(b * a)`` are one aggregate."""
    found: dict[str, AggregateSpec] = {}
    for spec in specs:
        found.setdefault(spec.fingerprint, spec)
    return tuple(found.values())


def _window(rule: Rule, limits: RuleLimits) -> Window:
    if not isinstance(rule.within, Tumbling | Sliding):
        raise RuleSetError("within: session and count windows are not supported yet")
    window = Window(rule.within.size_ms, rule.within.slide_ms)
    if window.size_ms > limits.window_ms:
        longest = render_duration(limits.window_ms)
        raise RuleSetError(f"within: a window of {render_duration(window.size_ms)}, at most {longest}")
    if window.panes > limits.panes_per_window:
        raise RuleSetError(
            f"within: {window.panes} panes a window, at most {limits.panes_per_window}; make `every` longer"
        )
    return window


def _groups(rule: Rule, schema: StreamSchema) -> tuple[tuple[str, ...], int]:
    if unknown := [name for name in rule.group_by if schema.get(name) is None]:
        raise RuleSetError(f"group_by: stream {schema.name} has no {', '.join(unknown)}; it has {schema.names}")
    route = schema.route_for(rule.group_by)
    if route is None:
        keys = " or ".join(f"[{', '.join(key)}]" for key in schema.keys)
        raise RuleSetError(f"group_by: must contain one of the keys that {schema.name} is routed by: {keys}")
    return tuple(name for name in schema.names if name in rule.group_by), route


def _having(rule: Rule, groups: Mapping[str, Type], columns: Mapping[str, Type], limits: RuleLimits) -> Expr:
    assert rule.having is not None
    scope = Scope(groups, aggregates=True, arguments=columns)
    parsed = lang.parse(rule.having, scope, field="having", limits=limits.expression)
    if not lang.aggregates(parsed):
        raise RuleSetError("having: no aggregate in it, such as count(*); put conditions on events into `where`")
    return parsed


def _spec(
    aggregate: Aggregate, where: Expr | None, stream: str, group_by: tuple[str, ...], pane_ms: int
) -> AggregateSpec:
    argument = None if aggregate.argument is None else lang.normalise(aggregate.argument)
    identity = [
        stream,
        lang.fingerprint(where),
        list(group_by),
        lang.fingerprint(argument),
        aggregate.function,
        pane_ms,
    ]
    return AggregateSpec(
        function=aggregate.function,
        argument=argument,
        where=where,
        stream=stream,
        group_by=group_by,
        pane_ms=pane_ms,
        fingerprint=hashlib.blake2b(orjson.dumps(identity), digest_size=16).hexdigest(),
        text=lang.render(aggregate),
        type=aggregate.type,
    )


def _message(rule: Rule, placeholders: list[Placeholder]) -> tuple[Message, tuple[Placeholder, ...]]:
    known = {p.name: p for p in placeholders}
    text = message.parse(rule.then.message, known)
    return text, tuple(known[name] for name in dict.fromkeys(text.names))


def _digest(rule: Rule) -> str:
    return hashlib.blake2b(canonical_json(rule), digest_size=16).hexdigest()
