"""The table of decision policies while an update changes it: publish and delete.

A rejected version changes nothing. A stream has at most one policy, so each event has at most one decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rulecore.compile.decision_policy import CompiledPolicy, compile_policy
from rulecore.compile.rule import RuleLimits
from rulecore.documents.decision_policy import DecisionPolicy, encode_policy
from rulecore.documents.loading import decode_policy
from rulecore.documents.status import RuleStatus, StatusKind, Subject
from rulecore.errors import RuleError, RuleSetError
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
            try:
                compiled = compile_policy(decode_policy(value, len(value)), streams, limits)
            except RuleError:
                continue
            by_stream |= dict.fromkeys(compiled.streams, compiled)
        return cls(dict(stored), by_stream)


NO_POLICIES: Final = CompiledPolicies({}, {})


@dataclass(slots=True)
class PolicyTable:
    """The policies of the next rule set, mutable. ``touched``: whether a policy has changed."""

    policies: CompiledPolicies
    streams: Mapping[str, StreamSchema]
    limits: RuleLimits
    touched: bool = False

    def apply(self, name: str, value: bytes | None) -> RuleStatus:
        """Publish a version of a policy, or delete the policy if ``value`` is None; return the status."""
        if value is None:
            return self._delete(name)
        policy: DecisionPolicy | None = None
        try:
            policy = decode_policy(value, self.limits.record_bytes)
            note = self._put(name, policy)
        except RuleError as error:
            version = None if policy is None else policy.version
            return _status(name, version, StatusKind.REJECTED, str(error))
        return _status(name, policy.version, StatusKind.ACCEPTED, note)

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
        if name in stored and policy.version <= (newest := self._version(name)):
            raise RuleSetError(f"version {policy.version} is not above version {newest}, the newest; raise it")
        if name not in stored and len(stored) >= self.limits.decision_policies:
            raise RuleSetError(f"there are {len(stored)} decision policies, which is the limit; delete one first")
        compile_policy(policy, self.streams, self.limits)
        for other, value in sorted(stored.items()):
            if other != name and (shared := overlap(policy, decode_policy(value, len(value)))):
                raise RuleSetError(f"on: decision policy {other} decides about events of {shared}; a stream has one")
        self._replace({**stored, name: canonical})
        return None

    def _version(self, name: str) -> int:
        value = self.policies.stored[name]
        return decode_policy(value, len(value)).version

    def _replace(self, stored: Mapping[str, bytes]) -> None:
        self.policies = CompiledPolicies.compile(stored, self.streams, self.limits)
        self.touched = True


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
