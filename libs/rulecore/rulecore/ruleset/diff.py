"""The changes that publishing rules would make to the live rules, entry by entry, and to their state.

Two conditions are *equivalent* if they have one normal form: their aggregates then do not change. Not all conditions
with equal results have one normal form (see ``lang.normalize``), so two conditions that are not equivalent may still
select the same events. State follows the fingerprints of aggregates: state that any live rule already counts is kept,
and state that no rule counts any more is dropped.

A pure function of rules and streams. It does not know files and topics.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from rulecore import language as lang
from rulecore.compile.feature import CompiledFeature
from rulecore.compile.rule import (
    AggregateSpec,
    CompiledRule,
    EventCountWindow,
    RuleLimits,
    SessionWindow,
    TimeWindow,
    compile_rule,
)
from rulecore.documents.base import DocumentModel
from rulecore.documents.decision_policy import DecisionPolicy
from rulecore.documents.published_feature import PublishedFeature
from rulecore.documents.rule import Rule, RuleKind, RuleMode
from rulecore.documents.status import Subject
from rulecore.documents.yaml_reader import Json, PathKey, dotted_path
from rulecore.errors import RuleError
from rulecore.key_columns import keyed_schema
from rulecore.language import Expr, Scope
from rulecore.streams import find_stream
from streamcore.durations import render_duration
from streamcore.schema import StreamSchema, Type

#: A document with a name of its own, beside the rules.
NamedDocument = DecisionPolicy | PublishedFeature
_EXPRESSIONS: Final = frozenset({"where", "having", "without"})
_WITHOUT_STATE: Final = frozenset({RuleMode.DRAFT, RuleMode.RETIRED})


class RuleChangeKind(enum.StrEnum):
    """The kind of change to a rule."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    SAME = "same"


class StateOutcome(enum.StrEnum):
    """The effect of publishing on a part of a rule's state."""

    KEPT = "kept"
    NEW = "new"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class NormalForms:
    """Both normal forms of a condition that changed, as text."""

    old: str
    new: str
    equivalent: bool


@dataclass(frozen=True, slots=True)
class FieldChange:
    """An entry of the document that changed; ``old`` or ``new`` is None where the entry is missing or null.

    ``normal_forms``: set for a condition that parses before and after the change.
    """

    path: str
    old: Json
    new: Json
    normal_forms: NormalForms | None = None


@dataclass(frozen=True, slots=True)
class StateChange:
    """The change of one part of a rule's state.

    ``state_name``: readable text, such as an aggregate with its keys and window. ``incomplete_ms``: milliseconds until
    the first window is complete; None if not known.
    """

    state_name: str
    outcome: StateOutcome
    incomplete_ms: int | None = 0


@dataclass(frozen=True, slots=True)
class RuleDiff:
    """The change of one rule, or of a decision policy or published feature (``subject``). ``rule``: its id or name.

    ``rejection_reason``: why the app would reject the new version; None if it would accept it. ``required_version``:
    the version that a rejected one must have to be accepted.
    """

    rule: str
    change: RuleChangeKind
    old_version: int | None
    new_version: int | None
    fields: tuple[FieldChange, ...] = ()
    state: tuple[StateChange, ...] = ()
    rejection_reason: str | None = None
    required_version: int | None = None
    subject: Subject = Subject.RULE


def diff_named(
    subject: Subject, live: Mapping[str, NamedDocument], wanted: Mapping[str, NamedDocument], *, whole: bool = False
) -> tuple[RuleDiff, ...]:
    """Return the change of each wanted decision policy or published feature, sorted by name.

    ``whole``: ``wanted`` are all that there will be, so the other ones are included, as removed.
    """
    names = sorted({*live, *wanted}) if whole else sorted(wanted)
    after = wanted if whole else {**live, **wanted}
    return tuple(_named_diff(subject, name, live.get(name), after.get(name)) for name in names)


