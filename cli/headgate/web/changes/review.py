"""The effects of a publication of a rule text: on entries, meaning, state. Nothing is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson

from headgate.rules.yaml_text import yaml_text
from headgate.web.changes.check import CheckedRule
from headgate.web.state.app_reader import Snapshot
from rulecore.documents.published_feature import PublishedFeature
from rulecore.documents.rule import Rule, RuleKind
from rulecore.ruleset.diff import FieldChange, RuleDiff, StateChange, diff
from streamcore.durations import render_duration


@dataclass(frozen=True, slots=True)
class ReviewedField:
    """An entry that changes. ``equivalent``: both conditions have one normal form."""

    path: str
    old: str
    new: str
    equivalent: bool


@dataclass(frozen=True, slots=True)
class ReviewedState:
    """A part of the rule's state: kept, new or dropped. ``warms``: how long until it is complete; empty: it is."""

    name: str
    outcome: str
    warms: str


@dataclass(frozen=True, slots=True)
class Review:
    """``old_text``: the newest version as YAML, empty for a new rule. ``mode``: of the text."""

    rule: str
    old_version: int | None
    new_version: int | None
    old_text: str
    mode: str
    fields: Sequence[ReviewedField] = ()
    state: Sequence[ReviewedState] = ()


def review(snapshot: Snapshot, checked: CheckedRule) -> Review:
    """Compare a rule text with the newest version of its rule."""
    rule = checked.rule
    if rule is None:
        return Review("", None, None, "", "")
    newest = snapshot.history.newest(rule.id)
    old = snapshot.history.documents.get((rule.id, newest))
    text = "" if old is None else yaml_text(old)
    if checked.problems:
        return Review(rule.id, None if old is None else old.version, rule.version, text, rule.mode_text)
    others = [] if old is None else [old]
    others += _sharing(snapshot, rule, {rule.id})
    (found,) = (one for one in _diff(snapshot, others, [rule]) if one.rule == rule.id)
    return Review(
        rule.id,
        found.old_version,
        rule.version,
        text,
        rule.mode_text,
        tuple(_field(one) for one in found.fields),
        tuple(_state(one) for one in found.state),
    )


def _diff(
    snapshot: Snapshot,
    live: Iterable[Rule],
    wanted: Iterable[Rule],
    published: Mapping[str, PublishedFeature] | None = None,
) -> tuple[RuleDiff, ...]:
    rules = snapshot.history.rules
    return diff(live, wanted, rules.streams, published=rules.features.documents if published is None else published)


def review_together(
    snapshot: Snapshot, rules: Sequence[Rule], published: Mapping[str, PublishedFeature]
) -> list[Review]:
    """Compare rules that are to take effect together with their live versions. ``published``: the features then."""
    live = {one.id: held.rule for one in rules if (held := snapshot.history.rules.live(one.id)) is not None}
    ids = {one.id for one in rules}
    others = {one.id: one for rule in rules for one in _sharing(snapshot, rule, ids)}
    found = {one.rule: one for one in _diff(snapshot, [*others.values(), *live.values()], rules, published)}
    return [
        Review(
            rule.id,
            found[rule.id].old_version,
            rule.version,
            yaml_text(live[rule.id]) if rule.id in live else "",
            rule.mode_text,
            tuple(_field(one) for one in found[rule.id].fields),
            tuple(_state(one) for one in found[rule.id].state),
        )
        for rule in rules
    ]


def _sharing(snapshot: Snapshot, rule: Rule, without: Collection[str]) -> list[Rule]:
    """Return the other rules that may share state with this one: of its input and its key. An event rule has none."""
    if rule.kind is RuleKind.EVENT:
        return []
    held = (one.rule for one in snapshot.history.rules.rules.values())
    return [one for one in held if one.id not in without and _place(one) == _place(rule)]


def _place(rule: Rule) -> tuple[object, ...]:
    return rule.on, rule.group_by, rule.kind is RuleKind.EVENT


def _field(change: FieldChange) -> ReviewedField:
    normal = change.normal_forms
    return ReviewedField(change.path, _text(change.old), _text(change.new), normal is not None and normal.equivalent)


def _state(change: StateChange) -> ReviewedState:
    warms = "a time that is not known" if change.incomplete_ms is None else ""
    warms = render_duration(change.incomplete_ms) if change.incomplete_ms else warms
    return ReviewedState(change.state_name, change.outcome.value, "" if change.outcome == "dropped" else warms)


def _text(value: object) -> str:
    return value if isinstance(value, str) else "-" if value is None else orjson.dumps(value).decode()
