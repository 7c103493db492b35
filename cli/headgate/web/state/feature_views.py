"""The features of a snapshot as values. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from headgate.rules.feature_table import SharedFeature, shared_features
from headgate.rules.yaml_text import yaml_text
from headgate.web.problems import not_found
from headgate.web.state.app_reader import Snapshot
from headgate.web.state.feature_values import (
    FeatureDefinition,
    FeatureDetail,
    FeatureUse,
    PublishedVersion,
    RuleFeatureValue,
    SharedFeatureValue,
)
from headgate.web.state.rule_views import find_etag
from rulecore import language as lang
from rulecore.backfill import decode_backfill
from rulecore.compile.feature import CompiledFeature
from rulecore.compile.rule import CompiledRule
from rulecore.documents.slots import Slot, VersionSlot
from rulecore.documents.status import StatusKind, Subject

_SLOTS = (Slot.LIVE, Slot.CANDIDATE, Slot.SCHEDULED, Slot.DRAFT)


@lru_cache(8)
def list_features(snapshot: Snapshot) -> tuple[SharedFeatureValue, ...]:
    """Return the features that the app computes, each once."""
    filled = _backfilled(snapshot)
    return tuple(_shared(snapshot, one, filled) for one in shared_features(snapshot.history.rules))


def find_feature(snapshot: Snapshot, name: str) -> FeatureDetail:
    """Return all features of a name. ``ProblemError`` if there is none."""
    own = tuple(one for one in list_features(snapshot) if name in one.names)
    document = snapshot.history.rules.features.documents.get(name)
    if not own and document is None:
        raise not_found(f"app {snapshot.app} has no feature {name}")
    return FeatureDetail(
        feature=name,
        etag=find_etag(snapshot, name, Subject.FEATURE),
        yaml=None if document is None else yaml_text(document),
        features=own,
    )


def rule_features(snapshot: Snapshot, rule: str) -> tuple[RuleFeatureValue, ...]:
    """Return the features of a rule's live version, else of the first that has a slot."""
    places = (VersionSlot(rule, slot) for slot in _SLOTS)
    compiled = next((one for place in places if (one := snapshot.history.rules.rules.get(place)) is not None), None)
    if compiled is None:
        return ()
    filled, named = _backfilled(snapshot), {one for one in compiled.rule.features if isinstance(one, str)}
    readers = {
        feature.fingerprint: {reader.rule.id for reader, _ in one.readers}
        for one in shared_features(snapshot.history.rules)
        for _, feature in one.declared
    }
    return tuple(
        RuleFeatureValue(
            name=one.name,
            published=one.name in named,
            including_this=one.including_this,
            others=len(readers.get(one.fingerprint, set()) - {rule}),
            definition=_definition(snapshot, [(compiled, one)], filled),
        )
        for one in compiled.features
    )


def _shared(snapshot: Snapshot, one: SharedFeature, filled: frozenset[tuple[str, int]]) -> SharedFeatureValue:
    rule, _ = one.declared[0]
    return SharedFeatureValue(
        names=one.names,
        stream=rule.rule.on,
        order=rule.rule.order.value,
        published=tuple(
            PublishedVersion(
                feature=document.feature,
                version=document.version,
                owner=document.owner,
                description=document.description,
                state=state,
            )
            for document, state in one.published
        ),
        rules=tuple(
            FeatureUse(
                rule=reader.rule.id,
                version=reader.rule.version,
                mode=reader.rule.mode_text,
                owner=reader.rule.owner,
                name=feature.name,
                size_ms=feature.size_ms,
                including_this=feature.including_this,
            )
            for reader, feature in one.readers
        ),
        definition=_definition(snapshot, one.declared, filled),
    )


def _definition(
    snapshot: Snapshot,
    declared: Iterable[tuple[CompiledRule, CompiledFeature]],
    filled: frozenset[tuple[str, int]],
) -> FeatureDefinition:
    """Return the definition of a feature, with the longest time back. ``filled``: ``_backfilled``."""
    pairs = [*declared]
    _, feature = max(pairs, key=lambda one: one[1].panes)
    began = snapshot.began.get(feature.fingerprint)
    return FeatureDefinition(
        of=feature.text,
        where=None if feature.where is None else lang.render(feature.where),
        by=feature.by,
        size_ms=feature.size_ms,
        pane_ms=feature.pane_ms,
        type=str(feature.type),
        other_key=any(one.route_key != rule.route_key for rule, one in pairs),
        complete_ms=None if began is None or (feature.fingerprint, began) in filled else began + feature.size_ms,
    )


def _backfilled(snapshot: Snapshot) -> frozenset[tuple[str, int]]:
    """Return the fingerprints that accepted backfills name, each with the event time from which it counted before: the
    app completes a feature that counts from that time, and no other."""
    entries = (one for one in snapshot.history.entries if one.status.subject is Subject.BACKFILL)
    values = (one.written.control.value for one in entries if one.status.status is StatusKind.ACCEPTED)
    return frozenset(pair for value in values if value is not None for pair in decode_backfill(value).since.items())
