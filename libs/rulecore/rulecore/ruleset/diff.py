"""The changes that publishing some rules would make to the live ones: entry by entry, and the outcome for their state.

Two conditions are *equivalent* when they have one normal form: then nothing that is counted changes. Not every pair
that means the same has one (``lang.normalize``), so the opposite word is *different*, not *contrary*. State follows the
fingerprints of aggregates: state that any live rule already counts is kept, state that no rule still counts is dropped.

Promises: a pure function of rules and streams. Refuses to know files and topics.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rulecore import language as lang
from rulecore.compile.rule import (
    AggregateSpec,
    CompiledRule,
    EventCountWindow,
    RuleLimits,
    SessionWindow,
    TimeWindow,
    compile_rule,
)
from rulecore.documents.rule import Rule, RuleKind, RuleMode
from rulecore.documents.scalars import render_duration
from rulecore.documents.yaml_reader import Json, PathKey, dotted_path
from rulecore.errors import RuleError
from rulecore.language import Expr, Scope
from streamcore.schema import StreamSchema

_EXPRESSIONS: Final = frozenset({"where", "having", "without"})
_WITHOUT_STATE: Final = frozenset({RuleMode.DRAFT, RuleMode.RETIRED})


class RuleChangeKind(enum.StrEnum):
    """The kind of change to a rule."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    SAME = "same"


class StateOutcome(enum.StrEnum):
    """What publishing does to a part of a rule's state."""

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
    """An entry of the document; None where it is missing or null. ``normal`` is for conditions that can be read."""

    path: str
    old: Json
    new: Json
    normal: NormalForms | None = None


@dataclass(frozen=True, slots=True)
class StateChange:
    """Change of a part of a rule's state. ``state_name``: an aggregate, or the state of the rule's kind, for users.

    ``incomplete_ms``: milliseconds until a window is complete; None if not known.
    """

    state_name: str
    outcome: StateOutcome
    incomplete_ms: int | None = 0


@dataclass(frozen=True, slots=True)
class RuleDiff:
    """``rejected``: the reason why the app would reject the new rule; None if it would not. ``required_version``: the
    version that the new rule must have then."""

    rule: str
    verdict: RuleChangeKind
    old_version: int | None
    new_version: int | None
    fields: tuple[FieldChange, ...] = ()
    state: tuple[StateChange, ...] = ()
    rejected: str | None = None
    required_version: int | None = None


def diff(
    live: Iterable[Rule], wanted: Iterable[Rule], streams: Mapping[str, StreamSchema], *, whole: bool = False
) -> tuple[RuleDiff, ...]:
    """Return one entry for each rule of either side, by id. ``whole``: ``wanted`` are all rules, others are removed."""
    old, new = ({rule.id: rule for rule in rules} for rules in (live, wanted))
    after = new if whole else old | new
    counted = _CountedState.of(old.values(), streams), _CountedState.of(after.values(), streams)
    names = sorted(old | new) if whole else sorted(new)
    return tuple(_rule(old.get(name), after.get(name), streams, counted) for name in names)


def _rule(
    old: Rule | None,
    new: Rule | None,
    streams: Mapping[str, StreamSchema],
    counted: tuple[_CountedState, _CountedState],
) -> RuleDiff:
    state = tuple(_state(old, new, streams, *counted))
    if old is None:
        assert new is not None
        return RuleDiff(new.id, RuleChangeKind.ADDED, None, new.version, state=state)
    if new is None:
        return RuleDiff(old.id, RuleChangeKind.REMOVED, old.version, None, state=state)
    if old == new:
        return RuleDiff(new.id, RuleChangeKind.SAME, old.version, new.version)
    fields = tuple(_fields(old, new, streams))
    rejected, version = None, None
    if new.version <= old.version:
        rejected = f"version {new.version} is not above version {old.version}, the newest"
        version = old.version + 1
    return RuleDiff(new.id, RuleChangeKind.CHANGED, old.version, new.version, fields, state, rejected, version)


# --- entries ----------------------------------------------------------------------------------------------------------


def _fields(old: Rule, new: Rule, streams: Mapping[str, StreamSchema]) -> Iterator[FieldChange]:
    """Return the entries that differ, the version not among them."""
    for path, before, now in _differences(_plain(old), _plain(new), ()):
        normal = None
        if path[-1] in _EXPRESSIONS and isinstance(before, str) and isinstance(now, str):
            normal = _normal(_try_parse(old, path, before, streams), _try_parse(new, path, now, streams))
        yield FieldChange(dotted_path(path), before, now, normal)


def _plain(rule: Rule) -> dict[str, Json]:
    return {k: v for k, v in rule.model_dump(mode="json", by_alias=True).items() if k != "version"}


