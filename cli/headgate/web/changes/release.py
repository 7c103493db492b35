"""Releases: changed rules that go live together, and their rollback, as the commands ``headgate rules release`` and
``rollback --release`` do. All rules of a release take effect in one cut, or none does."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headgate.rules.publish import ControlChange, release_changes
from headgate.rules.signing import KeyHolder
from headgate.rules.yaml_text import yaml_text
from headgate.time_arguments import parse_number
from headgate.web.changes.check import check_text
from headgate.web.changes.publish import Terms, await_outcome, change_digest, check_scope, in_mode, write_once
from headgate.web.changes.publish_named import check_owner, propose_changes, require_in_force
from headgate.web.changes.review import Review, review_together
from headgate.web.problems import ProblemCode, ProblemError, ProblemPlace, not_found
from headgate.web.state.app_reader import AppReader, Snapshot
from headgate.web.state.releases import find_release, list_releases
from headgate.web.state.rule_views import find_etag, find_rule, list_versions
from headgate.web.state.values import OutcomeValue, VersionValue
from rulecore.check import check_rules
from rulecore.check_features import check_published
from rulecore.check_policies import check_policies
from rulecore.documents.loading import LoadedRule, load_all_text
from rulecore.documents.releases import NO_NAMED, NamedChanges, find_repeated
from rulecore.documents.rule import Rule, RuleMode
from rulecore.documents.slots import Slot
from rulecore.documents.status import Subject
from rulecore.documents.yaml_reader import Problem
from rulecore.errors import RuleSetError
from rulecore.ruleset.diff import RuleDiff, diff_named
from rulecore.ruleset.history import revert_release

MOST_RULES = 100  # of a release that is put together here; the command publishes any number
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
_NAME_CHARACTERS = 80
_FILE = "release.yaml"


@dataclass(frozen=True, slots=True)
class ReleaseReview:
    """Versions that are to go live together, and rules that are to go. ``rules``: as they will be published;
    ``problems``: their mistakes, such as a field that their stream no longer has; ``reviews``: none with a mistake;
    ``etag``: changes with each change of one of them. ``named``: features and decision policies; ``others``: their
    differences."""

    chosen: tuple[str, ...]
    rules: tuple[Rule, ...]
    problems: tuple[ProblemPlace, ...]
    reviews: tuple[Review, ...]
    etag: str
    deleted: tuple[str, ...] = ()
    named: NamedChanges = NO_NAMED
    others: tuple[RuleDiff, ...] = ()


def list_changed(snapshot: Snapshot) -> list[VersionValue]:
    """Return the versions that a release could make live: drafts, those on trial and those that wait."""
    waiting = [one for one in list_versions(snapshot) if one.slot != Slot.LIVE.value]
    return sorted(waiting, key=lambda one: (one.rule, one.version))


def review_release(snapshot: Snapshot, chosen: Sequence[str]) -> ReleaseReview:
    """Return a release of versions. ``chosen``: ``RULE@VERSION`` of each. ``ProblemError`` if one is not there."""
    names = tuple(dict.fromkeys(chosen))
    if not 0 < len(names) <= MOST_RULES:
        raise _invalid("rules", f"choose 1 to {MOST_RULES} versions; headgate rules release publishes any number")
    rules = tuple(_going_live(snapshot, name) for name in names)
    if len({one.id for one in rules}) < len(rules):
        raise _invalid("rules", "a rule is chosen in two versions; choose one of them")
    problems = tuple(
        ProblemPlace.of(one).model_copy(update={"path": f"{rule.id}: {one.path}"})
        for rule in rules
        for one in check_text(snapshot, yaml_text(rule)).problems
    )
    return _review(snapshot, names, rules, problems)


def review_text(snapshot: Snapshot, text: str, deleted: Sequence[str], gone: NamedChanges = NO_NAMED) -> ReleaseReview:
    """Return a release of the rules, features and decision policies in a YAML text, and of deletions. ``gone``: the
    features and policies to delete. ``ProblemError`` if there are too many, one occurs twice, or one to delete is not
    there; other mistakes are in ``problems``."""
    documents, features, policies, faults = load_all_text(text, _FILE)
    rules = tuple(one.rule for one in documents if one.rule is not None)
    count = len(documents) + len(deleted) + len(features) + len(policies) + gone.count
    if not 0 < count <= MOST_RULES and not faults:
        raise _invalid("yaml", f"a release here has 1 to {MOST_RULES} rules; publish larger ones beside the broker")
    for name in deleted:
        find_rule(snapshot, name)
    require_in_force(snapshot, Subject.FEATURE, gone.delete_features)
    require_in_force(snapshot, Subject.DECISION_POLICY, gone.delete_policies)
    held = snapshot.history.rules
    checked = check_published(features, held.streams, held.limits, held.lists)
    published = {**held.features.documents, **checked.features}
    report = check_rules(documents, held.streams, held.limits, held.lists, published=published)
    decided = check_policies(policies, documents, held.streams, held.limits)
    low = (_check_version(snapshot, one) for one in documents)
    found = [*faults, *checked.problems, *report.problems, *decided.problems]
    problems = sorted([*found, *(problem for problem in low if problem is not None)])
    chosen = tuple(f"{rule.id}@{rule.version}" for rule in rules)
    named = gone.model_copy(
        update={
            "features": tuple(checked.features.values()),
            "decision_policies": tuple(one.policy for one in decided.policies),
        }
    )
    if (repeated := find_repeated([*(rule.id for rule in rules), *deleted], named)) is not None:
        raise _invalid("yaml", f"{repeated} occurs twice; publish it once, or delete it")
    return _review(snapshot, chosen, rules, tuple(map(ProblemPlace.of, problems)), tuple(deleted), named)


def _diff_others(snapshot: Snapshot, named: NamedChanges) -> tuple[RuleDiff, ...]:
    """Return the differences of features and policies, those that are deleted too."""
    held = snapshot.history.rules
    features, policies = held.features.documents, held.policies.documents
    gone_features = {name: features[name] for name in named.delete_features if name in features}
    gone_policies = {name: policies[name] for name in named.delete_policies if name in policies}
    return (
        *diff_named(Subject.FEATURE, features, {one.feature: one for one in named.features}),
        *diff_named(Subject.FEATURE, gone_features, {}, whole=True),
        *diff_named(Subject.DECISION_POLICY, policies, {one.decision_policy: one for one in named.decision_policies}),
        *diff_named(Subject.DECISION_POLICY, gone_policies, {}, whole=True),
    )


def _check_version(snapshot: Snapshot, loaded: LoadedRule) -> Problem | None:
    if loaded.rule is None or loaded.rule.version > (newest := snapshot.history.newest(loaded.rule.id)):
        return None
    message = f"version {loaded.rule.version} is not above {newest}, the newest; write version: {newest + 1}"
    return Problem(_FILE, loaded.document.place(("version",)), "version", message, rule=loaded.rule.id)


def _review(
    snapshot: Snapshot,
    chosen: tuple[str, ...],
    rules: tuple[Rule, ...],
    problems: tuple[ProblemPlace, ...],
    deleted: tuple[str, ...] = (),
    named: NamedChanges = NO_NAMED,
) -> ReleaseReview:
    others = _diff_others(snapshot, named)
    low = [
        ProblemPlace(
            path=f"{one.rule}: version", message=f"{one.rejection_reason}; write version: {one.required_version}"
        )
        for one in others
        if one.rejection_reason is not None
    ]
    problems = (*problems, *low)
    places = [*zip(chosen, (rule.id for rule in rules), strict=True), *((f"-{name}", name) for name in deleted)]
    tags = [f"{name}={find_etag(snapshot, rule)}" for name, rule in places]
    tags += [f"{one.subject} {one.rule}={find_etag(snapshot, one.rule, one.subject)}" for one in others]
    state = " ".join(tags)
    etag = f'"d{hashlib.blake2b(state.encode(), digest_size=12).hexdigest()}"'
    published = {**snapshot.history.rules.features.documents, **{one.feature: one for one in named.features}}
    reviews = () if problems else tuple(review_together(snapshot, rules, published))
    return ReleaseReview(chosen, rules, problems, reviews, etag, deleted, named, others)


def publish_release(
    reader: AppReader,
    name: str,
    review: Callable[[Snapshot], ReleaseReview],
    words: str,
    terms: Terms,
    key: KeyHolder | None = None,
) -> OutcomeValue:
    """Publish the rules of a review as one release. ``ProblemError`` if one was changed since it was read, has
    mistakes, or the app rejects it. ``words``: the request, by which its repetition is known. ``key``: signs it for
    its author, as a proposal, whose reason has the name."""
    if key is not None:
        terms = replace(terms, why=f"release {name}" + (f": {terms.why}" if terms.why else ""))

    def changes(snapshot: Snapshot) -> list[ControlChange]:
        if _NAME.fullmatch(name) is None:
            raise _invalid("name", "up to 80 small letters, digits and . _ -, a letter or digit first")
        if any(one.name == name for one in list_releases(snapshot)):
            raise _invalid("name", f"there is a release {name}; choose another name")
        draft = review(snapshot)
        if terms.etag is None:
            detail = f"send If-Match: {draft.etag}, the ETag of what you have read"
            raise ProblemError(428, ProblemCode.NO_PRECONDITION, detail)
        if terms.etag != draft.etag:
            detail = f"one of the rules was changed meanwhile; the ETag is now {draft.etag}"
            raise ProblemError(412, ProblemCode.CHANGED_MEANWHILE, detail, headers={"ETag": draft.etag})
        if draft.problems:
            detail = "the rules have mistakes; nothing was published"
            raise ProblemError(422, ProblemCode.INVALID_RULE, detail, draft.problems)
        return _records(snapshot, name, (draft.rules, draft.deleted, draft.named), terms, key)

    offset, repeated = write_once(reader, terms, change_digest(f"release {name}", f"publish {words}"), changes)
    changed = (Subject.RELEASE, name) if key is None else (Subject.PROPOSAL, _proposal_at(reader, offset))
    return await_outcome(reader, changed, offset, terms, repeated=repeated)


def _going_live(snapshot: Snapshot, chosen: str) -> Rule:
    """Return a version as it goes live: under the next number of its rule."""
    rule, _, version = chosen.rpartition("@")
    found = snapshot.history.documents.get((rule, parse_number(version) or 0))
    if found is None:
        raise not_found(f"app {snapshot.app} has no version {chosen}; a version is RULE@VERSION")
    numbered = found.model_copy(update={"version": snapshot.history.newest(rule) + 1})
    return in_mode(numbered, RuleMode.LIVE.value)


def _records(
    snapshot: Snapshot,
    name: str,
    content: tuple[Sequence[Rule], Sequence[str], NamedChanges],
    terms: Terms,
    key: KeyHolder | None,
) -> list[ControlChange]:
    """Return the control records of a release, which the session may change; with a key a signed proposal."""
    rules, deleted, named = content
    check_owner(snapshot, named, terms.by)
    held = snapshot.history.rules.rules
    gone = [one.rule for place, one in held.items() if place.rule in deleted]
    for rule in (*rules, *gone):
        check_scope(snapshot, rule, terms.by)
    if key is None:
        return [*release_changes(name, rules, deleted, named)]
    return [propose_changes(snapshot, content, terms, key, gone)]


def _invalid(path: str, message: str) -> ProblemError:
    place = ProblemPlace(path=path, message=message)
    return ProblemError(422, ProblemCode.INVALID_REQUEST, f"{path}: {message}", [place])


def roll_back_release(reader: AppReader, name: str, terms: Terms, key: KeyHolder | None = None) -> OutcomeValue:
    """Publish the rules before a release as the release ``undo-NAME``. ``ProblemError`` if one of its rules has changed
    since it was read, or if the app rejects it. ``key``: signs it for its author, as a proposal."""
    undo = f"undo-{name}"[:_NAME_CHARACTERS]
    terms = replace(terms, why=terms.why or f"undo release {name}")

    def changes(snapshot: Snapshot) -> list[ControlChange]:
        present = find_release(snapshot, name).etag
        if terms.etag != present:
            detail = f"a rule of release {name} was changed meanwhile; its ETag is now {present}"
            raise ProblemError(412, ProblemCode.CHANGED_MEANWHILE, detail, headers={"ETag": present})
        try:
            content = revert_release(snapshot.history, name)
        except RuleSetError as error:
            raise ProblemError(422, ProblemCode.CANNOT_ANSWER, str(error)) from None
        return _records(snapshot, undo, content, terms, key)

    offset, repeated = write_once(reader, terms, change_digest(f"release {name}", "roll back"), changes)
    changed = (Subject.RELEASE, undo) if key is None else (Subject.PROPOSAL, _proposal_at(reader, offset))
    return await_outcome(reader, changed, offset, terms, repeated=repeated)


def _proposal_at(reader: AppReader, offset: int) -> str:
    """Return the name of the proposal at an offset of the control topic."""
    entries = reversed(reader.snapshot().history.entries)
    own = (one.status for one in entries if one.written.control.offset == offset)
    return next((status.name for status in own if status.subject is Subject.PROPOSAL), "")
