"""Changes of rules by what their policies ask: unsigned ones are checked, proposals and approvals are counted.

A proposal takes effect in the cut of the record that completes it: of the last approval, or its own if no policy asks
for one or it is an emergency. An emergency that nobody else approves ends at its time: the live version before it is
published again under the next number; without one, the version expires.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import orjson

from rulecore.compile.cache import ChangeBytes, with_canonical_bytes
from rulecore.documents.control_keys import POLICY_KEY, PROPOSAL_KEY, SIGNER_KEY, parse_key
from rulecore.documents.loading import decode_record
from rulecore.documents.releases import RuleChange
from rulecore.documents.rule import RuleMode, canonical_json
from rulecore.documents.scalars import render_time
from rulecore.documents.slots import Slot, VersionSlot, version_key
from rulecore.documents.status import RuleStatus, StatusKind, Subject
from rulecore.errors import ExpressionError, RuleError, RuleSetError
from rulecore.governance.documents import ApprovalDocument, ProposalDocument, SignerRole, proposal_id, read_text
from rulecore.governance.signatures import decode_signed
from rulecore.governance.state import Emergency, OpenProposal
from rulecore.governance.table import ApprovalNeed, GovernanceTable, SignerIdentity
from rulecore.ruleset.decision_policies import PolicyTable
from rulecore.ruleset.versions import VersionTable

_RECORD_BYTES: Final = 1 << 20
_REASONS: Final = 20


@dataclass(slots=True)
class Approvals:
    """Applies signed records. ``versions`` and ``policies``: replaced by copies when a proposal takes effect."""

    versions: VersionTable
    governance: GovernanceTable
    policies: PolicyTable

    def apply(self, key: str, value: bytes | None) -> list[RuleStatus]:
        """Apply a signed record, and return its statuses. Raise ``RuleError`` if it is rejected."""
        subject, name = parse_key(key)
        if value is not None and len(value) > _RECORD_BYTES:
            raise RuleSetError(f"the record has {len(value)} bytes, at most {_RECORD_BYTES}")
        if key.startswith(SIGNER_KEY):
            by = self.governance.put_signer(name, key, value)
            return [_status(subject, name, StatusKind.ACCEPTED, None, by.subject)]
        if key.startswith(POLICY_KEY):
            by = self.governance.put_policy(name, key, value)
            return [_status(subject, name, StatusKind.ACCEPTED, None, by.subject)]
        if value is None:
            raise RuleSetError("nothing changed: a proposal is refused by a signed record; see headgate rules approve")
        return self._propose(name, key, value) if key.startswith(PROPOSAL_KEY) else self._approve(name, key, value)

    def _propose(self, name: str, key: str, value: bytes) -> list[RuleStatus]:
        signed = decode_signed(value)
        if proposal_id(signed.text) != name:
            raise RuleSetError("the record's key is not the digest of its text")
        document = read_text(signed.text, ProposalDocument)
        by = self.governance.identify(signed, key, document.app, document.by)
        by.require(SignerRole.AUTHOR, "a proposal")
        self.governance.check_new(name, document.at_ms)
        versions, policies, statuses = self._applied(document)
        for change in _changes(document):
            bind_tags(self.versions, self.governance, change)
        need = self.need(document)
        if need.approvals:
            self.governance.check_room(signed.text, by.subject)
        if need.approvals and not document.emergency:
            self.governance.open(name, OpenProposal(signed.text, by.subject, need.approvals))
            return [_status(Subject.PROPOSAL, name, StatusKind.PROPOSED, f"needs {need.text}", by.subject)]
        by.require(SignerRole.PUBLISHER, "a change that takes effect at once")
        note = None
        if need.approvals:
            note = self._begin_emergency(name, document, need)
            self.governance.open(name, OpenProposal(signed.text, by.subject, need.approvals, in_force=True))
        else:
            self.governance.close(name)
        self.versions, self.policies = versions, policies
        own = _status(Subject.PROPOSAL, name, StatusKind.ACCEPTED, note, by.subject)
        return [own, *(replace(one, by=by.subject, reason=note or one.reason) for one in statuses)]

    def _approve(self, name: str, key: str, value: bytes) -> list[RuleStatus]:
        signed = decode_signed(value)
        document = read_text(signed.text, ApprovalDocument)
        if document.proposal != name:
            raise RuleSetError(f"the record's key names proposal {name!r} and its text {document.proposal!r}")
        by = self.governance.identify(signed, key, document.app, document.by)
        self.governance.check_time(document.at_ms)
        if document.verdict == "refuse":
            return self._refuse(name, by)
        proposal = self.governance.add_approval(name, by)
        proposed = proposal.document
        need, count = self.need(proposed), len(proposal.approvals)
        needed = max(need.approvals, proposal.needs)  # an emergency may have left the policy's tag out
        if count < needed:
            note = f"{count} of {needed} approvals"
            return [_status(Subject.APPROVAL, name, StatusKind.PROPOSED, note, by.subject)]
        who = f"{proposal.by}, approved by {', '.join(proposal.approvals)}"
        statuses: list[RuleStatus] = []
        if proposal.in_force:
            self._check_in_force(name, proposed)
        else:
            try:
                self.versions, self.policies, statuses = self._applied(proposed)
            except RuleError:
                self.governance.close(name)
                raise
        self.governance.approve_content(proposed.rules, self._held_versions)
        self.governance.close(name)
        own = _status(Subject.APPROVAL, name, StatusKind.ACCEPTED, None, who)
        return [own, *(replace(one, by=who) for one in statuses)]

    def _refuse(self, name: str, by: SignerIdentity) -> list[RuleStatus]:
        proposal = self.governance.find(name)
        if by.subject != proposal.by:
            by.require(SignerRole.APPROVER, "a refusal")
        self.governance.end_emergency_of(name)
        self.governance.close(name)
        return [_status(Subject.APPROVAL, name, StatusKind.DELETED, "the proposal is refused", by.subject)]

    def _check_in_force(self, name: str, document: ProposalDocument) -> None:
        """Raise ``RuleSetError`` if the emergency of a proposal has ended, or another one has replaced it."""
        ended = [rule.id for rule in document.rules if not self._is_in_force(name, rule.id)]
        if ended:
            self.governance.close(name)
            raise RuleSetError(f"the emergency of {', '.join(ended[:_REASONS])} is over; propose it again")

    def _is_in_force(self, name: str, rule: str) -> bool:
        known = self.governance.emergencies.get(rule)
        if known is None:  # a rule of the proposal that needs no approval
            return True
        return known.proposals[-1] == name and not known.over and known.until_ms > self.governance.clock_ms

    # --- what a change needs ------------------------------------------------------------------------------------

    def need(self, document: ProposalDocument) -> ApprovalNeed:
        """Return the requirements of all changes of a proposal together."""
        needs = [compute_need(self.versions, self.governance, change) for change in _changes(document)]
        needs += self.policies.needs(document, self.governance)
        asking = [one for one in needs if one.approvals]
        if not asking:
            return ApprovalNeed(signed=True)
        policies = tuple(sorted({name for one in asking for name in one.policies}))
        hours = min(one.emergency_hours for one in asking)
        return ApprovalNeed(max(one.approvals for one in asking), True, hours, policies)

    def _applied(self, document: ProposalDocument) -> tuple[VersionTable, PolicyTable, list[RuleStatus]]:
        """Return the tables after a proposal, and the statuses. ``RuleSetError`` if a change is rejected."""
        draft = self.versions.copy()
        statuses, rejected = apply_changes(draft, map(with_canonical_bytes, _changes(document)), None)
        policies, more = self.policies.apply_proposal(document)
        rejected += [f"decision policy {one.name}: {one.reason}" for one in more if one.status is StatusKind.REJECTED]
        if rejected:
            raise RuleSetError("nothing changed:\n" + "\n".join(rejected[:_REASONS]))
        return draft, policies, [*statuses, *more]

    # --- emergencies --------------------------------------------------------------------------------------------

    def _begin_emergency(self, name: str, document: ProposalDocument, need: ApprovalNeed) -> str:
        if not need.emergency_hours:
            raise RuleSetError(f"policy {', '.join(need.policies)} knows no emergency; the change needs {need.text}")
        asking = [
            one
            for one in document.rules
            if compute_need(self.versions, self.governance, RuleChange(rule=one)).approvals
        ]
        others = document.delete or document.decision_policies or document.delete_policies
        if len(asking) < len(document.rules) or others:
            raise RuleSetError(
                "an emergency has only versions of rules that need approval; pause a rule instead of deleting it"
            )
        for rule in document.rules:  # all are checked before the first counts
            self.governance.check_emergency(rule.id)
        until = [
            self.governance.begin_emergency(
                rule, name, need.emergency_hours, self.versions.stored.get(VersionSlot(rule.id, Slot.LIVE))
            )
            for rule in document.rules
        ]
        return f"emergency until {render_time(min(until))}; it needs {need.text}"

    def end_emergencies(self) -> list[RuleStatus]:
        """Take back the versions whose emergency ends now, and return their statuses."""
        return [one for rule, ended in self.governance.take_ended() for one in self._take_back(rule, ended)]

    def _take_back(self, rule_id: str, ended: Emergency) -> Iterable[RuleStatus]:
        places = self._places(rule_id)
        newest = max((self.versions.rules[place].rule.version for place in places), default=0)
        note = f"the emergency of version {', '.join(map(str, ended.versions))} has ended unapproved"
        for place in places:
            if self.versions.rules[place].rule.version in ended.versions:
                if ended.before is None or place.slot is not Slot.LIVE:
                    yield self._expire(place, note)
                else:
                    yield self._put_back(place, ended.before.encode(), newest + 1, note)

    def _put_back(self, place: VersionSlot, value: bytes, version: int, note: str) -> RuleStatus:
        """Replace the version of a slot by the one before the emergency, under this number."""
        before = decode_record(value, len(value))
        again = before.model_copy(update={"version": version})
        self.versions.take_out(place)  # first, or a trial would stand beside it
        try:
            self.versions.put(again, canonical_json(again))
        except RuleError as error:
            text = f"{note}; version {before.version} is not possible any more: {error_text(error)}"
            return RuleStatus(place.rule, before.version, StatusKind.EXPIRED, text, 0, 0, -1)
        text = f"{note}; version {version} is version {before.version} again"
        return RuleStatus(place.rule, version, StatusKind.EFFECTIVE, text, 0, 0, -1, mode=again.mode_text)

    def _places(self, rule_id: str) -> list[VersionSlot]:
        """Return the slots of a rule with versions that compile, the live one last."""
        order = (Slot.CANDIDATE, Slot.SCHEDULED, Slot.DRAFT, Slot.LIVE)
        return [place for slot in order if (place := VersionSlot(rule_id, slot)) in self.versions.rules]

    def _held_versions(self, rule_id: str) -> list[int]:
        return [self.versions.rules[place].rule.version for place in self._places(rule_id)]

    def _expire(self, position: VersionSlot, note: str) -> RuleStatus:
        rule = self.versions.rules[position].rule
        self.versions.expired.add(version_key(rule))
        self.versions.streams.add(rule.on)
        self.versions.touched = self.versions.changed = True
        return RuleStatus(rule.id, rule.version, StatusKind.EXPIRED, note, 0, 0, -1, mode=rule.mode_text)


def _changes(document: ProposalDocument) -> list[RuleChange]:
    return [*(RuleChange(rule=rule) for rule in document.rules), *(RuleChange(delete=name) for name in document.delete)]


def compute_need(versions: VersionTable, governance: GovernanceTable, change: RuleChange) -> ApprovalNeed:
    """Return the requirements of a change, by the policies for its tags and those of the rule's present versions."""
    if not governance.policies:
        return ApprovalNeed()
    name = _name(change)
    tags = _held_tags(versions, name).union(governance.bound.get(name, ()))
    if change.rule is None:
        return governance.need(tags, RuleMode.RETIRED) if versions.slots.get(name) else ApprovalNeed()
    return governance.need(tags.union(change.rule.tags), change.rule.status, change.rule)