def _named_diff(subject: Subject, name: str, old: NamedDocument | None, new: NamedDocument | None) -> RuleDiff:
    if old is None or new is None:
        kind = RuleChangeKind.ADDED if old is None else RuleChangeKind.REMOVED
        versions = None if old is None else old.version, None if new is None else new.version
        return RuleDiff(name, kind, *versions, subject=subject)
    if old == new:
        return RuleDiff(name, RuleChangeKind.SAME, old.version, new.version, subject=subject)
    found = _differences(_to_json(old), _to_json(new), ())
    fields = tuple(FieldChange(dotted_path(path), before, now) for path, before, now in found)
    rejected, version = _check_version(old.version, new.version)
    return RuleDiff(
        name, RuleChangeKind.CHANGED, old.version, new.version, fields, (), rejected, version, subject=subject
    )


def _check_version(old: int, new: int) -> tuple[str | None, int | None]:
    """Return why a version would be rejected, and the one that would not be; None for both if it is accepted."""
    return (None, None) if new > old else (f"version {new} is not above version {old}, the newest", old + 1)


def diff(
    live: Iterable[Rule],
    wanted: Iterable[Rule],
    streams: Mapping[str, StreamSchema],
    *,
    whole: bool = False,
    published: Mapping[str, PublishedFeature] = MappingProxyType({}),
) -> tuple[RuleDiff, ...]:
    """Return the change of each wanted rule, sorted by id.

    ``whole``: ``wanted`` are all the rules there will be, so the other live rules are included, as removed.
    """
    old, new = ({rule.id: rule for rule in rules} for rules in (live, wanted))
    after = new if whole else old | new
    counted = _CountedState.of(old.values(), streams, published), _CountedState.of(after.values(), streams, published)
    names = sorted(old | new) if whole else sorted(new)
    return tuple(_rule_diff(old.get(name), after.get(name), streams, counted) for name in names)


def _rule_diff(
    old: Rule | None,
    new: Rule | None,
    streams: Mapping[str, StreamSchema],
    counted: tuple[_CountedState, _CountedState],
) -> RuleDiff:
    state = tuple(_state_changes(old, new, streams, *counted))
    if old is None:
        assert new is not None
        return RuleDiff(new.id, RuleChangeKind.ADDED, None, new.version, state=state)
    if new is None:
        return RuleDiff(old.id, RuleChangeKind.REMOVED, old.version, None, state=state)
    if old == new:
        return RuleDiff(new.id, RuleChangeKind.SAME, old.version, new.version)
    fields = tuple(_field_changes(old, new, streams))
    rejected, version = _check_version(old.version, new.version)
    return RuleDiff(new.id, RuleChangeKind.CHANGED, old.version, new.version, fields, state, rejected, version)


# --- entries ----------------------------------------------------------------------------------------------------------


def _field_changes(old: Rule, new: Rule, streams: Mapping[str, StreamSchema]) -> Iterator[FieldChange]:
    """Yield the entries that differ, without the version."""
    for path, before, now in _differences(_to_json(old), _to_json(new), ()):
        normal = None
        if path[-1] in _EXPRESSIONS and isinstance(before, str) and isinstance(now, str):
            normal = _normal_forms(_try_parse(old, path, before, streams), _try_parse(new, path, now, streams))
        yield FieldChange(dotted_path(path), before, now, normal)


def _to_json(document: DocumentModel) -> dict[str, Json]:
    """Return the entries of a document without its version."""
    return {k: v for k, v in document.model_dump(mode="json", by_alias=True).items() if k != "version"}


def _differences(old: Json, new: Json, path: PathKey) -> Iterator[tuple[PathKey, Json, Json]]:
    """Yield path, old and new value of the leaves that differ.

    A list is a leaf, unless both values are lists of mappings with equal lengths.
    """
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(n for n in new if n not in old)]:
            yield from _differences(old.get(name), new.get(name), (*path, name))
    elif _are_comparable_lists(old, new):
        assert isinstance(old, list)
        assert isinstance(new, list)
        for index, (old_item, new_item) in enumerate(zip(old, new, strict=True)):
            yield from _differences(old_item, new_item, (*path, index))
    else:
        yield path, old, new


def _are_comparable_lists(old: Json, new: Json) -> bool:
    """Return whether both values are lists of mappings with equal lengths."""
    equal_lengths = isinstance(old, list) and isinstance(new, list) and len(old) == len(new)
    sides = [side for side in (old, new) if isinstance(side, list)]
    return equal_lengths and all(isinstance(item, dict) for side in sides for item in side)


