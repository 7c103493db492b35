"""A rule that has been checked against its stream, with everything that evaluation needs worked out once.

Promises: compiling is a pure function of the rule, the schema and the limits, and raises nothing but ``RuleError``. An
aggregate's fingerprint identifies *the counted values*: stream, filter, groups, value, function and pane. Neither the
threshold of ``having`` nor the length of the window nor the rule's version is part of it, so state kept under it
outlives such changes and is shared by all rules that count the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import orjson

from rulecore import language as lang
from rulecore.compile import absence as absence_spec
from rulecore.compile import score as scores_spec
from rulecore.compile import sequence as sequences
from rulecore.compile.absence import CompiledAbsence
from rulecore.compile.conditions import EventCondition, NameScope, compile_condition, compile_expr
from rulecore.compile.score import CompiledScore
from rulecore.compile.sequence import CompiledSequence
from rulecore.documents import message_template as message
from rulecore.documents.message_template import MessageTemplate
from rulecore.documents.rule import Rule, RuleKind, canonical_json
from rulecore.documents.scalars import render_duration
from rulecore.documents.windows import CountSpec, SequenceSpan, SessionSpec, SlidingSpec, TumblingSpec
from rulecore.errors import RuleSetError
from rulecore.language import AggregateCall, Expr, ListType, Scope
from rulecore.lists.list_columns import ListColumn, distinct, extract_list_columns
from rulecore.matching.access_plan import AccessPlan, plan_access
from streamcore.schema import LONG, StreamSchema, Type

_DAY_MS = 86_400_000
_NO_LISTS: Mapping[str, ListType] = MappingProxyType({})

#: Families of windowed rules that do not share panes of event time.
SESSION = "session"
COUNT = "count"


@dataclass(frozen=True, slots=True)
class RuleLimits:
    """Limits of one rule and of the rule set."""

    #: Most rules of the rule set.
    rules: int = 20_000
    #: Most bytes of the record of a rule.
    record_bytes: int = 64 * 1024
    #: Most panes of a sliding window: its length divided by its slide.
    panes_per_window: int = 2_000
    #: Longest window in milliseconds.
    window_ms: int = 400 * _DAY_MS
    #: Most aggregates of a rule.
    aggregates: int = 16
    #: Most bytes of parts whose release has not come yet.
    staged_bytes: int = 64 * 1024 * 1024
    #: Most matches of one rule in one cut and shard.
    matches: int = 100_000
    #: Limits of an expression.
    expression: lang.ExpressionLimits = field(default_factory=lang.ExpressionLimits)


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """[start, start + size), a start every ``slide_ms``; a pane is ``slide_ms`` long."""

    size_ms: int
    slide_ms: int

    @property
    def panes(self) -> int:
        """Panes in a window."""
        return self.size_ms // self.slide_ms


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """Runs of events with less than a gap between neighbours."""

    gap_ms: int

    @property
    def panes(self) -> int:
        """A session is one piece."""
        return 1


@dataclass(frozen=True, slots=True)
class EventCountWindow:
    """``count`` events of a key, a window every ``every`` events; a pane is ``every`` events."""

    count: int
    every: int

    @property
    def panes(self) -> int:
        """Panes in a window."""
        return self.count // self.every


RuleWindow = TimeWindow | SessionWindow | EventCountWindow


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
    fingerprint: str
    text: str
    type: Type

    @property
    def column(self) -> str:
        """The column that stands for the aggregate in ``CompiledRule.having_on_columns``."""
        return f"agg_{self.fingerprint}"


@dataclass(frozen=True, slots=True)
class AlertField:
    """A value that alerts of a rule show: its name there, its column in ``Firing.values`` and its logical type."""

    text: str
    column: str
    type: Type


@dataclass(frozen=True, slots=True)
class MessageField:
    """The column behind a name in the message: an event's, a group's or an aggregate's column, and its logical type."""

    name: str
    column: str
    type: Type


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """``digest`` is that of the canonical JSON. A rule per event has a ``plan`` and no window, groups, aggregates.
    An absence rule has the plan of the event that it expects; ``absence`` and ``score`` are those kinds' own entries.

    ``family`` and ``unit`` determine which rules share state, see ``groups.GroupId``. ``alert_fields``: the values in
    alerts.

    ``where`` is normalized, ``having`` is as its author wrote it; ``having_plan`` is how it is looked up. ``route`` is
    the index of the stream's key that the rule's events are routed by (a rule per event sees each event once, under any
    of the keys). ``list_columns`` are the columns that its conditions need besides the stream's: answers of lists;
    ``populations`` are lists whose entries it expects.
    """

    rule: Rule
    digest: str
    where: Expr | None
    message: MessageTemplate
    placeholders: tuple[MessageField, ...]
    having: Expr | None = None
    group_by: tuple[str, ...] = ()
    route: int = 0
    window: RuleWindow | None = None
    aggregates: tuple[AggregateSpec, ...] = ()
    having_on_columns: Expr | None = None
    having_plan: AccessPlan | None = None
    plan: AccessPlan | None = None
    alert_fields: tuple[AlertField, ...] = ()
    family: str = RuleKind.EVENT
    unit: int = 0
    sequence: CompiledSequence | None = None
    absence: CompiledAbsence | None = None
    score: CompiledScore | None = None
    list_columns: tuple[ListColumn, ...] = ()
    populations: tuple[str, ...] = ()

    @property
    def lists(self) -> frozenset[str]:
        """Names of the lists that it asks, or whose entries it expects."""
        return frozenset((*(column.list.name for column in self.list_columns), *self.populations))

    @property
    def kind(self) -> RuleKind:
        """The kind of input that the rule evaluates."""
        return self.rule.kind