def bind_tags(versions: VersionTable, governance: GovernanceTable, change: RuleChange) -> None:
    """Let the policies of a rule's present tags hold after the change, whatever it makes of them."""
    if governance.policies:
        name = _name(change)
        governance.bind(name, _held_tags(versions, name))


def _name(change: RuleChange) -> str:
    name = change.delete if change.rule is None else change.rule.id
    assert name is not None, "a change has a rule or an id"
    return name


def _held_tags(versions: VersionTable, name: str) -> set[str]:
    """Return the tags of the present versions, also of those that no longer compile."""
    slots = (VersionSlot(name, slot) for slot in versions.slots.get(name, ()))
    return {tag for place in slots for tag in orjson.loads(versions.stored[place]).get("tags") or ()}


def check_change(
    versions: VersionTable, governance: GovernanceTable, change: RuleChange, value: bytes | None = None
) -> None:
    """Raise ``RuleSetError`` if an unsigned change needs more. ``value``: the canonical JSON of its version; one that
    is in a slot already changes nothing, and needs nothing."""
    name = _name(change)
    bind_tags(versions, governance, change)
    need = compute_need(versions, governance, change)
    if not need.approvals and not need.signed:
        return
    if value is None or value not in [versions.stored[VersionSlot(name, s)] for s in versions.slots.get(name, ())]:
        governance.check_unsigned(need, name)


def apply_changes(
    versions: VersionTable, changes: Iterable[ChangeBytes], governance: GovernanceTable | None
) -> tuple[list[RuleStatus], list[str]]:
    """Apply the valid changes; return their statuses, and the errors of the others. ``governance``: by whose policies
    unsigned changes are checked; None for changes that have what they need."""
    statuses: list[RuleStatus] = []
    rejected: list[str] = []
    for change, version in changes:
        try:
            if governance is not None:
                check_change(versions, governance, change, version)
            statuses.append(
                versions.delete(change.delete) if change.rule is None else versions.put(change.rule, version)
            )
        except RuleError as error:
            rejected.append(f"{change.delete or (change.rule and change.rule.id)}: {error_text(error)}")
    return statuses, rejected


def error_text(error: RuleError) -> str:
    """Return the message for the rule's author: with the marked source line if the error is in an expression."""
    return error.render() if isinstance(error, ExpressionError) else str(error)


def _status(subject: Subject, name: str, kind: StatusKind, reason: str | None, by: str) -> RuleStatus:
    return RuleStatus(name, None, kind, reason, 0, 0, 0, subject, by=by)