def _try_parse(rule: Rule, path: PathKey, text: str, streams: Mapping[str, StreamSchema]) -> Expr | None:
    """Return the normal form of the condition at ``path`` of a rule; None if it does not parse."""
    try:
        schema = keyed_schema(find_stream(streams, rule.on), rule.group_by)
        scope = Scope.of_group(schema, rule.group_by) if path[-1] == "having" else Scope.of_event(schema)
        if path == ("where",) and rule.features:
            scope = replace(scope, columns={**scope.columns, **_feature_types(rule, streams)})
        return lang.normalize(lang.parse(text, scope, field=str(path[-1])))
    except RuleError:
        return None


def _feature_types(rule: Rule, streams: Mapping[str, StreamSchema]) -> Mapping[str, Type]:
    return {feature.name: feature.type for feature in compile_rule(rule, streams, RuleLimits()).features}


def _normal_forms(old: Expr | None, new: Expr | None) -> NormalForms | None:
    if old is None or new is None:
        return None
    return NormalForms(lang.render(old), lang.render(new), old == new)


# --- state ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CountedState:
    """The state that rules count: the fingerprints of aggregates, by group how long panes are kept, in ms, and by
    the place of a feature (``_feature_place``) how many panes."""

    rules: Mapping[str, CompiledRule]
    fingerprints: frozenset[str]
    kept_ms: Mapping[tuple[object, ...], int]
    features: Mapping[tuple[object, ...], int]

    @classmethod
    def of(
        cls,
        rules: Iterable[Rule],
        streams: Mapping[str, StreamSchema],
        published: Mapping[str, PublishedFeature],
    ) -> _CountedState:
        compiled = {rule.id: c for rule in rules if (c := _try_compile(rule, streams, published)) is not None}
        kept: dict[tuple[object, ...], int] = {}
        for rule in compiled.values():
            if (size_ms := _size_ms(rule)) is not None:
                kept[_group_key(rule)] = max(kept.get(_group_key(rule), 0), size_ms)
        fingerprints = frozenset(a.fingerprint for rule in compiled.values() for a in rule.aggregates)
        features: dict[tuple[object, ...], int] = {}
        for rule in compiled.values():
            for feature in rule.features:
                place = _feature_place(feature, rule)
                features[place] = max(features.get(place, 0), feature.panes)
        return cls(compiled, fingerprints, kept, features)


def _try_compile(
    rule: Rule, streams: Mapping[str, StreamSchema], published: Mapping[str, PublishedFeature]
) -> CompiledRule | None:
    """Return the compiled rule; None for one without state, or with an error against these streams."""
    if rule.status in _WITHOUT_STATE:
        return None
    try:
        return compile_rule(rule, streams, RuleLimits(), published=published)
    except RuleError:
        return None


def _group_key(rule: CompiledRule) -> tuple[object, ...]:
    """Return the key of the group of rules that share panes with this one."""
    return rule.family, rule.rule.on, rule.group_by, rule.unit


def _size_ms(rule: CompiledRule) -> int | None:
    """Return the length of the rule's windows in ms, for sessions the gap; None without windows of time."""
    match rule.window:
        case TimeWindow():
            return rule.window.size_ms
        case SessionWindow():
            return rule.window.gap_ms
    return None


def _state_changes(
    old: Rule | None, new: Rule | None, streams: Mapping[str, StreamSchema], before: _CountedState, after: _CountedState
) -> Iterator[StateChange]:
    was = before.rules.get(old.id) if old is not None else None
    now = after.rules.get(new.id) if new is not None else None
    if now is not None:
        for aggregate in now.aggregates:
            yield _aggregate_change(aggregate, now, before)
        for feature in now.features:
            yield _feature_change(feature, now, before)
    if was is not None:
        for feature in was.features:
            if _feature_place(feature, was) not in after.features:
                yield StateChange(_feature_text(feature), StateOutcome.DROPPED)
        for aggregate in was.aggregates:
            if aggregate.fingerprint not in after.fingerprints:
                yield StateChange(_aggregate_text(aggregate, was), StateOutcome.DROPPED)
    yield from _pattern_changes(was, now, streams)


