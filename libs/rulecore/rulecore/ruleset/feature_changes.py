"""Publishes and deletes features in the tables of a rule set.

A rejected version changes nothing. A new version is compiled into all versions of rules that name the feature, or
rejected if one of them does not compile with it. A feature that a rule names is not deleted.
"""

from __future__ import annotations

from typing import Final

from rulecore.compile.cache import compile_feature, compile_version, named_features
from rulecore.compile.rule import CompiledRule
from rulecore.documents.control_keys import FEATURE_KEY
from rulecore.documents.loading import decode_feature
from rulecore.documents.published_feature import PublishedFeature, encode_feature
from rulecore.documents.releases import RuleChange
from rulecore.documents.slots import Slot, VersionSlot, version_key
from rulecore.documents.status import RuleStatus, StatusKind, Subject
from rulecore.errors import RuleError, RuleSetError
from rulecore.governance.table import GovernanceTable
from rulecore.ruleset.approvals import compute_need, error_text
from rulecore.ruleset.published_features import PublishedFeatures
from rulecore.ruleset.versions import VersionTable

_SHOWN_RULES: Final = 20


def apply_feature(versions: VersionTable, name: str, value: bytes | None, governance: GovernanceTable) -> RuleStatus:
    """Publish a version of a feature, or delete the feature if ``value`` is None; return the status.

    ``governance``: by whose policies a version is checked that changes rules; nobody can sign one.
    """
    feature: PublishedFeature | None = None
    try:
        if value is None:
            return _delete(versions, name)
        feature = decode_feature(value, versions.context.limits.record_bytes)
        note = _put(versions, name, feature, governance)
    except RuleError as error:
        return _status(name, None if feature is None else feature.version, StatusKind.REJECTED, error_text(error))
    return _status(name, feature.version, StatusKind.ACCEPTED, note)


def rules_naming(versions: VersionTable, name: str) -> list[VersionSlot]:
    """Return the places of the versions of rules that name the feature, those that do not compile any more too."""
    return sorted(place for place, value in versions.stored.items() if name in named_features(value))


def _delete(versions: VersionTable, name: str) -> RuleStatus:
    document = versions.features.documents.get(name)
    if document is None:
        return _status(name, None, StatusKind.DELETED, "there is no such feature")
    if rules := list(dict.fromkeys(place.rule for place in rules_naming(versions, name))):
        more = f" and {len(rules) - _SHOWN_RULES} more" if len(rules) > _SHOWN_RULES else ""
        raise RuleSetError(
            f"rules name it: {', '.join(rules[:_SHOWN_RULES])}{more}; publish versions without it first, or delete them"
        )
    _replace(versions, versions.features.without(name), versions.features.keepers.get(name))
    return _status(name, document.version, StatusKind.DELETED, None)


def _put(versions: VersionTable, name: str, feature: PublishedFeature, governance: GovernanceTable) -> str | None:
    """Put the version in place of the one before, and return a note; raise ``RuleError`` if it is rejected."""
    features, context = versions.features, versions.context
    if name != feature.feature:
        raise RuleSetError(
            f"the record's key names feature {name!r} and its value {feature.feature!r}; they must be the same"
        )
    canonical, before = encode_feature(feature), features.documents.get(name)
    if features.stored.get(name) == canonical:
        reason = versions.quarantined.get(f"{FEATURE_KEY}{name}@{feature.version}")
        return "no change" if reason is None else f"no change; in quarantine: {reason}"
    if before is not None and feature.version <= before.version:
        raise RuleSetError(f"version {feature.version} is not above version {before.version}, the newest; raise it")
    if before is None and len(features.stored) >= context.limits.features:
        raise RuleSetError(f"there are {len(features.stored)} features, which is the limit; delete one first")
    keeper = compile_feature(canonical, context)
    after = features.with_feature(feature, keeper)
    again = _compile_again(versions, name, after)
    for rule in (compiled.rule for compiled in again.values()):
        need = compute_need(versions, governance, RuleChange(rule=rule))
        if need.approvals or need.signed:
            raise RuleSetError(
                f"it would change rule {rule.id}, of which changes need a signature or approval; publish the feature "
                "under another name, and propose a version of the rule that names that"
            )
    versions.check_key(keeper)
    for place, compiled in again.items():
        versions.rules[place] = compiled
        versions.streams.add(compiled.rule.on)
        versions.changed |= place.slot not in (Slot.DRAFT, Slot.SCHEDULED)
    _replace(versions, after, features.keepers.get(name))
    versions.streams.add(keeper.rule.on)
    return None if not again else f"compiled again: {', '.join(dict.fromkeys(place.rule for place in again))}"


def _compile_again(versions: VersionTable, name: str, after: PublishedFeatures) -> dict[VersionSlot, CompiledRule]:
    """Return the versions of rules that name the feature, compiled with the new version of it. Raise ``RuleSetError``
    if one that is valid now would not be."""
    context = versions.context.with_features(after.documents)
    again: dict[VersionSlot, CompiledRule] = {}
    for place in (one for one in rules_naming(versions, name) if one in versions.rules):
        try:
            again[place] = compile_version(versions.stored[place], context)
        except RuleError as error:
            raise RuleSetError(
                f"rule {place.rule} version {versions.rules[place].rule.version} would not be valid any more: "
                f"{error}; publish a version that is valid with both, or the feature under another name"
            ) from None
    return again


def _replace(versions: VersionTable, features: PublishedFeatures, before: CompiledRule | None) -> None:
    """Put the features into the tables. ``before``: the rule that has kept the state of the changed one."""
    versions.features = features
    versions.context = versions.context.with_features(features.documents)
    versions.touched = versions.changed = True
    if before is not None:
        versions.quarantined.pop(version_key(before.rule), None)
        versions.streams.add(before.rule.on)


def _status(name: str, version: int | None, kind: StatusKind, reason: str | None) -> RuleStatus:
    return RuleStatus(name, version, kind, reason, 0, 0, 0, Subject.FEATURE)
