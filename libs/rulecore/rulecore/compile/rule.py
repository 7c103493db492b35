"""Compiles a rule: checks it against its stream and computes the parts that its evaluation needs.

Compiling is a pure function of the rule, the schemas, the limits and the types of the lists, and raises nothing but
``RuleError``. The fingerprint of an aggregate is a hash of the stream, the filter, ``group_by``, the argument, the
function and the pane. The threshold of ``having``, the length of the window and the rule's version are not part of it,
so the state stored under a fingerprint survives such changes and is shared by all rules with this aggregate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import orjson

from rulecore import language as lang
from rulecore.compile import absence as absence_spec
from rulecore.compile import feature as feature_specs
from rulecore.compile import score as scores_spec
from rulecore.compile import sequence as sequences
from rulecore.compile.absence import CompiledAbsence
from rulecore.compile.conditions import EventCondition, NameScope, compile_condition, compile_expr
from rulecore.compile.feature import CompiledFeature, FeatureLimits
from rulecore.compile.score import CompiledScore
from rulecore.compile.sequence import CompiledSequence
from rulecore.documents import message_template as message
from rulecore.documents.features import EventOrder, declared_features
from rulecore.documents.message_template import MessageTemplate
from rulecore.documents.published_feature import PublishedFeature
from rulecore.documents.rule import Rule, RuleKind, canonical_json
from rulecore.documents.rule_kinds import TimedOut, flatten_steps
from rulecore.documents.windows import CountSpec, SequenceSpan, SessionSpec, SlidingSpec, TumblingSpec
from rulecore.errors import RuleSetError
from rulecore.key_columns import Key, KeyColumn, parse_key_columns, with_key_columns
from rulecore.language import AggregateCall, Expr, ListType, Scope
from rulecore.language.suggestions import suggest_field
from rulecore.lists.list_columns import ListColumn, distinct, extract_list_columns
from rulecore.matching.access_plan import AccessPlan, plan_access
from rulecore.streams import find_stream, stream_names
from streamcore.durations import render_duration
from streamcore.schema import BOOLEAN, LONG, Kind, StreamSchema, Type

_DAY_MS = 86_400_000
_NUMBERS = frozenset({Kind.LONG, Kind.DOUBLE, Kind.DECIMAL})
_NO_LISTS: Mapping[str, ListType] = MappingProxyType({})
_NO_FEATURES: Mapping[str, PublishedFeature] = MappingProxyType({})

#: Families (``CompiledRule.family``) of window rules that have no panes of event time.
SESSION = "session"
COUNT = "count"
IN_ORDER = "in_order"
#: Of a family of feature rules, the ``GroupId.kind`` of their features in a stage of its own.
STAGE_FEATURE = "stage_feature"
STAGE_IN_ORDER = "stage_in_order"
STAGE_FAMILIES: Mapping[str, str] = MappingProxyType({RuleKind.FEATURE: STAGE_FEATURE, IN_ORDER: STAGE_IN_ORDER})


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
    #: Most keys by which the rules of a stream route its events.
    keys: int = 64
    #: Most bytes of staged parts: parts of releases that are not yet published.
    staged_bytes: int = 64 * 1024 * 1024
    #: Most matches of one rule in one cut and shard.
    matches: int = 100_000
    #: Most decision policies of the rule set.
    decision_policies: int = 100
    #: Most published features of the rule set.
    features: int = 1_000
    #: Whether features may have other keys than the rule that reads them.
    other_keys: bool = True
    #: Limits of an expression.
    expression: lang.ExpressionLimits = field(default_factory=lang.ExpressionLimits)


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Windows [start, start + size) of event time; one starts every ``slide_ms``. A pane is ``slide_ms`` long."""

    size_ms: int
    slide_ms: int

    @property
    def panes(self) -> int:
        """The number of panes in a window."""
        return self.size_ms // self.slide_ms


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """Sessions: runs of events of a key with less than ``gap_ms`` between neighbours."""

    gap_ms: int

    @property
    def panes(self) -> int:
        """Always 1: a session has no panes."""
        return 1


@dataclass(frozen=True, slots=True)
class EventCountWindow:
    """Windows of ``count`` events of a key; one ends after each ``every`` events. A pane is ``every`` events."""

    count: int
    every: int

    @property
    def panes(self) -> int:
        """The number of panes in a window."""
        return self.count // self.every


