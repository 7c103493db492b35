"""The history of rules, from the records of the control topic (the *log*).

The history has the author, subject and time of each change, the versions that were live after it, and the document of
every version. A rule set is a pure function of the log, so ``replay_log`` applies the log to a rule set again, record
by record, each at the time when it was written. The app is not needed. The app's own answers may differ where its
streams, limits or clock do; callers show them beside the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rulecore.documents.decision_policy import DecisionPolicy
from rulecore.documents.loading import decode_policy, decode_record
from rulecore.documents.published_feature import PublishedFeature
from rulecore.documents.releases import NamedChanges
from rulecore.documents.rule import Rule, RuleMode
from rulecore.documents.status import RuleStatus, StatusKind, Subject, as_reply
from rulecore.errors import RuleSetError
from rulecore.lists.routing import is_list
from rulecore.lists.store import ListStore
from rulecore.ruleset.replay import LogReplay
from rulecore.ruleset.ruleset import RuleSet
from rulecore.ruleset.stream_changes import replay_stream
from streamcore.engine.publication import is_stream
from streamcore.kernel import ControlRecord

_Named = TypeVar("_Named", DecisionPolicy, PublishedFeature)
#: What ends or begins the time of a document. A quarantine, for example, does neither.
_BEGIN_OR_END = (StatusKind.ACCEPTED, StatusKind.DELETED)


@dataclass(frozen=True, slots=True)
class ControlEntry:
    """A control record, the time when it was written, its author (``by``) and the author's reason (``why``)."""

    control: ControlRecord
    time_ms: int
    by: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One change (``written``) and its outcome (``status``)."""

    written: ControlEntry
    status: RuleStatus


@dataclass(slots=True)
class RuleHistory:
    """The entries in the order of the log, and the rules and lists after the last entry.

    ``documents``: every version that was ever accepted, by rule and version number. ``live_versions``: by rule, the
    versions in the live slot one after the other, each with the index of its entry; None where the rule was deleted.
    ``policies``, ``features``: the versions of decision policies and published features that were accepted, by name and
    number, each with the index of its entry; several if one was deleted and its numbers began again.
    """

    rules: RuleSet
    lists: ListStore = field(default_factory=ListStore.empty)
    entries: list[HistoryEntry] = field(default_factory=list)
    documents: dict[tuple[str, int], Rule] = field(default_factory=dict)
    live_versions: dict[str, list[tuple[int, int | None]]] = field(default_factory=dict)
    policies: dict[tuple[str, int], list[tuple[int, DecisionPolicy]]] = field(default_factory=dict)
    features: dict[tuple[str, int], list[tuple[int, PublishedFeature]]] = field(default_factory=dict)

    def before(self, rule: str, entry: int) -> int | None:
        """Return the version of a rule that was live before the entry with this index; None if there was none."""
        earlier = [version for index, version in self.live_versions.get(rule, ()) if index < entry]
        return earlier[-1] if earlier else None

    def policy(self, name: str, version: int, at_ms: int) -> DecisionPolicy | None:
        """Return a version of a decision policy as it was in force at a time; None if it was never accepted. Clocks
        may differ, so of versions that all seem to be later it is the first."""
        accepted = self.policies.get((name, version), [])
        earlier = [policy for entry, policy in accepted if self.entries[entry].written.time_ms <= at_ms]
        if earlier:
            return earlier[-1]
        return accepted[0][1] if accepted else None

    def in_force(self, subject: Subject, name: str, entry: int | None = None) -> RuleStatus | None:
        """Return the answer that accepted the document in force before the entry with this index, or now; None if
        none was accepted, or it was deleted."""
        for earlier in reversed(self.entries[:entry]):
            status = earlier.status
            if (status.subject, status.name) == (subject, name) and status.status in _BEGIN_OR_END:
                return status if status.status is StatusKind.ACCEPTED else None
        return None

    def named_before(self, subject: Subject, name: str, entry: int) -> int | None:
        """Return the version of a decision policy or feature before the entry with this index; None without one."""
        found = self.in_force(subject, name, entry)
        return None if found is None else found.version

    def newest(self, rule: str) -> int:
        """Return the highest version of a rule that was ever accepted; 0 if there was none."""
        return _newest(self.documents, rule)


def replay_log(rules: RuleSet, log: Iterable[ControlEntry]) -> RuleHistory:
    """Return the history of a log that is applied to ``rules``, usually an empty set."""
    history = RuleHistory(rules)
    extend(history, log)
    return history


def extend(history: RuleHistory, log: Iterable[ControlEntry]) -> None:
    """Add further entries of the log to its history."""
    replay: LogReplay | None = None
    for written in log:
        if replay is not None and (is_stream(written.control) or is_list(written.control)):
            history.rules, replay = history.rules.after_replay(replay), None
        if is_stream(written.control):
            history.rules, answer = replay_stream(history.rules, written.control, history.rules.limits.record_bytes)
            history.entries.append(HistoryEntry(written, answer))
            continue
        if is_list(written.control):
            history.entries.append(HistoryEntry(written, _apply_list(history, written.control)))
            continue
        replay = replay or history.rules.start_replay()
        for status in replay.apply(written.control, written.time_ms):
            history.entries.append(HistoryEntry(written, status))
            if status.subject is Subject.RULE:
                _record_versions(history, replay, status)
            elif status.status is StatusKind.ACCEPTED:
                _record_named(history, replay, status)
    if replay is not None:
        history.rules = history.rules.after_replay(replay)


def _apply_list(history: RuleHistory, control: ControlRecord) -> RuleStatus:
    """Apply the record of a list to the history's lists, and return the answer to it."""
    key = (control.key or b"").decode("utf-8", "replace")
    history.lists, answer = history.lists.apply(key, control.value, history.rules.rules_using_list)
    history.rules = history.rules.with_lists(history.lists.types())
    return as_reply(answer, control, history.rules.epoch)