def compile_rule(
    rule: Rule, streams: Mapping[str, StreamSchema], limits: RuleLimits, lists: Mapping[str, ListType] = _NO_LISTS
) -> CompiledRule:
    """Check and compile a rule; raise ``ExpressionError`` with a place, or ``RuleSetError``, for a fault."""
    schema = streams.get(rule.on)
    if schema is None:
        raise RuleSetError(f"on: there is no stream {rule.on!r}; there are {', '.join(sorted(streams)) or 'none'}")
    names = NameScope.of_stream(schema, lists, limits.expression)
    where = None if rule.where is None else compile_condition(rule.where, "where", names)
    if rule.kind is RuleKind.WINDOW:
        return _compile_windowed(rule, where, schema, names, limits)
    if rule.kind is RuleKind.SEQUENCE:
        return _sequence(rule, where, schema, names, limits)
    if rule.kind is RuleKind.ABSENCE:
        return _absence(rule, schema, names)
    if rule.kind is RuleKind.SCORE:
        return _score(rule, schema, names)
    if rule.kind is not RuleKind.EVENT:
        raise RuleSetError(f"rules of kind {rule.kind} are not supported yet")
    assert where is not None  # the model refuses a rule per event without one
    placeholders = [MessageField(name, name, kind) for name, kind in names.columns.items()]
    text, used = _message(rule, placeholders)
    return CompiledRule(
        rule=rule,
        digest=_digest(rule),
        where=where.expr,
        message=text,
        placeholders=used,
        route=_suppress_route(rule, schema),
        plan=plan_access(where.expr),
        list_columns=where.list_columns,
    )


def _suppress_route(rule: Rule, schema: StreamSchema) -> int:
    """Return the route under which all events with the same values of ``suppress.by`` come to one shard."""
    if rule.suppress is None:
        return 0
    return route_for(schema, rule.suppress.by, "suppress.by")


def check_suppress(rule: Rule, schema: StreamSchema, route: int) -> None:
    """Raise ``RuleSetError`` when alerts that are distinguished by ``suppress.by`` would come from several shards."""
    by = rule.suppress.by if rule.suppress is not None else ()
    if not by:
        return
    if other := [name for name in by if name not in rule.group_by]:
        raise RuleSetError(f"suppress.by: {', '.join(other)} is not in group_by; an alert has only those columns")
    if missing := [name for name in schema.keys[route] if name not in by]:
        raise RuleSetError(f"suppress.by: must contain {', '.join(missing)}, which the rule's events are routed by")


