"""The features of an app's rules for users: each once, with the rules that read it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headgate.rules.render import Row
from rulecore import language as lang
from rulecore.compile.feature import CompiledFeature
from rulecore.compile.rule import CompiledRule
from streamcore.durations import render_duration

FEATURES_HEAD = ("FEATURE", "OF", "WHERE", "STREAM", "BY", "BACK", "EVERY", "ORDER", "RULES")
READERS_HEAD = ("RULE", "VERSION", "MODE", "NAME", "OF", "WHERE", "BY", "BACK", "EVERY", "ORDER", "INCLUDING_THIS")


@dataclass(frozen=True, slots=True)
class SharedFeature:
    """A feature, and each rule that reads it with the feature as that rule declares it."""

    readers: tuple[tuple[CompiledRule, CompiledFeature], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that rules give the feature, the one of most rules first."""
        names = [feature.name for _, feature in self.readers]
        return tuple(sorted(dict.fromkeys(names), key=lambda name: (-names.count(name), name)))


def shared_features(rules: Iterable[CompiledRule]) -> list[SharedFeature]:
    """Return the features of the rules, in order of stream, key and name."""
    found: dict[str, list[tuple[CompiledRule, CompiledFeature]]] = {}
    for rule in rules:
        for feature in rule.features:
            found.setdefault(feature.fingerprint, []).append((rule, feature))
    shared = [SharedFeature(tuple(readers)) for readers in found.values()]
    return sorted(shared, key=lambda one: (one.readers[0][0].rule.on, one.readers[0][1].by, one.names))


def feature_rows(features: Iterable[SharedFeature]) -> list[Row]:
    """Return a row for each feature, with the longest time back of its rules."""
    rows: list[Row] = []
    for one in features:
        rule, feature = max(one.readers, key=lambda reader: reader[1].panes)
        rules = len({reader.rule.id for reader, _ in one.readers})
        what = (feature.text, _where(feature), rule.rule.on, ", ".join(feature.by))
        rows.append((", ".join(one.names), *what, *_span(feature), rule.rule.order.value, rules))
    return rows


def reader_rows(feature: SharedFeature) -> list[Row]:
    """Return a row for each rule that reads the feature."""
    return [
        (
            *(rule.rule.id, rule.rule.version, rule.rule.mode_text, one.name, one.text, _where(one)),
            *(", ".join(one.by), *_span(one), rule.rule.order.value, "yes" if one.including_this else "no"),
        )
        for rule, one in feature.readers
    ]


def _where(feature: CompiledFeature) -> str | None:
    return None if feature.where is None else lang.render(feature.where)


def _span(feature: CompiledFeature) -> tuple[str, str]:
    return render_duration(feature.size_ms), render_duration(feature.pane_ms)