def _record_versions(history: RuleHistory, replay: LogReplay, status: RuleStatus) -> None:
    """Add the rule's documents, and its live version if it changed, to the history."""
    if status.status in (StatusKind.ACCEPTED, StatusKind.EFFECTIVE):
        for value in replay.stored(status.name):
            rule = decode_record(value, len(value))
            history.documents[rule.id, rule.version] = rule
    live = replay.live(status.name)
    version = None if live is None else live.rule.version
    versions_over_time = history.live_versions.setdefault(status.name, [])
    if (versions_over_time[-1][1] if versions_over_time else None) != version:
        versions_over_time.append((len(history.entries) - 1, version))


def _record_named(history: RuleHistory, replay: LogReplay, status: RuleStatus) -> None:
    """Add the decision policy or feature that was accepted to the history; one that the same record deletes is gone."""
    entry = len(history.entries) - 1
    if status.subject is Subject.DECISION_POLICY:
        value = replay.update.policies.policies.stored.get(status.name)
        if value is not None:
            policy = decode_policy(value, len(value))
            history.policies.setdefault((policy.decision_policy, policy.version), []).append((entry, policy))
    elif status.subject is Subject.FEATURE:
        feature = replay.update.versions.features.documents.get(status.name)
        if feature is not None:
            history.features.setdefault((feature.feature, feature.version), []).append((entry, feature))


def roll_back(history: RuleHistory, rule_id: str, to: int | None = None) -> Rule:
    """Return version ``to``, or the version that was live before the current one, as a new live version.

    Raises ``RuleSetError`` if there is no such version.
    """
    known = sorted(version for name, version in history.documents if name == rule_id)
    if not known:
        raise RuleSetError(f"no version of {rule_id!r} was ever accepted; see headgate rules list --history")
    if to is None:
        versions = [version for _, version in history.live_versions.get(rule_id, ()) if version is not None]
        live = history.rules.live(rule_id)
        earlier = [v for v in versions if live is None or v != live.rule.version]
        if not earlier:
            raise RuleSetError(f"{rule_id} has had no other version than {versions[-1] if versions else known[-1]}")
        to = earlier[-1]
    if to not in known:
        raise RuleSetError(f"{rule_id} has no version {to}; it has {', '.join(map(str, known))}")
    return _with_next_version(history, rule_id, to)


def _with_next_version(history: RuleHistory, rule_id: str, version: int) -> Rule:
    """Return a version of the rule with the next version number; live if it was a draft or retired."""
    document = history.documents[rule_id, version]
    change: dict[str, object] = {"version": history.newest(rule_id) + 1}
    if document.status in (RuleMode.DRAFT, RuleMode.RETIRED):
        change["mode"] = RuleMode.LIVE
    return document.model_copy(update=change)


def revert_release(history: RuleHistory, release: str) -> tuple[Sequence[Rule], Sequence[str], NamedChanges]:
    """Return the rules to publish, the ids of those to delete, and the changes of features and decision policies, so
    that each is as before a release.

    Raises ``RuleSetError`` if the release is unknown.
    """
    own = [(index, one.status) for index, one in enumerate(history.entries) if one.status.release == release]
    first = {(status.subject, status.name): index for index, status in reversed(own)}
    if not first:
        raise RuleSetError(f"there is no accepted release {release!r}; see headgate rules list --history")
    before: Mapping[str, int | None] = {
        name: history.before(name, index) for (subject, name), index in sorted(first.items()) if subject is Subject.RULE
    }
    restored = [_with_next_version(history, rule, version) for rule, version in before.items() if version is not None]
    deleted = [rule for rule, version in before.items() if version is None]
    return restored, deleted, _revert_named(history, first)


def _revert_named(history: RuleHistory, first: Mapping[tuple[Subject, str], int]) -> NamedChanges:
    """Return the changes of features and policies. ``first``: by subject and name, the first entry of the release."""
    features, no_features = _revert_documents(history, history.features, Subject.FEATURE, first)
    policies, no_policies = _revert_documents(history, history.policies, Subject.DECISION_POLICY, first)
    return NamedChanges.model_construct(
        features=features, decision_policies=policies, delete_policies=no_policies, delete_features=no_features
    )


def _revert_documents(
    history: RuleHistory,
    accepted: Mapping[tuple[str, int], Sequence[tuple[int, _Named]]],
    subject: Subject,
    first: Mapping[tuple[Subject, str], int],
) -> tuple[tuple[_Named, ...], tuple[str, ...]]:
    """Return the documents to publish under their next numbers, and the names to delete. ``accepted``: as in
    ``RuleHistory``."""
    restored, deleted = list[_Named](), list[str]()
    for name, entry in sorted((name, entry) for (of, name), entry in first.items() if of is subject):
        version = history.named_before(subject, name, entry)
        if version is None:
            deleted.append(name)
            continue
        document = [one for index, one in accepted[name, version] if index < entry][-1]
        restored.append(document.model_copy(update={"version": _newest(accepted, name) + 1}))
    return tuple(restored), tuple(deleted)


def _newest(versions: Iterable[tuple[str, int]], name: str) -> int:
    """Return the highest version of a name; 0 if there is none."""
    return max((version for own, version in versions if own == name), default=0)