def _compile_windowed(
    rule: Rule, condition: EventCondition | None, schema: StreamSchema, names: NameScope, limits: RuleLimits
) -> CompiledRule:
    window, family, unit = _window(rule, limits)
    group_by, route = grouping_for(rule, schema)
    columns, where = names.columns, None if condition is None else condition.expr
    having = _having(rule, {name: columns[name] for name in group_by}, names)
    aggregates = {a: _spec(a, where, rule.on, group_by, _pane(family, unit)) for a in lang.aggregates(having)}
    if len(aggregates) > limits.aggregates:
        raise RuleSetError(f"having: {len(aggregates)} aggregates, at most {limits.aggregates}")
    # Not the same name twice: the first aggregate of a function, in the order of the text, has the function's name.
    aliases = {s.function: MessageField(s.function, s.column, s.type) for s in reversed(aggregates.values())}
    groups = {name: MessageField(name, name, columns[name]) for name in group_by}
    text, used = _message(rule, [*(aliases | groups).values()])
    kept = _distinct(aggregates.values())
    on_columns = lang.replace_aggregates(having, {a: s.column for a, s in aggregates.items()})
    return CompiledRule(
        rule=rule,
        digest=_digest(rule),
        where=where,
        having=having,
        group_by=group_by,
        route=route,
        window=window,
        aggregates=kept,
        alert_fields=tuple(AlertField(s.text, s.column, s.type) for s in kept),
        family=family,
        unit=unit,
        having_on_columns=on_columns,
        having_plan=plan_access(lang.normalize(on_columns)),
        message=text,
        placeholders=used,
        list_columns=distinct((*(condition.list_columns if condition else ()), *extract_list_columns(having)[1])),
    )


def _sequence(
    rule: Rule, where: EventCondition | None, schema: StreamSchema, names: NameScope, limits: RuleLimits
) -> CompiledRule:
    assert isinstance(rule.within, SequenceSpan), "a sequence has a length"
    if rule.within.span > limits.window_ms:
        longest = render_duration(limits.window_ms)
        raise RuleSetError(f"within: a sequence of {render_duration(rule.within.span)}, at most {longest}")
    group_by, route = grouping_for(rule, schema)
    columns, common = names.columns, None if where is None else where.expr
    sequence, list_columns = sequences.compile_sequence(rule, group_by, common, names)
    sequences.check_captures(rule, columns)
    named = {name: MessageField(name, column, kind) for name, (column, kind) in sequences.MESSAGE_FIELDS.items()}
    captured = [MessageField(c.name, c.name, c.type) for c in sequence.captures]
    groups = {name: MessageField(name, name, columns[name]) for name in group_by}
    text, used = _message(rule, [*(named | groups).values(), *captured])
    return CompiledRule(
        rule=rule,
        digest=_digest(rule),
        where=common,
        message=text,
        placeholders=used,
        group_by=group_by,
        route=route,
        alert_fields=(
            AlertField("count", sequences.COUNT, LONG),
            AlertField("duration_ms", sequences.DURATION, LONG),
            *(AlertField(c.name, c.name, c.type) for c in sequence.captures),
        ),
        family=RuleKind.SEQUENCE,
        sequence=sequence,
        list_columns=distinct((*(where.list_columns if where else ()), *list_columns)),
    )


def _absence(rule: Rule, schema: StreamSchema, names: NameScope) -> CompiledRule:
    group_by, route = grouping_for(rule, schema)
    assert rule.expect is not None, "an absence rule"
    expected = compile_condition(rule.expect.where, "expect.where", names)
    spec = absence_spec.compile_absence(rule, schema, group_by, expected.expr, names.lists)
    alert_fields = tuple(AlertField(name, f"__{name}", kind) for name, kind in absence_spec.ALERT_FIELDS)
    text, used = _message(rule, _message_fields(group_by, names.columns, alert_fields))
    return CompiledRule(
        rule=rule,
        digest=_digest(rule),
        where=spec.where,
        message=text,
        placeholders=used,
        group_by=group_by,
        route=route,
        plan=plan_access(spec.where),
        alert_fields=alert_fields,
        family=RuleKind.ABSENCE,
        absence=spec,
        list_columns=expected.list_columns,
        populations=() if spec.listed is None else (spec.listed,),
    )


def _score(rule: Rule, schema: StreamSchema, names: NameScope) -> CompiledRule:
    group_by, route = grouping_for(rule, schema)
    alert_fields = tuple(AlertField(name, f"__{name}", kind) for name, kind in scores_spec.ALERT_FIELDS)
    text, used = _message(rule, _message_fields(group_by, names.columns, alert_fields))
    return CompiledRule(
        rule=rule,
        digest=_digest(rule),
        where=None,
        message=text,
        placeholders=used,
        group_by=group_by,
        route=route,
        alert_fields=alert_fields,
        family=RuleKind.SCORE,
        score=scores_spec.compile_score(rule),
    )


def _message_fields(
    group_by: tuple[str, ...], columns: Mapping[str, Type], alert_fields: Iterable[AlertField]
) -> list[MessageField]:
    """Return the fields that a message may name: the key and the alert fields.

    A key column hides an alert field of its name.
    """
    fields = {f.text: MessageField(f.text, f.column, f.type) for f in alert_fields}
    return [*(fields | {name: MessageField(name, name, columns[name]) for name in group_by}).values()]


