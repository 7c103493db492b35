"""The table of decision policies while an update changes it: publish and delete.

A rejected version changes nothing. A stream has at most one policy, so each event has at most one decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from rulecore.compile.decision_policy import CompiledPolicy, compile_policy
from rulecore.compile.rule import RuleLimits
from rulecore.documents.decision_policy import DecisionPolicy, encode_policy
from rulecore.documents.loading import decode_policy
from rulecore.documents.rule import Rule, RuleMode
from rulecore.documents.status import RuleStatus, StatusKind, Subject
from rulecore.errors import RuleError, RuleSetError
from rulecore.governance.documents import ProposalDocument
from rulecore.governance.table import ApprovalNeed, GovernanceTable
from rulecore.streams import stream_names
from streamcore.schema import StreamSchema

#: The prefix of the names of policies among the records of a rule set.
STORED_POLICY: Final = "decision_policy:"


@dataclass(frozen=True, slots=True)
class CompiledPolicies:
    """The policies of a rule set. ``stored``: the canonical JSON of each, by name; ``by_stream``: those that compile,
    by stream. One that does not compile any more, because a stream is gone, decides nothing until it compiles again."""

    stored: Mapping[str, bytes]
    by_stream: Mapping[str, CompiledPolicy] = field(compare=False)

    @classmethod
    def compile(
        cls, stored: Mapping[str, bytes], streams: Mapping[str, StreamSchema], limits: RuleLimits
    ) -> CompiledPolicies:
        """Return the policies with these canonical bytes."""
        by_stream: dict[str, CompiledPolicy] = {}
        for _, value in sorted(stored.items()):
            if (policy := _read_stored(value)) is None:
                continue
            try:
                compiled = compile_policy(policy, streams, limits)
            except RuleError:
                continue
            by_stream |= dict.fromkeys(compiled.streams, compiled)
        return cls(dict(stored), by_stream)

    @property
    def documents(self) -> Mapping[str, DecisionPolicy]:
        """The policies by name, without those that this release reads no more."""
        found = ((name, _read_stored(value)) for name, value in sorted(self.stored.items()))
        return {name: policy for name, policy in found if policy is not None}

    def merging(self, rule: Rule) -> tuple[DecisionPolicy, ...]:
        """Return the policies that decide about events of the streams of a rule."""
        found = (self.by_stream.get(name) for name in stream_names(rule.on))
        return tuple({one.name: one.policy for one in found if one is not None}.values())


NO_POLICIES: Final = CompiledPolicies({}, {})


@dataclass(slots=True)
class PolicyTable:
    """The policies of the next rule set, mutable. ``touched``: whether a policy has changed."""

    policies: CompiledPolicies
    streams: Mapping[str, StreamSchema]
    limits: RuleLimits
    touched: bool = False

    def apply(self, name: str, value: bytes | None, governance: GovernanceTable | None) -> RuleStatus:
        """Publish a version of a policy, or delete the policy if ``value`` is None; return the status.

        ``governance``: by whose policies an unsigned change is checked; None for one that has what it needs."""
        policy: DecisionPolicy | None = None
        try:
            policy = None if value is None else decode_policy(value, self.limits.record_bytes)
            if governance is not None:
                governance.check_unsigned(self.need(name, policy, governance), f"decision policy {name}")
            if policy is None:
                return self._delete(name)
            note = self._put(name, policy)
        except RuleError as error:
            version = None if policy is None else policy.version
            return _status(name, version, StatusKind.REJECTED, str(error))
        return _status(name, policy.version, StatusKind.ACCEPTED, note)

    def apply_proposal(self, document: ProposalDocument) -> tuple[PolicyTable, list[RuleStatus]]:
        """Return the table after the changes of a proposal, and their statuses, which may be rejections."""
        draft = replace(self)
        changes: list[tuple[str, bytes | None]] = [(name, None) for name in document.delete_policies]
        changes += [(one.decision_policy, encode_policy(one)) for one in document.decision_policies]
        return draft, [draft.apply(name, value, None) for name, value in changes]

    def needs(self, document: ProposalDocument, governance: GovernanceTable) -> list[ApprovalNeed]:
        """Return the requirements of each of a proposal's changes of decision policies."""
        published = [self.need(one.decision_policy, one, governance) for one in document.decision_policies]
        return published + [self.need(name, None, governance) for name in document.delete_policies]

    def need(self, name: str, policy: DecisionPolicy | None, governance: GovernanceTable) -> ApprovalNeed:
        """Return the requirements of a change: those of a live rule without tags, or of
        its deletion if ``policy`` is None."""
        if not self._changes(name, policy):
            return ApprovalNeed()
        return governance.need((), RuleMode.RETIRED if policy is None else RuleMode.LIVE)

    def _changes(self, name: str, policy: DecisionPolicy | None) -> bool:
        """Return whether there would be another policy, or none any more."""
        known = self.policies.stored.get(name)
        return known is not None if policy is None else known != encode_policy(policy)

    def _delete(self, name: str) -> RuleStatus:
        if name not in self.policies.stored:
            return _status(name, None, StatusKind.DELETED, "there is no such decision policy")
        version = self._version(name)
        self._replace({key: value for key, value in self.policies.stored.items() if key != name})
        return _status(name, version, StatusKind.DELETED, None)

    def _put(self, name: str, policy: DecisionPolicy) -> str | None:
        """Put the version in place of the one before, and return a note; raise ``RuleError`` if it is rejected."""
        if name != policy.decision_policy:
            raise RuleSetError(
                f"the record's key names decision policy {name!r} and its value {policy.decision_policy!r}; "
                "they must be the same"
            )
        canonical = encode_policy(policy)
        stored = self.policies.stored
        if stored.get(name) == canonical:
            return "no change"
        if (newest := self._version(name)) is not None and policy.version <= newest:
            raise RuleSetError(f"version {policy.version} is not above version {newest}, the newest; raise it")
        if name not in stored and len(stored) >= self.limits.decision_policies:
            raise RuleSetError(f"there are {len(stored)} decision policies, which is the limit; delete one first")
        compile_policy(policy, self.streams, self.limits)
        for other, value in sorted(stored.items()):
            known = _read_stored(value)
            if other != name and known is not None and (shared := overlap(policy, known)):
                raise RuleSetError(f"on: decision policy {other} decides about events of {shared}; a stream has one")
        self._replace({**stored, name: canonical})
        return None

    def _version(self, name: str) -> int | None:
        """Return the number of the stored version; None without one that can be read."""
        value = self.policies.stored.get(name)
        known = None if value is None else _read_stored(value)
        return None if known is None else known.version

    def _replace(self, stored: Mapping[str, bytes]) -> None:
        self.policies = CompiledPolicies.compile(stored, self.streams, self.limits)
        self.touched = True


def _read_stored(value: bytes) -> DecisionPolicy | None:
    """Return a stored version. None if this release reads it no more: it decides nothing, and any version or tombstone
    replaces it."""
    try:
        return decode_policy(value, len(value))
    except RuleError:
        return None


def overlap(one: DecisionPolicy, other: DecisionPolicy) -> str:
    """Return the first stream about whose events both decide; "" if there is none."""
    return min({*stream_names(one.on)} & {*stream_names(other.on)}, default="")


def _status(name: str, version: int | None, kind: StatusKind, reason: str | None) -> RuleStatus:
    return RuleStatus(name, version, kind, reason, 0, 0, 0, Subject.DECISION_POLICY)


def check_policy(
    policies: CompiledPolicies, stream: str, streams: Mapping[str, StreamSchema], limits: RuleLimits
) -> None:
    """Raise ``RuleSetError`` if the policy of a stream is not valid with its new document, which is in ``streams``."""
    policy = policies.by_stream.get(stream)
    if policy is None:
        return
    try:
        compile_policy(policy.policy, streams, limits)
    except RuleError as error:
        raise RuleSetError(
            f"decision policy {policy.name} version {policy.policy.version} would not be valid any more: {error}; "
            "publish a version that is valid with both, or delete it"
        ) from None