def _differences(old: Json, new: Json, path: PathKey) -> Iterator[tuple[PathKey, Json, Json]]:
    """Return the leaves that differ; a list is a leaf unless both have as many mappings."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(n for n in new if n not in old)]:
            yield from _differences(old.get(name), new.get(name), (*path, name))
    elif _alike(old, new):
        assert isinstance(old, list)
        assert isinstance(new, list)
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differences(one, other, (*path, index))
    else:
        yield path, old, new


def _alike(old: Json, new: Json) -> bool:
    both = isinstance(old, list) and isinstance(new, list) and len(old) == len(new)
    return both and all(isinstance(one, dict) for side in (old, new) if isinstance(side, list) for one in side)


def _try_parse(rule: Rule, path: PathKey, text: str, streams: Mapping[str, StreamSchema]) -> Expr | None:
    schema = streams.get(rule.on)
    if schema is None or any(schema.get(name) is None for name in rule.group_by):
        return None
    scope = Scope.of_group(schema, rule.group_by) if path[-1] == "having" else Scope.of_event(schema)
    try:
        return lang.normalize(lang.parse(text, scope, field=str(path[-1])))
    except RuleError:
        return None


def _normal(old: Expr | None, new: Expr | None) -> NormalForms | None:
    if old is None or new is None:
        return None
    return NormalForms(lang.render(old), lang.render(new), old == new)


# --- state ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CountedState:
    """The state that rules count: aggregates by fingerprint, and how long panes are kept, by sharing group."""

    rules: Mapping[str, CompiledRule]
    fingerprints: frozenset[str]
    kept_ms: Mapping[tuple[object, ...], int]

    @classmethod
    def of(cls, rules: Iterable[Rule], streams: Mapping[str, StreamSchema]) -> _CountedState:
        compiled = {rule.id: c for rule in rules if (c := _try_compile(rule, streams)) is not None}
        kept: dict[tuple[object, ...], int] = {}
        for one in compiled.values():
            if (size_ms := _size_ms(one)) is not None:
                kept[_sharing_key(one)] = max(kept.get(_sharing_key(one), 0), size_ms)
        prints = frozenset(a.fingerprint for one in compiled.values() for a in one.aggregates)
        return cls(compiled, prints, kept)


def _try_compile(rule: Rule, streams: Mapping[str, StreamSchema]) -> CompiledRule | None:
    """Return None for a rule that keeps nothing, or is none against these streams."""
    if rule.status in _WITHOUT_STATE:
        return None
    try:
        return compile_rule(rule, streams, RuleLimits())
    except RuleError:
        return None


def _sharing_key(rule: CompiledRule) -> tuple[object, ...]:
    return rule.family, rule.rule.on, rule.group_by, rule.unit


def _size_ms(rule: CompiledRule) -> int | None:
    """Return the length of the windows: the gap of a session; None for windows of a number of events."""
    match rule.window:
        case TimeWindow():
            return rule.window.size_ms
        case SessionWindow():
            return rule.window.gap_ms
    return None


def _state(
    old: Rule | None, new: Rule | None, streams: Mapping[str, StreamSchema], before: _CountedState, after: _CountedState
) -> Iterator[StateChange]:
    was = before.rules.get(old.id) if old is not None else None
    now = after.rules.get(new.id) if new is not None else None
    if now is not None:
        for aggregate in now.aggregates:
            yield _aggregate_change(aggregate, now, before)
    if was is not None:
        for aggregate in was.aggregates:
            if aggregate.fingerprint not in after.fingerprints:
                yield StateChange(_aggregate_text(aggregate, was), StateOutcome.DROPPED)
    yield from _pattern_changes(was, now, streams)


def _aggregate_change(aggregate: AggregateSpec, rule: CompiledRule, before: _CountedState) -> StateChange:
    """Return the change of an aggregate. A new one warms for a window, a longer window for the difference."""
    size_ms = _size_ms(rule)
    if aggregate.fingerprint not in before.fingerprints:
        return StateChange(_aggregate_text(aggregate, rule), StateOutcome.NEW, size_ms)
    kept_ms = before.kept_ms.get(_sharing_key(rule), 0)
    return StateChange(
        _aggregate_text(aggregate, rule), StateOutcome.KEPT, None if size_ms is None else max(0, size_ms - kept_ms)
    )


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
    """Return changes of sequences, absences and scores: kept while the pattern is the same, begun anew if not."""
    old, new = (_pattern(one, streams) for one in (was, now))
    if old is not None and old == new:
        return [StateChange(old[0], StateOutcome.KEPT)]
    dropped = [] if old is None else [StateChange(old[0], StateOutcome.DROPPED)]
    return dropped if new is None else [*dropped, StateChange(new[0], StateOutcome.NEW, None)]


def _pattern(one: CompiledRule | None, streams: Mapping[str, StreamSchema]) -> tuple[str, Json] | None:
    """Return a name and the entries that identify the state of the kind, with conditions in normal form."""
    if one is None or one.kind in (RuleKind.EVENT, RuleKind.WINDOW):
        return None
    names = ("on", "where", "group_by", "within", "sequence", "skip", "expect", "score")
    plain = _plain(one.rule)
    pattern = _normalize_entry({name: plain[name] for name in names}, one.rule, streams, ())
    return f"{one.kind.value} by {', '.join(one.rule.group_by)}", pattern


def _normalize_entry(value: Json, rule: Rule, streams: Mapping[str, StreamSchema], path: PathKey) -> Json:
    if isinstance(value, dict):
        return {name: _normalize_entry(one, rule, streams, (*path, name)) for name, one in value.items()}
    if isinstance(value, list):
        return [_normalize_entry(one, rule, streams, (*path, i)) for i, one in enumerate(value)]
    if isinstance(value, str) and path and path[-1] in _EXPRESSIONS:
        expr = _try_parse(rule, path, value, streams)
        return value if expr is None else lang.render(expr)
    return value


def changes(found: Sequence[RuleDiff]) -> bool:
    """Return whether publishing would change anything."""
    return any(one.verdict is not RuleChangeKind.SAME for one in found)
