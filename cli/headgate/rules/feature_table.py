"""The features of an app for users: each once, with its published versions and the rules that read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headgate.rules.render import Row
from rulecore import language as lang
from rulecore.compile.feature import CompiledFeature
from rulecore.compile.rule import CompiledRule
from rulecore.documents.published_feature import PublishedFeature
from rulecore.documents.slots import version_key
from rulecore.ruleset.ruleset import RuleSet
from streamcore.durations import render_duration

FEATURES_HEAD = (
    "FEATURE",
    "VERSION",
    "OWNER",
    "STATE",
    "OF",
    "WHERE",
    "STREAM",
    "BY",
    "BACK",
    "EVERY",
    "ORDER",
    "RULES",
)
READERS_HEAD = (
    *("RULE", "VERSION", "MODE", "OWNER", "NAME", "OF", "WHERE", "BY", "BACK", "EVERY", "ORDER", "INCLUDING_THIS"),
)


@dataclass(frozen=True, slots=True)
class SharedFeature:
    """A feature, and each rule that reads it with the feature as that rule declares it. ``published``: the documents of
    it that are published, with what the app does with each; equal ones under several names share one state."""

    readers: tuple[tuple[CompiledRule, CompiledFeature], ...]
    published: tuple[tuple[PublishedFeature, str], ...] = ()
    kept: tuple[tuple[CompiledRule, CompiledFeature], ...] = ()

    @property
    def declared(self) -> tuple[tuple[CompiledRule, CompiledFeature], ...]:
        """The feature as rules declare it and as it is published."""
        return (*self.readers, *self.kept)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the published names of the feature, then those that rules give it, the one of most rules first."""
        names = [feature.name for _, feature in self.readers]
        given = sorted(dict.fromkeys(names), key=lambda name: (-names.count(name), name))
        return tuple(dict.fromkeys([*(document.feature for document, _ in self.published), *given]))


def shared_features(rules: RuleSet) -> list[SharedFeature]:
    """Return the features of the rules that are evaluated or paused, and those that are published, in order of stream,
    key and name."""
    keepers = {keeper.rule.id: name for name, keeper in rules.features.keepers.items()}
    found: dict[str, list[tuple[CompiledRule, CompiledFeature]]] = {}
    kept = [one for one in rules.features.keepers.values() if one not in rules.with_state()]
    for rule in (*rules.with_state(), *kept):
        for feature in rule.features:
            found.setdefault(feature.fingerprint, []).append((rule, feature))
    shared = [_share(readers, keepers, rules) for readers in found.values()]
    return sorted(shared, key=lambda one: (one.declared[0][0].rule.on, one.declared[0][1].by, one.names))


def _share(
    readers: Sequence[tuple[CompiledRule, CompiledFeature]], keepers: Mapping[str, str], rules: RuleSet
) -> SharedFeature:
    """Return one feature. ``keepers``: by id of the rule that keeps it, the name of each published feature."""
    names = [keepers[rule.rule.id] for rule, _ in readers if rule.rule.id in keepers]
    return SharedFeature(
        tuple(one for one in readers if one[0].rule.id not in keepers),
        tuple((rules.features.documents[name], _find_state(rules, name)) for name in names),
        tuple(one for one in readers if one[0].rule.id in keepers),
    )


def _find_state(rules: RuleSet, name: str) -> str:
    reason = rules.quarantined.get(version_key(rules.features.keepers[name].rule))
    return "kept" if reason is None else f"quarantined: {reason}"


def feature_rows(features: Iterable[SharedFeature]) -> list[Row]:
    """Return a row for each feature, with the longest time back of its rules."""
    rows: list[Row] = []
    for one in features:
        rule, feature = max(one.declared, key=lambda reader: reader[1].panes)
        rules = len({reader.rule.id for reader, _ in one.readers})
        what = (feature.text, _where(feature), rule.rule.on, ", ".join(feature.by))
        versions = ", ".join(str(document.version) for document, _ in one.published) or None
        owners = ", ".join(dict.fromkeys(document.owner for document, _ in one.published)) or None
        state = ", ".join(dict.fromkeys(state for _, state in one.published)) or "of rules"
        names = (", ".join(one.names), versions, owners, state)
        rows.append((*names, *what, *_span(feature), rule.rule.order.value, rules))
    return rows


def reader_rows(feature: SharedFeature) -> list[Row]:
    """Return a row for each published version of the feature and for each rule that reads it."""
    rows: list[Row] = []
    for rule, one in (*feature.kept, *feature.readers):
        is_kept = (rule, one) in feature.kept
        mode = "published" if is_kept else rule.rule.mode_text
        about = (None if is_kept else rule.rule.id, rule.rule.version, mode, rule.rule.owner)
        rows.append(
            (
                *(*about, one.name, one.text, _where(one)),
                *(", ".join(one.by), *_span(one), rule.rule.order.value, "yes" if one.including_this else "no"),
            )
        )
    return rows


def _where(feature: CompiledFeature) -> str | None:
    return None if feature.where is None else lang.render(feature.where)


def _span(feature: CompiledFeature) -> tuple[str, str]:
    return render_duration(feature.size_ms), render_duration(feature.pane_ms)
