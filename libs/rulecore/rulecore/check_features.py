"""The part of `headgate rules check` about published features: their problems, and warnings of keys that only grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rulecore.check import find_excess, locate_error
from rulecore.compile.published_feature import compile_published
from rulecore.compile.rule import CompiledRule, RuleLimits
from rulecore.documents.loading import LoadedFeature
from rulecore.documents.published_feature import PublishedFeature, encode_feature
from rulecore.documents.yaml_reader import Problem, YamlDocument
from rulecore.errors import RuleError
from rulecore.language import ListType
from rulecore.streams import find_stream
from rulecore.unique_keys import unique_keys
from streamcore.schema import StreamSchema


@dataclass(frozen=True, slots=True)
class FeatureReport:
    """Problems by file and position, the features without problems by name, and warnings."""

    problems: tuple[Problem, ...] = ()
    features: Mapping[str, PublishedFeature] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()


def check_published(
    documents: Sequence[LoadedFeature],
    streams: Mapping[str, StreamSchema],
    limits: RuleLimits | None = None,
    lists: Mapping[str, ListType] | None = None,
) -> FeatureReport:
    """Check published features against the streams, the lists and each other."""
    limits = limits or RuleLimits()
    problems = [problem for loaded in documents for problem in loaded.problems]
    warnings = list[Problem]()
    features: dict[str, PublishedFeature] = {}
    first: dict[str, YamlDocument] = {}
    for loaded in documents:
        feature, document = loaded.feature, loaded.document
        if feature is None:
            continue
        before = first.setdefault(feature.feature, document)
        if before is not document:
            message = f"the name {feature.feature!r} is taken by {before.file}:{before.place(()).line}"
            problems.append(Problem(document.file, document.place(("feature",)), "feature", message, feature.feature))
            continue
        try:
            keeper = compile_published(feature, streams, limits, lists or {})
        except RuleError as error:
            problems.append(locate_error(error, document, feature.feature))
            continue
        features[feature.feature] = feature
        excess = find_excess(encode_feature(feature), limits, document, "feature", feature.feature)
        problems += [] if excess is None else [excess]
        warnings += _warn(keeper, feature, document, streams)
    return FeatureReport(tuple(sorted(problems)), features, tuple(sorted(warnings)))


def _warn(
    keeper: CompiledRule, feature: PublishedFeature, document: YamlDocument, streams: Mapping[str, StreamSchema]
) -> list[Problem]:
    """Return warnings of keys that are new with almost every event."""
    found = []
    for path, message in unique_keys(keeper, find_stream(streams, feature.on)):
        place = path.removeprefix("features.0.")
        found.append(Problem(document.file, document.place((place,)), place, message, feature.feature))
    return found