RuleWindow = TimeWindow | SessionWindow | EventCountWindow


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """One aggregate of a window rule. ``text``: its name in alerts; ``type``: the type of its result.

    ``group_by`` is in the order of the stream's fields, whatever its order in the rule.
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
        """The name of the column that replaces the aggregate in ``CompiledRule.having_on_columns``."""
        return f"agg_{self.fingerprint}"


@dataclass(frozen=True, slots=True)
class AlertField:
    """A value in a rule's alerts: its name there, its column in ``RuleFiring.values`` and its logical type."""

    text: str
    column: str
    type: Type


@dataclass(frozen=True, slots=True)
class MessageField:
    """A name in the message template, and the column (of the event, key or aggregate) that it shows, with its type."""

    name: str
    column: str
    type: Type


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A checked rule with everything that its evaluation needs.

    ``whole``: the rule with the definitions of the published features that it names, so that it stands alone.
    ``digest``: the hash of the canonical JSON of that. ``where``: the normalized condition; ``plan``: its access plan,
    of event rules, feature rules and absence rules. ``having``: the condition as the author wrote it;
    ``having_on_columns``: with a column for each aggregate; ``having_plan``: its access plan. ``placeholders``: the
    fields that the message shows.
    ``route_key``: the key by which the rule's events are routed. ``key_columns``: the columns of keys that are
    expressions. ``family`` and ``unit`` are the ``kind`` and ``unit`` of the rule's ``GroupId``.
    ``alert_fields``: the values in its alerts. ``sequence``, ``absence``, ``score`` and ``features`` are set for rules
    of that kind only. ``list_columns``: the columns with answers of lists that its conditions need. ``populations``:
    the lists whose entries an absence rule expects. ``reads``: the fields of its stream that its conditions, its state
    and its alerts need.
    """

    rule: Rule
    whole: Rule
    digest: str
    where: Expr | None
    message: MessageTemplate
    placeholders: tuple[MessageField, ...]
    having: Expr | None = None
    group_by: tuple[str, ...] = ()
    route_key: Key = ()
    key_columns: tuple[KeyColumn, ...] = ()
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
    features: tuple[CompiledFeature, ...] = ()
    list_columns: tuple[ListColumn, ...] = ()
    populations: tuple[str, ...] = ()
    reads: frozenset[str] = frozenset()

    @property
    def lists(self) -> frozenset[str]:
        """The names of the lists that its conditions use or whose entries it expects."""
        return frozenset((*(column.list.name for column in self.list_columns), *self.populations))

    @property
    def columns(self) -> tuple[KeyColumn | ListColumn, ...]:
        """The columns that are added to the events which the rule reads."""
        return (*self.key_columns, *self.list_columns)

    @property
    def kind(self) -> RuleKind:
        """The kind of the rule."""
        return self.rule.kind

    @property
    def state_key(self) -> tuple[str, ...]:
        """The ``group_by`` of the rule's ``GroupId``. Features have keys of their own; all that are routed by one key
        are in one group."""
        return self.route_key if self.features else self.group_by

    @property
    def other_keys(self) -> frozenset[Key]:
        """The keys of features that the events of the rule are not routed by."""
        return frozenset(one.route_key for one in self.features) - {self.route_key}

    @property
    def stage_features(self) -> tuple[CompiledFeature, ...]:
        """The features that an app with a stage for features computes there: those of other keys, and a published one,
        which rules of any key may read."""
        is_published = "/" in self.rule.id  # as no rule's id has (``compile.published_feature``)
        return tuple(one for one in self.features if is_published or one.route_key != self.route_key)

    @property
    def event_condition(self) -> Expr | None:
        """The part of ``where`` that reads no feature, if the rule has one: all events that it fires at satisfy it."""
        features = {one.column for one in self.features}
        terms = () if self.where is None else lang.conjuncts(self.where)
        own = tuple(term for term in terms if not lang.columns(term) & features)
        return None if not own else own[0] if len(own) == 1 else lang.And(terms=own)


def compile_rule(
    rule: Rule,
    streams: Mapping[str, StreamSchema],
    limits: RuleLimits,
    lists: Mapping[str, ListType] = _NO_LISTS,
    published: Mapping[str, PublishedFeature] = _NO_FEATURES,
) -> CompiledRule:
    """Check and compile a rule. Raise ``ExpressionError`` or ``RuleSetError`` if it is invalid. ``published``: the
    features that it may name."""
    schema = find_stream(streams, rule.on)
    whole = feature_specs.with_definitions(rule, published)
    keys = _key_columns(whole, schema)
    keyed = with_key_columns(schema, keys)
    compiled = _compile_kind(whole, keyed, NameScope.of_stream(keyed, lists, limits.expression), limits)
    compiled = replace(compiled, rule=rule, key_columns=keys)
    _check_members(compiled, [streams[name] for name in stream_names(rule.on)])
    fields = frozenset(schema.names)
    return replace(compiled, reads=fields if rule.then.event else fields & _read_fields(compiled))


def _key_columns(rule: Rule, schema: StreamSchema) -> tuple[KeyColumn, ...]:
    """Return the columns of the rule's keys that are expressions."""
    found = list(parse_key_columns(schema, rule.group_by))
    for number, feature in enumerate(declared_features(rule.features)):
        found += parse_key_columns(schema, feature.by, f"features.{number}.by")
    return tuple(sorted(set(found), key=lambda column: column.name))


