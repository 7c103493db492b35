"""Applies control records to a copy of a rule set's tables.

A rejected record changes nothing. If one change of a release is rejected, the release changes nothing. The module knows
neither events nor the state of rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from rulecore.backfill import Backfill, BackfillRows, decode_backfill, decode_part, decode_parts
from rulecore.compile.cache import ChangeBytes, compile_version, decode_part_cached, with_canonical_bytes
from rulecore.compile.rule import RuleLimits
from rulecore.documents.control_keys import (
    APPROVAL_KEY,
    BACKFILL_KEY,
    DECISION_POLICY_KEY,
    FEATURE_KEY,
    POLICY_KEY,
    PROPOSAL_KEY,
    QUARANTINE_KEY,
    RELEASE_KEY,
    SIGNER_KEY,
    STAGED_KEY,
    parse_key,
)
from rulecore.documents.decision_policy import encode_policy
from rulecore.documents.loading import decode_record
from rulecore.documents.published_feature import encode_feature
from rulecore.documents.quarantine import decode_quarantine
from rulecore.documents.releases import RuleChange, RuleRelease, decode_release, digest_part, find_repeated
from rulecore.documents.rule import Rule, canonical_json
from rulecore.documents.slots import Slot, VersionSlot
from rulecore.documents.status import RuleStatus, StatusKind, Subject, as_reply
from rulecore.errors import RuleError, RuleSetError
from rulecore.governance.documents import ProposalDocument
from rulecore.governance.table import ApprovalNeed, GovernanceTable
from rulecore.ruleset.approvals import Approvals, apply_changes, check_change, error_text
from rulecore.ruleset.decision_policies import PolicyTable
from rulecore.ruleset.feature_changes import apply_feature
from rulecore.ruleset.versions import VersionTable
from rulecore.streams import find_stream
from streamcore.kernel import ControlRecord

_REASONS: Final = 20  # most rejected changes of a release that its status lists


@dataclass(slots=True)
class RuleSetUpdate:
    """The tables of the next rule set, while records are applied. ``restaged``: whether staged parts have changed."""

    versions: VersionTable
    staged: dict[str, bytes]
    governance: GovernanceTable
    policies: PolicyTable
    backfills: list[BackfillRows] = field(default_factory=list)
    restaged: bool = False

    @property
    def touched(self) -> bool:
        """Return whether anything has changed that must be stored."""
        own = self.versions.touched or self.restaged or bool(self.backfills)
        return own or self.governance.touched or self.policies.touched

    @property
    def changed(self) -> bool:
        """Return whether the epoch is another one."""
        return self.versions.changed or self.policies.touched

    @property
    def _limits(self) -> RuleLimits:
        return self.versions.context.limits

    def apply_record(self, record: ControlRecord) -> list[RuleStatus]:
        """Apply one record and return its statuses, without the epoch."""
        name = (record.key or b"").decode("utf-8", "replace")
        try:
            statuses = list(self._apply(name, record.value))
        except RuleError as error:
            statuses = [_rejected_status(name, error_text(error))]
        except Exception as error:  # a program error at one record must not stop the app
            statuses = [_rejected_status(name, f"internal error: {type(error).__name__}: {error}")]
        return [as_reply(status, record) for status in statuses]

    def _apply(self, key: str, value: bytes | None) -> Iterator[RuleStatus]:
        """Apply a record by the kind of its key; raise ``RuleError`` if it is rejected."""
        if key.startswith(BACKFILL_KEY):
            yield self._apply_backfill(key.removeprefix(BACKFILL_KEY), value)
        elif key.startswith(QUARANTINE_KEY):
            yield self.versions.set_quarantine(*decode_quarantine(key, value))
        elif key.startswith(STAGED_KEY):
            yield self._stage_part(key.removeprefix(STAGED_KEY), value)
        elif key.startswith(RELEASE_KEY):
            yield from self._apply_release(key.removeprefix(RELEASE_KEY), value)
        elif key.startswith(DECISION_POLICY_KEY):
            yield self.policies.apply(key.removeprefix(DECISION_POLICY_KEY), value, self.governance)
        elif key.startswith(FEATURE_KEY):
            yield apply_feature(self.versions, key.removeprefix(FEATURE_KEY), value, self.governance)
        elif key.startswith((SIGNER_KEY, POLICY_KEY, PROPOSAL_KEY, APPROVAL_KEY)):
            approvals = self._approvals()
            statuses = approvals.apply(key, value)
            self.versions, self.policies = approvals.versions, approvals.policies
            yield from statuses
        else:
            yield self._apply_rule(key, value)

    def _apply_rule(self, name: str, value: bytes | None) -> RuleStatus:
        """Publish a version of a rule, or delete the rule if ``value`` is None."""
        if value is None:
            check_change(self.versions, self.governance, RuleChange(delete=name))
            return self.versions.delete(name)
        self.versions.check_room(name)  # before the record is decoded: however many are too many, each costs little
        rule: Rule | None = None
        try:
            rule = decode_record(value, self._limits.record_bytes)
            if name != rule.id:
                raise RuleSetError(f"the record's key is {name!r} and the rule's id {rule.id!r}; they must be the same")
            canonical = canonical_json(rule)
            check_change(self.versions, self.governance, RuleChange(rule=rule), canonical)
            return self.versions.put(rule, canonical)
        except RuleError as error:
            version, mode = (None, None) if rule is None else (rule.version, rule.mode_text)
            return RuleStatus(name, version, StatusKind.REJECTED, error_text(error), 0, 0, 0, mode=mode)

    def _stage_part(self, digest: str, value: bytes | None) -> RuleStatus:
        """Store a part of a later release or backfill, or delete it if ``value`` is None."""
        if value is None:
            self._drop_part(digest)
            return RuleStatus(digest, None, StatusKind.DELETED, None, 0, 0, 0, Subject.PART)
        if digest_part(value) != digest:
            raise RuleSetError(f"the part's bytes have the digest {digest_part(value)}, its key has {digest[:40]}")
        staged_bytes = sum(map(len, self.staged.values())) + len(value)
        if digest not in self.staged and staged_bytes > self._limits.staged_bytes:
            raise RuleSetError(
                f"staged parts of unpublished releases have {staged_bytes} bytes, at most {self._limits.staged_bytes}; "
                "publish the release, or delete parts"
            )
        warning = self._precompile(value)
        self.staged[digest] = value
        self.restaged = True
        return RuleStatus(digest, None, StatusKind.STAGED, warning, 0, 0, 0, Subject.PART)

    def _precompile(self, value: bytes) -> str | None:
        """Compile the versions of a part before the cut of its release, and return their errors as a warning."""
        if not value.startswith(b"["):
            decode_part(value)  # a part of a backfill: only check its form
            return None
        rejected: list[str] = []
        for change, version in decode_part_cached(value):
            if change.rule is not None:
                try:
                    compile_version(version, self.versions.context)
                except RuleError as error:
                    rejected.append(f"{change.rule.id}: {error_text(error)}")
        return None if not rejected else "will be rejected:\n" + "\n".join(rejected[:_REASONS])

    def _apply_backfill(self, name: str, value: bytes | None) -> RuleStatus:
        """Add a backfill to the update, and delete its parts, even if the backfill is rejected."""
        if value is None:
            return RuleStatus(
                name,
                None,
                StatusKind.DELETED,
                "nothing changed: a backfill cannot be deleted",
                0,
                0,
                0,
                Subject.BACKFILL,
            )
        backfill = decode_backfill(value)
        try:
            self.backfills.append(self._decode_backfill(name, backfill))
        finally:
            for digest in backfill.parts:
                self._drop_part(digest)
        return RuleStatus(name, backfill.version, StatusKind.ACCEPTED, None, 0, 0, 0, Subject.BACKFILL)

    def _decode_backfill(self, name: str, backfill: Backfill) -> BackfillRows:
        """Return the rows of the backfill; raise ``RuleSetError`` if they do not fit an evaluated version."""
        slots = [VersionSlot(name, slot) for slot in (Slot.LIVE, Slot.CANDIDATE)]
        known = self.versions.rules
        rules = [known[p] for p in slots if p in known and known[p].rule.version == backfill.version]
        if name != backfill.rule or not rules:
            raise RuleSetError(
                f"version {backfill.version} of {name!r} is neither live nor on trial, so it takes no backfill"
            )
        schemas = {schema.name: schema for schema in self.versions.context.streams}
        return decode_parts(backfill, rules[0], find_stream(schemas, rules[0].rule.on), self.staged)

    def _apply_release(self, name: str, value: bytes | None) -> Iterator[RuleStatus]:
        """Apply all changes to copies of the tables; replace the tables by the copies if no change is rejected."""
        if value is None:
            yield _release_status(name, StatusKind.DELETED, "nothing changed: a release cannot be deleted")
            return
        release = decode_release(value)
        if release.release != name:
            raise RuleSetError(f"the record's key names release {name!r} and its value {release.release!r}")
        changes = [*self._changes(release)]
        rules = (change.delete if change.rule is None else change.rule.id for change, _ in changes)
        if (repeated := find_repeated([*filter(None, rules)], release)) is not None:
            self._drop_parts(release)
            raise RuleSetError(f"a release changes each name once; {repeated} is there twice")
        draft, policies = self.versions.copy(), replace(self.policies)
        first = [apply_feature(draft, one.feature, encode_feature(one), self.governance) for one in release.features]
        statuses, rejected = apply_changes(draft, changes, self.governance)
        named = [*first, *self._apply_named(draft, policies, release)]
        self._drop_parts(release)
        refused = [one for one in named if one.status is StatusKind.REJECTED]
        statuses = [*first, *statuses, *named[len(first) :]]
        statuses = [one for one in statuses if one not in refused]
        rejected = [*(f"{one.subject.value.replace('_', ' ')} {one.name}: {one.reason}" for one in refused), *rejected]
        if rejected:
            more = f"\nand {len(rejected) - _REASONS} more" if len(rejected) > _REASONS else ""
            reason = f"{len(rejected)} of {len(statuses) + len(rejected)} changes are rejected, so nothing changed:\n"
            yield _release_status(name, StatusKind.REJECTED, reason + "\n".join(rejected[:_REASONS]) + more)
            return
        self.versions, self.policies = draft, policies
        yield _release_status(name, StatusKind.ACCEPTED, None)
        yield from (replace(status, release=name) for status in statuses)

    def _apply_named(self, draft: VersionTable, policies: PolicyTable, release: RuleRelease) -> Iterator[RuleStatus]:
        """Apply the changes of a release that come after its rules; yield their statuses, which may be rejections."""
        for policy in release.decision_policies:
            yield policies.apply(policy.decision_policy, encode_policy(policy), self.governance)
        for name in release.delete_policies:
            yield policies.apply(name, None, self.governance)
        for name in release.delete_features:
            yield apply_feature(draft, name, None, self.governance)

    def _changes(self, release: RuleRelease) -> Iterator[ChangeBytes]:
        """Yield the changes of the release's parts and of its record; raise ``RuleSetError`` if a part is missing."""
        missing = [digest for digest in release.parts if digest not in self.staged]
        if missing:
            raise RuleSetError(f"part {missing[0]} is missing; publish the parts of a release before the release")
        for digest in release.parts:
            yield from decode_part_cached(self.staged[digest])
        yield from map(with_canonical_bytes, release.changes)

    def compute_need(self, proposal: ProposalDocument) -> ApprovalNeed:
        """Return the requirements of all changes of a proposal together."""
        return self._approvals().need(proposal)

    def end_emergencies(self) -> list[RuleStatus]:
        """Take back the versions whose emergency ends now; return their statuses."""
        return self._approvals().end_emergencies()

    def _approvals(self) -> Approvals:
        return Approvals(self.versions, self.governance, self.policies)

    def _drop_parts(self, release: RuleRelease) -> None:
        for digest in release.parts:
            self._drop_part(digest)

    def _drop_part(self, digest: str) -> None:
        self.restaged |= self.staged.pop(digest, None) is not None


def _release_status(name: str, kind: StatusKind, reason: str | None) -> RuleStatus:
    """Return the status of a release."""
    return RuleStatus(name, None, kind, reason, 0, 0, 0, Subject.RELEASE)


def _rejected_status(key: str, reason: str) -> RuleStatus:
    """Return the status of a rejected record with this key."""
    subject, name = parse_key(key)
    return RuleStatus(name, None, StatusKind.REJECTED, reason, 0, 0, 0, subject)
