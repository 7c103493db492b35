"""Publishes and deletes features and decision policies, as ``headgate rules publish`` does; a lost update is refused,
as for rules."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from headgate.rules.publish import ControlChange, delete_feature, delete_policy, feature_change, policy_change
from headgate.rules.signing import KeyHolder
from headgate.web.access.rights import ConsoleSession
from headgate.web.access.roles import Role
from headgate.web.changes.propose import sign_for
from headgate.web.changes.publish import Terms, await_outcome, change_digest, check_etag, write_once
from headgate.web.problems import ProblemCode, ProblemError, ProblemPlace, not_found
from headgate.web.state.app_reader import AppReader, Snapshot
from headgate.web.state.values import OutcomeValue
from rulecore.check_features import check_published
from rulecore.check_policies import check_policies
from rulecore.documents.loading import LoadedFeature, LoadedPolicy, load_all_text
from rulecore.documents.releases import NamedChanges
from rulecore.documents.rule import Rule
from rulecore.documents.status import Subject
from rulecore.documents.yaml_reader import Problem

_FILE = "document.yaml"
Changes = Callable[[Snapshot], list[ControlChange]]


def publish_named(
    reader: AppReader, subject: Subject, name: str, text: str, terms: Terms, key: KeyHolder | None = None
) -> OutcomeValue:
    """Publish the feature or decision policy in a YAML text. ``key``: signs a policy for its author, as a proposal."""

    def changes(snapshot: Snapshot) -> list[ControlChange]:
        check_etag(snapshot, subject, name, terms)
        found = _read(snapshot, subject, name, text)
        check_owner(snapshot, found, terms.by)
        return sign_named(snapshot, found, terms, key)

    return _change(reader, (subject, name), f"publish {text}", terms, changes)


def delete_named(
    reader: AppReader, subject: Subject, name: str, terms: Terms, key: KeyHolder | None = None
) -> OutcomeValue:
    """Delete a feature or decision policy."""

    def changes(snapshot: Snapshot) -> list[ControlChange]:
        require_in_force(snapshot, subject, (name,))
        check_etag(snapshot, subject, name, terms)
        deleted = {"delete_features" if subject is Subject.FEATURE else "delete_policies": (name,)}
        found = NamedChanges.model_validate(deleted)
        check_owner(snapshot, found, terms.by)
        return sign_named(snapshot, found, terms, key)

    return _change(reader, (subject, name), "delete", terms, changes)


def _change(reader: AppReader, changed: tuple[Subject, str], what: str, terms: Terms, make: Changes) -> OutcomeValue:
    offset, repeated = write_once(reader, terms, change_digest(" ".join(changed), what), make)
    return await_outcome(reader, changed, offset, terms, repeated=repeated)


def sign_named(snapshot: Snapshot, found: NamedChanges, terms: Terms, key: KeyHolder | None) -> list[ControlChange]:
    """Return the control records of features and policies; with a key a signed proposal, which has no features."""
    if key is None:
        return [
            *map(feature_change, found.features),
            *map(policy_change, found.decision_policies),
            *map(delete_policy, found.delete_policies),
            *map(delete_feature, found.delete_features),
        ]
    return [propose_changes(snapshot, ((), (), found), terms, key)]


def propose_changes(
    snapshot: Snapshot,
    content: tuple[Sequence[Rule], Sequence[str], NamedChanges],
    terms: Terms,
    key: KeyHolder,
    gone: Sequence[Rule] = (),
) -> ControlChange:
    """Return a signed proposal of rules to publish, ids of rules to delete, and policies. ``gone``: the rules of these
    ids. A proposal has no features: ``ProblemError`` for them."""
    rules, deleted, named = content
    if named.features or named.delete_features:
        detail = "this console signs its changes, and a proposal has no features; publish them beside the broker"
        raise ProblemError(422, ProblemCode.CANNOT_ANSWER, detail)
    signing = sign_for(key, terms.by, snapshot.app, [*rules, *gone], list_owners(snapshot, named))
    why, now_ms, policies = terms.why or "", int(time.time() * 1000), named.decision_policies
    no_policies = named.delete_policies
    return signing.proposal_change(rules, deleted, why, now_ms, policies=policies, deleted_policies=no_policies)


def require_in_force(snapshot: Snapshot, subject: Subject, names: Iterable[str]) -> None:
    """Refuse features or decision policies of which no document is in force (404)."""
    for name in names:
        if not snapshot.is_in_force(name, subject):
            raise not_found(f"app {snapshot.app} has no {subject.value.replace('_', ' ')} {name}")


def check_owner(snapshot: Snapshot, found: NamedChanges, by: ConsoleSession) -> None:
    """Refuse a change of a feature or policy whose owner, before or after, is none of the session's."""
    for owner in list_owners(snapshot, found):
        if not by.may_change(Role.PUBLISHER, snapshot.app, (), owner):
            detail = f"{by.subject} is not a publisher of features and policies of {owner}"
            raise ProblemError(403, ProblemCode.NOT_ALLOWED, detail)


def list_owners(snapshot: Snapshot, found: NamedChanges) -> list[str]:
    """Return the owners of features and policies, before and after their changes."""
    policies, features = snapshot.history.rules.policies.documents, snapshot.history.rules.features.documents
    owners = [*(one.owner for one in found.features), *(one.owner for one in found.decision_policies)]
    names = [*(one.feature for one in found.features), *found.delete_features]
    owners += [features[name].owner for name in names if name in features]
    names = [*(one.decision_policy for one in found.decision_policies), *found.delete_policies]
    return owners + [policies[name].owner for name in names if name in policies]


def _read(snapshot: Snapshot, subject: Subject, name: str, text: str) -> NamedChanges:
    """Return the only document of a text. ``ProblemError`` with its mistakes."""
    rules, features, policies, faults = load_all_text(text, _FILE)
    is_feature = subject is Subject.FEATURE
    own: Sequence[LoadedFeature | LoadedPolicy] = features if is_feature else policies
    if not faults and (len(own) != 1 or len(rules) + len(features) + len(policies) != 1):
        raise _mistake(f"write one document of a {'feature' if is_feature else 'decision policy'}", ())
    held = snapshot.history.rules
    checked = check_published(features, held.streams, held.limits, held.lists)
    problems = [*faults, *checked.problems, *check_policies(policies, [], held.streams, held.limits).problems]
    if problems:
        raise _mistake("it has mistakes; nothing was published", problems)
    found = NamedChanges.model_construct(
        features=tuple(one.feature for one in features if one.feature is not None),
        decision_policies=tuple(one.policy for one in policies if one.policy is not None),
    )
    (own_name,) = [*(one.feature for one in found.features), *(one.decision_policy for one in found.decision_policies)]
    if own_name != name:
        raise _mistake(f"its name is {own_name}; the address names {name}", ())
    return found


def _mistake(detail: str, problems: Sequence[Problem]) -> ProblemError:
    return ProblemError(422, ProblemCode.INVALID_RULE, detail, [ProblemPlace.of(one) for one in problems])