def _check_members(rule: CompiledRule, members: Sequence[StreamSchema]) -> None:
    """Raise ``RuleSetError`` if the events of one of the streams of a union have no key to be routed by."""
    operands = {column.name: lang.columns(column.operand) for column in rule.key_columns}
    keys = [name for key in (rule.route_key, *sorted(rule.other_keys)) for name in key]
    needed = {field for name in keys for field in operands.get(name, {name})}
    for member in members if len(members) > 1 else ():
        if absent := sorted(name for name in needed if member.get(name) is None):
            raise RuleSetError(
                f"group_by: {member.name} has no {', '.join(absent)}, and all streams of a rule need its key; "
                "declare it in each with one name and type, with from: where it has another"
            )


def _read_fields(rule: CompiledRule) -> frozenset[str]:
    """Return the names of the columns that a rule reads: fields of its stream, and others."""
    exprs = [rule.where, *(column.operand for column in rule.columns)]
    exprs += [expr for spec in rule.aggregates for expr in (spec.argument, spec.where)]
    exprs += [expr for feature in rule.features for expr in (feature.argument, feature.where)]
    suppress = rule.rule.suppress
    names = {*(name for feature in rule.features for name in feature.by)}
    names |= {
        *rule.group_by,
        *rule.route_key,
        *(one.column for one in rule.placeholders),
        *(() if suppress is None else suppress.by),
    }
    if rule.sequence is not None:
        names |= rule.sequence.columns
    return frozenset(names).union(*(lang.columns(expr) for expr in exprs if expr is not None))


def _compile_kind(rule: Rule, schema: StreamSchema, names: NameScope, limits: RuleLimits) -> CompiledRule:
    if rule.kind is RuleKind.FEATURE:
        return _compile_feature_rule(rule, schema, names, limits)
    event_key = _event_key(rule, schema) if rule.kind is RuleKind.EVENT else ()
    event_names = replace(names, steps=tuple(item.step for item in flatten_steps(rule.sequence or ())))
    where = None if rule.where is None else compile_condition(rule.where, "where", event_names)
    if rule.kind is RuleKind.WINDOW:
        return _compile_window_rule(rule, where, schema, names, limits)
    if rule.kind is RuleKind.SEQUENCE:
        return _compile_sequence_rule(rule, where, schema, names, limits)
    if rule.kind is RuleKind.ABSENCE:
        return _compile_absence_rule(rule, schema, names)
    if rule.kind is RuleKind.SCORE:
        return _compile_score_rule(rule, schema, names)
    if rule.kind is not RuleKind.EVENT:
        raise RuleSetError(f"rules of kind {rule.kind} are not supported yet")
    assert where is not None, "the document model rejects an event rule without a condition"
    placeholders = [MessageField(name, name, kind) for name, kind in names.columns.items()]
    text, used = _parse_message(rule, placeholders)
    return CompiledRule(
        rule=rule,
        whole=rule,
        digest=_digest(rule),
        where=where.expr,
        message=text,
        placeholders=used,
        route_key=event_key,
        plan=plan_access(where.expr),
        list_columns=where.list_columns,
    )


