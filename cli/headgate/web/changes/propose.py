"""Proposals and approvals: control records that the console signs for the person whom it has identified.

The console's key is that of a signer which attests (``headgate rules signer --attests``). The rule set counts the
person's subject, and the lower of the person's role and the key's; the console itself decides nothing but scopes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from headgate.rules.publish import ChangeNote, ControlChange, write_changes
from headgate.rules.signing import KeyHolder, read_key
from headgate.rules.yaml_text import yaml_text
from headgate.web.access.rights import ConsoleSession
from headgate.web.access.roles import Role
from headgate.web.problems import ProblemCode, ProblemError, ProblemPlace, not_found
from headgate.web.state.app_reader import AppReader, Snapshot
from headgate.web.state.values import (
    PolicyValue,
    ProposalOutcome,
    ProposalValue,
    ProposedRule,
    SignerValue,
)
from rulecore.documents.loading import load_text
from rulecore.documents.rule import Rule
from rulecore.governance.documents import AttestedPerson, ProposalDocument, SignerRole

_POLL_S: Final = 0.1
_SIGNED: Final = (SignerRole.ADMIN, SignerRole.APPROVER, SignerRole.PUBLISHER, SignerRole.AUTHOR)
_FILE: Final = "rules"


def sign_for(
    key: KeyHolder, session: ConsoleSession, app: str, rules: Iterable[Rule], owners: Iterable[str] = ()
) -> KeyHolder:
    """Return the key for a person, with the highest role that the person has for all these rules, and for decision
    policies of these owners. ``ProblemError`` without any."""
    wanted = [*((rule.tags, rule.owner) for rule in rules), *(((), owner) for owner in owners)] or [((), "")]
    for role in _SIGNED:
        if all(session.may_change(Role(role.value), app, tags, owner) for tags, owner in wanted):
            return replace(key, person=AttestedPerson(subject=session.subject, issuer=session.issuer, role=role))
    raise ProblemError(403, ProblemCode.NOT_ALLOWED, f"{session.subject} has no role for these rules")


class ProposalWriter:
    """Writes the proposals and approvals of one app. ``key_file``: None for a console that signs nothing."""

    def __init__(self, reader: AppReader, key_file: Path | None, now_s: Callable[[], float] = time.time) -> None:
        self._reader, self._now_s = reader, now_s
        self.key = None if key_file is None else read_key(key_file, reader.app.name)

    def propose(
        self, text: str, deleted: tuple[str, ...], session: ConsoleSession, why: str, wait_ms: int, *, emergency: bool
    ) -> ProposalOutcome:
        """Propose the rules of a YAML text, and deletions: all of them or none."""
        documents, problems = load_text(text, _FILE)
        faults = [*problems, *(fault for one in documents for fault in one.problems)]
        if faults:
            places = [ProblemPlace.of(problem) for problem in faults]
            raise ProblemError(422, ProblemCode.INVALID_RULE, "the rules have mistakes; nothing was proposed", places)
        rules = [one.rule for one in documents if one.rule is not None]
        if not rules and not deleted:
            raise ProblemError(422, ProblemCode.INVALID_REQUEST, "a proposal has rules or deletions")
        snapshot = self._reader.snapshot()
        held = [one.rule for place, one in snapshot.history.rules.rules.items() if place.rule in _names(rules, deleted)]
        signing = sign_for(self._required_key(), session, snapshot.app, [*rules, *held])
        change = signing.proposal_change(rules, deleted, why, self._now_ms(), emergency=emergency)
        return self._send(change, session, why, wait_ms)

    def decide(
        self, proposal: str, session: ConsoleSession, why: str, wait_ms: int, *, refuse: bool
    ) -> ProposalOutcome:
        """Approve or refuse an open proposal. ``ProblemError`` if there is none."""
        snapshot = self._reader.snapshot()
        found = snapshot.history.rules.governance.proposals.get(proposal)
        if found is None:
            raise not_found(f"app {snapshot.app} has no open proposal {proposal}")
        document = found.document
        if (document.decision_policies or document.delete_policies) and not refuse:
            detail = "a console does not approve decision policies; headgate rules approve --key FILE does"
            raise ProblemError(422, ProblemCode.CANNOT_ANSWER, detail)
        names = _names(document.rules, document.delete)
        held = [one.rule for place, one in snapshot.history.rules.rules.items() if place.rule in names]
        signing = sign_for(self._required_key(), session, snapshot.app, [*found.document.rules, *held])
        change = signing.approval_change(proposal, why, self._now_ms(), refuse=refuse)
        return self._send(change, session, why, wait_ms)

    def _required_key(self) -> KeyHolder:
        if self.key is None:
            detail = "this console has no signing_key; sign with headgate rules propose and approve --key FILE"
            raise ProblemError(422, ProblemCode.CANNOT_ANSWER, detail)
        return self.key

    def _send(self, change: ControlChange, session: ConsoleSession, why: str, wait_ms: int) -> ProposalOutcome:
        note = ChangeNote(session.subject, why or None)
        (position,) = write_changes(self._reader.kafka, self._reader.topics, [change], note)
        deadline = time.monotonic() + wait_ms / 1000
        key = (position.offset, change.subject.value, change.name)
        while (answer := self._reader.snapshot().answers.get(key)) is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if answer is not None and not answer.accepted:
            raise ProblemError(409, ProblemCode.REJECTED, answer.reason or "the app gave no reason")
        status, reason = (None, None) if answer is None else (answer.status, answer.reason)
        return ProposalOutcome(proposal=change.name, offset=position.offset, status=status, reason=reason)

    def _now_ms(self) -> int:
        return int(self._now_s() * 1000)


def _names(rules: Iterable[Rule], deleted: Iterable[str]) -> set[str]:
    return {*(rule.id for rule in rules), *deleted}


def _policy_names(document: ProposalDocument) -> tuple[str, ...]:
    """Return the decision policies that a proposal changes, as people read them."""
    versions = (f"decision policy {one.decision_policy}@{one.version}" for one in document.decision_policies)
    return (*versions, *(f"decision policy {name}" for name in document.delete_policies))


def list_proposals(snapshot: Snapshot) -> list[ProposalValue]:
    """Return the open proposals and the emergencies, the oldest first."""
    rules = snapshot.history.rules
    running = [one for one in rules.governance.emergencies.values() if not one.over]
    ends = {proposal: one.until_ms for one in running for proposal in one.proposals}
    found = [
        ProposalValue(
            proposal=name,
            by=one.by,
            at_ms=one.document.at_ms,
            why=one.document.why,
            rules=tuple(
                ProposedRule(rule=rule.id, version=rule.version, mode=rule.mode_text, yaml=yaml_text(rule))
                for rule in one.document.rules
            ),
            deleted=(*one.document.delete, *_policy_names(one.document)),
            needs=(need := rules.compute_need(one.document)).approvals,
            policies=need.policies,
            approvals=one.approvals,
            emergency_until_ms=ends.get(name),
        )
        for name, one in rules.governance.proposals.items()
    ]
    return sorted(found, key=lambda one: (one.at_ms, one.proposal))


def list_policies(snapshot: Snapshot) -> list[PolicyValue]:
    """Return the policies in force, by name."""
    policies = snapshot.history.rules.governance.policies
    return [
        PolicyValue(
            policy=name,
            version=one.version,
            tags=one.tags,
            modes=tuple(one.modes),
            approvals=one.approvals,
            emergency_hours=one.emergency_hours,
            signed=one.require == "signed",
        )
        for name, one in sorted(policies.items())
        if not one.removed
    ]


def list_signers(snapshot: Snapshot) -> list[SignerValue]:
    """Return the signers, by name."""
    signers = snapshot.history.rules.governance.signers
    return [
        SignerValue(signer=name, subject=one.subject, role=one.role.value, attests=one.attests, revoked=one.revoked)
        for name, one in sorted(signers.items())
    ]