def _distinct(specs: Iterable[AggregateSpec]) -> tuple[AggregateSpec, ...]:
    """Return the first of each fingerprint: ``sum(a * b)`` and ``sum(b * a)`` are one aggregate."""
    found: dict[str, AggregateSpec] = {}
    for spec in specs:
        found.setdefault(spec.fingerprint, spec)
    return tuple(found.values())


def _window(rule: Rule, limits: RuleLimits) -> tuple[RuleWindow, str, int]:
    """Return the window, and the family and unit of its group."""
    within = rule.within
    if isinstance(within, TumblingSpec | SlidingSpec):
        _check_length(within.size_ms, limits)
        window = TimeWindow(within.size_ms, within.slide_ms)
        _check_panes(window.panes, limits)
        return window, RuleKind.WINDOW, window.slide_ms
    if isinstance(within, SessionSpec):
        _check_length(within.session, limits)
        return SessionWindow(within.session), SESSION, within.session
    assert isinstance(within, CountSpec), "the model refuses a windowed rule without a window"
    every = within.every or within.count
    if within.count % every:
        raise RuleSetError(
            f"within: every: {every} must divide count: {within.count}, for a window is made of whole pieces"
        )
    _check_panes(within.count // every, limits)
    return EventCountWindow(within.count, every), COUNT, every


def _check_length(size_ms: int, limits: RuleLimits) -> None:
    if size_ms > limits.window_ms:
        longest = render_duration(limits.window_ms)
        raise RuleSetError(f"within: a window of {render_duration(size_ms)}, at most {longest}")


def _check_panes(panes: int, limits: RuleLimits) -> None:
    if panes > limits.panes_per_window:
        raise RuleSetError(f"within: {panes} panes a window, at most {limits.panes_per_window}; make `every` longer")


def _pane(family: str, unit: int) -> object:
    """Return the part of the window that belongs to an aggregate's identity."""
    return unit if family == RuleKind.WINDOW else [family, unit]


def grouping_for(rule: Rule, schema: StreamSchema) -> tuple[tuple[str, ...], int]:
    """Return the columns of ``group_by`` in the order of the stream, and the route of their events."""
    route = route_for(schema, rule.group_by, "group_by")
    check_suppress(rule, schema, route)
    return tuple(name for name in schema.names if name in rule.group_by), route


def route_for(schema: StreamSchema, columns: tuple[str, ...], field: str) -> int:
    """Return the route under which all events with the same values of these columns come to one shard."""
    if unknown := [name for name in columns if schema.get(name) is None]:
        raise RuleSetError(f"{field}: stream {schema.name} has no {', '.join(unknown)}; it has {schema.names}")
    route = schema.route_for(columns)
    if route is None:
        keys = " or ".join(f"[{', '.join(key)}]" for key in schema.keys)
        raise RuleSetError(f"{field}: must contain one of the keys that {schema.name} is routed by: {keys}")
    return route


def _having(rule: Rule, groups: Mapping[str, Type], names: NameScope) -> Expr:
    assert rule.having is not None
    scope = Scope(groups, aggregates=True, arguments=names.columns, lists=names.lists)
    parsed = lang.parse(rule.having, scope, field="having", limits=names.limits)
    if not lang.aggregates(parsed):
        raise RuleSetError("having: no aggregate in it, such as count(*); put conditions on events into `where`")
    return parsed


def _spec(
    aggregate: AggregateCall, where: Expr | None, stream: str, group_by: tuple[str, ...], pane: object
) -> AggregateSpec:
    argument = None if aggregate.argument is None else compile_expr(aggregate.argument).expr
    identity = [
        stream,
        lang.fingerprint(where),
        list(group_by),
        lang.fingerprint(argument),
        aggregate.function,
        pane,
    ]
    return AggregateSpec(
        function=aggregate.function,
        argument=argument,
        where=where,
        stream=stream,
        group_by=group_by,
        fingerprint=hashlib.blake2b(orjson.dumps(identity), digest_size=16).hexdigest(),
        text=lang.render(aggregate),
        type=aggregate.type,
    )


def _message(rule: Rule, placeholders: list[MessageField]) -> tuple[MessageTemplate, tuple[MessageField, ...]]:
    known = {p.name: p for p in placeholders}
    text = message.parse_template(rule.then.message, known)
    return text, tuple(known[name] for name in dict.fromkeys(text.names))


def _digest(rule: Rule) -> str:
    return hashlib.blake2b(canonical_json(rule), digest_size=16).hexdigest()