def _event_key(rule: Rule, schema: StreamSchema) -> Key:
    """Return the key by which all events with equal values of ``suppress.by`` reach one shard; without it any."""
    if rule.suppress is not None:
        return route_key_for(schema, rule.suppress.by, "suppress.by")
    if not schema.keys:
        names = ", ".join(stream_names(rule.on))
        raise RuleSetError(
            f"on: {names} have no key in common: the same fields, with the same names and types, under keys"
        )
    return schema.keys[0]


def check_suppress(rule: Rule, route_key: Key) -> None:
    """Raise ``RuleSetError`` if alerts with equal values of ``suppress.by`` would come from several shards."""
    by = rule.suppress.by if rule.suppress is not None else ()
    if not by:
        return
    if unknown := [name for name in by if name not in rule.group_by]:
        raise RuleSetError(f"suppress.by: {', '.join(unknown)} is not in group_by; an alert has only those columns")
    if missing := [name for name in route_key if name not in by]:
        raise RuleSetError(f"suppress.by: must contain {', '.join(missing)}, which the rule's events are routed by")


def _compile_window_rule(
    rule: Rule, condition: EventCondition | None, schema: StreamSchema, names: NameScope, limits: RuleLimits
) -> CompiledRule:
    window, family, unit = _compile_window(rule, limits)
    group_by, route_key = grouping_for(rule, schema)
    columns, where = names.columns, None if condition is None else condition.expr
    having = _parse_having(rule, {name: columns[name] for name in group_by}, names)
    aggregates = {
        a: _compile_aggregate(a, where, rule.on, group_by, _pane_identity(family, unit))
        for a in lang.aggregates(having)
    }
    if len(aggregates) > limits.aggregates:
        raise RuleSetError(f"having: {len(aggregates)} aggregates, at most {limits.aggregates}")
    # In the message, the name of a function means its first aggregate in the text; another is written as a whole.
    aliases = {s.function: MessageField(s.function, s.column, s.type) for s in reversed(aggregates.values())}
    aliases |= {s.text: MessageField(s.text, s.column, s.type) for s in aggregates.values()}
    groups = {name: MessageField(name, name, columns[name]) for name in group_by}
    text, used = _parse_message(rule, [*(aliases | groups).values()])
    specs = _first_by_fingerprint(aggregates.values())
    on_columns = lang.replace_aggregates(having, {a: s.column for a, s in aggregates.items()})
    return CompiledRule(
        rule=rule,
        whole=rule,
        digest=_digest(rule),
        where=where,
        having=having,
        group_by=group_by,
        route_key=route_key,
        window=window,
        aggregates=specs,
        alert_fields=tuple(AlertField(s.text, s.column, s.type) for s in specs),
        family=family,
        unit=unit,
        having_on_columns=on_columns,
        having_plan=plan_access(lang.normalize(on_columns)),
        message=text,
        placeholders=used,
        list_columns=distinct((*(condition.list_columns if condition else ()), *extract_list_columns(having)[1])),
    )


def _compile_sequence_rule(
    rule: Rule, where: EventCondition | None, schema: StreamSchema, names: NameScope, limits: RuleLimits
) -> CompiledRule:
    assert isinstance(rule.within, SequenceSpan), "the document model rejects a sequence rule without a time span"
    if rule.within.span > limits.window_ms:
        longest = render_duration(limits.window_ms)
        raise RuleSetError(f"within: a sequence of {render_duration(rule.within.span)}, at most {longest}")
    group_by, route_key = grouping_for(rule, schema)
    columns, common = names.columns, None if where is None else where.expr
    sequence, list_columns = sequences.compile_sequence(rule, group_by, common, names)
    named = {name: MessageField(name, column, kind) for name, (column, kind) in sequences.MESSAGE_FIELDS.items()}
    captured = [MessageField(c.name, c.name, c.read.type) for c in sequence.captures]
    groups = {name: MessageField(name, name, columns[name]) for name in group_by}
    step = flatten_steps(rule.sequence or ())[0].step
    more = f", and of the events of a step such as {{{step}.{next(iter(columns))}}}, {{count({step})}}"
    text, used = _parse_message(rule, [*(named | groups).values(), *captured], more)
    return CompiledRule(
        rule=rule,
        whole=rule,
        digest=_digest(rule),
        where=common,
        message=text,
        placeholders=used,
        group_by=group_by,
        route_key=route_key,
        alert_fields=(
            AlertField("count", sequences.COUNT, LONG),
            AlertField("duration_ms", sequences.DURATION, LONG),
            *([AlertField("timed_out", sequences.TIMED_OUT, BOOLEAN)] if rule.timed_out is TimedOut.EMIT else []),
            *(AlertField(c.name, c.name, c.read.type) for c in sequence.captures),
        ),
        family=RuleKind.SEQUENCE,
        sequence=sequence,
        list_columns=distinct((*(where.list_columns if where else ()), *list_columns)),
    )