def _aggregate_change(aggregate: AggregateSpec, rule: CompiledRule, before: _CountedState) -> StateChange:
    """Return the change of an aggregate of the new rule.

    A new aggregate is incomplete for one window; that of a longer window for the difference to the kept panes.
    """
    size_ms = _size_ms(rule)
    if aggregate.fingerprint not in before.fingerprints:
        return StateChange(_aggregate_text(aggregate, rule), StateOutcome.NEW, size_ms)
    kept_ms = before.kept_ms.get(_group_key(rule), 0)
    return StateChange(
        _aggregate_text(aggregate, rule), StateOutcome.KEPT, None if size_ms is None else max(0, size_ms - kept_ms)
    )


def _feature_place(feature: CompiledFeature, rule: CompiledRule) -> tuple[object, ...]:
    """Return where the state of a feature is: the stage for features has its own, and so has each ``order``."""
    return feature.fingerprint, rule.family, feature in rule.stage_features


def _feature_change(feature: CompiledFeature, rule: CompiledRule, before: _CountedState) -> StateChange:
    """Return the change of a feature of the new rule; one that reads back further than before is incomplete for the
    difference."""
    kept = before.features.get(_feature_place(feature, rule), 0)
    outcome = StateOutcome.KEPT if kept else StateOutcome.NEW
    return StateChange(_feature_text(feature), outcome, max(0, feature.panes - kept) * feature.pane_ms)


def _feature_text(feature: CompiledFeature) -> str:
    back = render_duration(feature.size_ms)
    return f"feature {feature.name}, {feature.text} by {', '.join(feature.by)} over {back}"


def _aggregate_text(aggregate: AggregateSpec, rule: CompiledRule) -> str:
    return f"{aggregate.text} by {', '.join(aggregate.group_by)} in {_window_text(rule)}"


def _window_text(rule: CompiledRule) -> str:
    match rule.window:
        case SessionWindow():
            return f"sessions with gaps of {render_duration(rule.window.gap_ms)}"
        case EventCountWindow():
            return f"pieces of {rule.window.every} events"
    return f"panes of {render_duration(rule.unit)}"


def _pattern_changes(
    was: CompiledRule | None, now: CompiledRule | None, streams: Mapping[str, StreamSchema]
) -> list[StateChange]:
    """Return the changes of the state of sequences, absences and scores: kept if the pattern did not change."""
    old, new = (_pattern(rule, streams) for rule in (was, now))
    if old is not None and old == new:
        return [StateChange(old[0], StateOutcome.KEPT)]
    dropped = [] if old is None else [StateChange(old[0], StateOutcome.DROPPED)]
    return dropped if new is None else [*dropped, StateChange(new[0], StateOutcome.NEW, None)]


def _pattern(rule: CompiledRule | None, streams: Mapping[str, StreamSchema]) -> tuple[str, Json] | None:
    """Return a readable name and the entries that identify the state, with conditions in normal form.

    None for a rule without state of its own: none, an event rule, a window rule, or a feature rule.
    """
    if rule is None or rule.kind in (RuleKind.EVENT, RuleKind.FEATURE, RuleKind.WINDOW):
        return None
    names = ("on", "where", "group_by", "within", "sequence", "skip", "expect", "score")
    document = _to_json(rule.rule)
    pattern = _normalize_entry({name: document[name] for name in names}, rule.rule, streams, ())
    return f"{rule.kind.value} by {', '.join(rule.rule.group_by)}", pattern


def _normalize_entry(value: Json, rule: Rule, streams: Mapping[str, StreamSchema], path: PathKey) -> Json:
    """Return the entry with the conditions in it in normal form; one that does not parse stays as it is."""
    if isinstance(value, dict):
        return {name: _normalize_entry(item, rule, streams, (*path, name)) for name, item in value.items()}
    if isinstance(value, list):
        return [_normalize_entry(item, rule, streams, (*path, i)) for i, item in enumerate(value)]
    if isinstance(value, str) and path and path[-1] in _EXPRESSIONS:
        expr = _try_parse(rule, path, value, streams)
        return value if expr is None else lang.render(expr)
    return value


def changes(diffs: Sequence[RuleDiff]) -> bool:
    """Return whether publishing would change anything."""
    return any(rule_diff.change is not RuleChangeKind.SAME for rule_diff in diffs)