def _compile_absence_rule(rule: Rule, schema: StreamSchema, names: NameScope) -> CompiledRule:
    group_by, route_key = grouping_for(rule, schema)
    assert rule.expect is not None, "an absence rule"
    expected = compile_condition(rule.expect.where, "expect.where", names)
    spec = absence_spec.compile_absence(rule, schema, group_by, expected.expr, names.lists)
    alert_fields = tuple(AlertField(name, f"__{name}", kind) for name, kind in absence_spec.ALERT_FIELDS)
    text, used = _parse_message(rule, _message_fields(group_by, names.columns, alert_fields))
    return CompiledRule(
        rule=rule,
        whole=rule,
        digest=_digest(rule),
        where=spec.where,
        message=text,
        placeholders=used,
        group_by=group_by,
        route_key=route_key,
        plan=plan_access(spec.where),
        alert_fields=alert_fields,
        family=RuleKind.ABSENCE,
        absence=spec,
        list_columns=expected.list_columns,
        populations=() if spec.listed is None else (spec.listed,),
    )


def _compile_score_rule(rule: Rule, schema: StreamSchema, names: NameScope) -> CompiledRule:
    group_by, route_key = grouping_for(rule, schema)
    alert_fields = tuple(AlertField(name, f"__{name}", kind) for name, kind in scores_spec.ALERT_FIELDS)
    text, used = _parse_message(rule, _message_fields(group_by, names.columns, alert_fields))
    return CompiledRule(
        rule=rule,
        whole=rule,
        digest=_digest(rule),
        where=None,
        message=text,
        placeholders=used,
        group_by=group_by,
        route_key=route_key,
        alert_fields=alert_fields,
        family=RuleKind.SCORE,
        score=scores_spec.compile_score(rule),
    )


def _compile_feature_rule(rule: Rule, schema: StreamSchema, names: NameScope, limits: RuleLimits) -> CompiledRule:
    group_by, route_key = grouping_for(rule, schema)
    most = FeatureLimits(limits.window_ms, limits.panes_per_window, limits.other_keys)
    features, own_lists = feature_specs.compile_features(rule, schema, names, route_key, most)
    assert rule.where is not None, "the document model rejects a feature rule without a condition"
    with_features = feature_specs.with_features(names, features)
    written = compile_condition(rule.where, "where", with_features)
    by_name = {feature.name: feature.column for feature in features}
    for column in written.list_columns:
        if asked := sorted(lang.columns(column.operand) & by_name.keys()):
            raise RuleSetError(f"where: list {column.list.name} is asked for {asked[0]}, a feature; ask for a field")
    where = lang.normalize(feature_specs.rename_features(written.expr, by_name))
    placeholders = [MessageField(n, by_name.get(n, n), kind) for n, kind in with_features.columns.items()]
    text, used = _parse_message(rule, placeholders)
    return CompiledRule(
        rule=rule,
        whole=rule,
        digest=_digest(rule),
        where=where,
        message=text,
        placeholders=used,
        group_by=group_by,
        route_key=route_key,
        plan=plan_access(where),
        alert_fields=tuple(AlertField(f.name, f.column, f.type) for f in features),
        family=IN_ORDER if rule.order is EventOrder.IN_ORDER else RuleKind.FEATURE,
        features=features,
        list_columns=distinct((*own_lists, *written.list_columns)),
    )


def _message_fields(
    group_by: tuple[str, ...], columns: Mapping[str, Type], alert_fields: Iterable[AlertField]
) -> list[MessageField]:
    """Return the fields that a message may name: key columns and alert fields. A key column hides an alert field."""
    fields = {f.text: MessageField(f.text, f.column, f.type) for f in alert_fields}
    return [*(fields | {name: MessageField(name, name, columns[name]) for name in group_by}).values()]


def _first_by_fingerprint(specs: Iterable[AggregateSpec]) -> tuple[AggregateSpec, ...]:
    """Return the first aggregate of each fingerprint: ``sum(a * b)`` and ``sum(b * a)`` are one aggregate."""
    by_fingerprint: dict[str, AggregateSpec] = {}
    for spec in specs:
        by_fingerprint.setdefault(spec.fingerprint, spec)
    return tuple(by_fingerprint.values())


def _compile_window(rule: Rule, limits: RuleLimits) -> tuple[RuleWindow, str, int]:
    """Return the window, and the ``family`` and ``unit`` of the compiled rule."""
    within = rule.within
    if isinstance(within, TumblingSpec | SlidingSpec):
        _check_length(within.size_ms, limits)
        window = TimeWindow(within.size_ms, within.slide_ms)
        _check_panes(window.panes, limits)
        return window, RuleKind.WINDOW, window.slide_ms
    if isinstance(within, SessionSpec):
        _check_length(within.session, limits)
        return SessionWindow(within.session), SESSION, within.session
    assert isinstance(within, CountSpec), "the document model rejects a window rule without a window"
    every = within.every or within.count
    if within.count % every:
        raise RuleSetError(f"within: every: {every} must divide count: {within.count}")
    _check_panes(within.count // every, limits)
    return EventCountWindow(within.count, every), COUNT, every


def _check_length(size_ms: int, limits: RuleLimits) -> None:
    if size_ms > limits.window_ms:
        longest = render_duration(limits.window_ms)
        raise RuleSetError(f"within: a window of {render_duration(size_ms)}, at most {longest}")


def _check_panes(panes: int, limits: RuleLimits) -> None:
    if panes > limits.panes_per_window:
        raise RuleSetError(f"within: {panes} panes a window, at most {limits.panes_per_window}; make `every` longer")


def _pane_identity(family: str, unit: int) -> object:
    """Return the pane as a part of an aggregate's fingerprint."""
    return unit if family == RuleKind.WINDOW else [family, unit]


def grouping_for(rule: Rule, schema: StreamSchema) -> tuple[Key, Key]:
    """Return the columns of ``group_by``, and the key that routes its events; both in the order of the stream's fields,
    with those that are expressions behind them."""
    route_key = route_key_for(schema, rule.group_by, "group_by")
    check_suppress(rule, route_key)
    return _in_order(schema, rule.group_by), route_key


def _in_order(schema: StreamSchema, columns: Key) -> Key:
    return tuple(name for name in schema.names if name in columns)


def route_key_for(schema: StreamSchema, columns: Key, field: str) -> Key:
    """Return the key by which all events with equal values of these columns reach one shard.

    ``field``: the field of the rule that names the columns, for the ``RuleSetError`` if there can be none.
    """
    if unknown := [name for name in columns if schema.get(name) is None]:
        raise RuleSetError(
            f"{field}: stream {schema.name} has no {', '.join(unknown)}; {suggest_field(unknown[0], schema)}"
        )
    if nested := [name for name in columns if (found := schema.get(name)) is not None and found.type.is_nested]:
        hint = "declare the value in it as a field of its own, with from:"
        raise RuleSetError(f"{field}: {', '.join(nested)} is no single value of {schema.name}; {hint}")
    return schema.routing_key(_in_order(schema, columns))


def _parse_having(rule: Rule, groups: Mapping[str, Type], names: NameScope) -> Expr:
    """Return the parsed ``having``. ``groups``: the columns of ``group_by`` with their types."""
    assert rule.having is not None
    scope = Scope(groups, aggregates=True, arguments=names.columns, lists=names.lists)
    parsed = lang.parse(rule.having, scope, field="having", limits=names.limits)
    if not lang.aggregates(parsed):
        raise RuleSetError("having: has no aggregate, such as count(*); write conditions on events into `where`")
    return parsed


def _compile_aggregate(
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


def _parse_message(
    rule: Rule, placeholders: list[MessageField], more: str = ""
) -> tuple[MessageTemplate, tuple[MessageField, ...]]:
    """Return the parsed message, and those of the placeholders that it uses. ``more``: see ``parse_template``."""
    known = {p.name: p for p in placeholders}
    numbers = {p.name for p in placeholders if p.type.kind in _NUMBERS}
    text = message.parse_template(rule.then.message, known, more, numbers)
    return text, tuple(known[name] for name in dict.fromkeys(text.names))


def _digest(rule: Rule) -> str:
    """Return the hash of the rule's canonical JSON."""
    return hashlib.blake2b(canonical_json(rule), digest_size=16).hexdigest()
