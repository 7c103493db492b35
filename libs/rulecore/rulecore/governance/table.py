"""Signers, policies and proposals while an update changes them: who may, what a change needs, what counts.

Everything is decided by the records and the clock of the cut. Times in signed texts serve against replays only: a text
older than ``KEPT_MS`` is refused, and ids of decided proposals are remembered for as long.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from rulecore.documents.rule import Rule, RuleMode
from rulecore.errors import RuleSetError
from rulecore.governance.documents import (
    AttestedPerson,
    PolicyDocument,
    SignerDocument,
    SignerRole,
    content_digest,
    read_text,
)
from rulecore.governance.signatures import SignedText, decode_signed, verify
from rulecore.governance.state import Emergency, Governance, OpenProposal

HOUR_MS: Final = 3_600_000
#: How long a proposal waits for approvals, and how long its id is remembered after a decision.
KEPT_MS: Final = 30 * 24 * HOUR_MS
_AHEAD_MS: Final = HOUR_MS  # the clock of who signs may be ahead by so much
_OPEN: Final = 200  # most open proposals
_OPEN_OF_ONE: Final = 20  # of one person: nobody keeps all others from proposing
_OPEN_BYTES: Final = 16 << 20
_SIGNERS: Final = 1_000
_POLICIES: Final = 100
_APPROVED: Final = 20  # contents of a rule that are remembered as approved


@dataclass(frozen=True, slots=True)
class SignerIdentity:
    """Whose signature it is. ``subject``: the person; two keys of one subject are one person."""

    subject: str
    role: SignerRole
    signer: str

    def require(self, role: SignerRole, what: str) -> None:
        """Raise ``RuleSetError`` unless the person has the role."""
        if not self.role.includes(role):
            raise RuleSetError(f"{what} needs the role {role}; {self.subject} has {self.role}")


@dataclass(frozen=True, slots=True)
class ApprovalNeed:
    """The requirements of a change: ``approvals`` by others; ``signed``, at least a signature.
    ``emergency_hours``: how long it may count without approvals. ``policies``: the names of those that ask for it."""

    approvals: int = 0
    signed: bool = False
    emergency_hours: int = 0
    policies: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The need, in words."""
        count = "an approval" if self.approvals == 1 else f"{self.approvals} approvals"
        return f"{count} by another subject (policy {', '.join(self.policies)})"


@dataclass(slots=True)
class GovernanceTable:
    """The mutable copy of a ``Governance``. ``touched``: whether anything has changed."""

    clock_ms: int
    app: str
    signers: dict[str, SignerDocument]
    policies: dict[str, PolicyDocument]
    proposals: dict[str, OpenProposal]
    emergencies: dict[str, Emergency]
    approved: dict[str, tuple[str, ...]]
    closed: dict[str, int]
    bound: dict[str, tuple[str, ...]]
    touched: bool = field(default=False)

    @classmethod
    def copy_from(cls, state: Governance, clock_ms: int) -> GovernanceTable:
        """Return a table with copies of this state's mappings."""
        return cls(
            clock_ms,
            state.app,
            dict(state.signers),
            dict(state.policies),
            dict(state.proposals),
            dict(state.emergencies),
            dict(state.approved),
            dict(state.closed),
            dict(state.bound),
        )

    def state(self) -> Governance:
        """Return the state as a value."""
        return Governance(
            self.app,
            MappingProxyType(self.signers),
            MappingProxyType(self.policies),
            MappingProxyType(self.proposals),
            MappingProxyType(self.emergencies),
            MappingProxyType(self.approved),
            MappingProxyType(self.closed),
            MappingProxyType(self.bound),
        )

    # --- who ----------------------------------------------------------------------------------------------------

    def put_signer(self, name: str, key: str, value: bytes | None) -> SignerIdentity:
        """Apply the record of a signer. The first one signs itself, and has to be an admin."""
        signed = decode_signed(_required(value, "a signer is revoked by a document with revoked: true"))
        document = read_text(signed.text, SignerDocument)
        if document.signer != name:
            raise RuleSetError(f"the record's key names signer {name!r} and its text {document.signer!r}")
        if not self.signers:
            if document.role is not SignerRole.ADMIN or document.attests or document.revoked:
                raise RuleSetError("the first signer is a person with the role admin")
            if signed.signer != name or not verify(signed, key, document.key):
                raise RuleSetError("the first signer signs its own record")
            self.app = document.app
            identity = SignerIdentity(document.subject or name, document.role, name)
        else:
            identity = self.identify(signed, key, document.app, None)
            identity.require(SignerRole.ADMIN, "a signer")
            _check_newer(document.version, self.signers.get(name), f"signer {name}")
            if len(self.signers) >= _SIGNERS and name not in self.signers:
                raise RuleSetError(f"there are {len(self.signers)} signers, which is the limit")
            if not _has_admin({**self.signers, name: document}.values()):
                raise RuleSetError("the last admin stays one: make another person admin first")
        before, self.signers[name] = self.signers.get(name), document
        if before is not None and not _approves_alike(before, document):
            self._take_back_approvals(name)
        self.touched = True
        return identity

    def _take_back_approvals(self, signer: str) -> None:
        """Take back the approvals of open proposals that were signed with the key that a signer had."""
        for name, one in self.proposals.items():
            if signer in one.keys:
                kept = [pair for pair in zip(one.approvals, one.keys, strict=True) if pair[1] != signer]
                approvals, keys = (tuple(pair[part] for pair in kept) for part in (0, 1))
                self.proposals[name] = replace(one, approvals=approvals, keys=keys)

    def put_policy(self, name: str, key: str, value: bytes | None) -> SignerIdentity:
        """Apply the record of a policy."""
        signed = decode_signed(_required(value, "a policy ends by a document with removed: true"))
        document = read_text(signed.text, PolicyDocument)
        if document.policy != name:
            raise RuleSetError(f"the record's key names policy {name!r} and its text {document.policy!r}")
        identity = self.identify(signed, key, document.app, None)
        identity.require(SignerRole.ADMIN, "a policy")
        _check_newer(document.version, self.policies.get(name), f"policy {name}")
        if len(self.policies) >= _POLICIES and name not in self.policies:
            raise RuleSetError(f"there are {len(self.policies)} policies, which is the limit")
        self.policies[name] = document
        self.touched = True
        return identity

    def identify(self, signed: SignedText, key: str, app: str, by: AttestedPerson | None) -> SignerIdentity:
        """Return who has signed a record. ``by``: the person for whom a console signs. ``RuleSetError`` if the
        signature is not that of a known signer, or the record is one of another app."""
        signer = self.signers.get(signed.signer)
        if signer is None or signer.revoked:
            known = "no signer" if signer is None else "a revoked signer"
            raise RuleSetError(f"{signed.signer[:80]!r} is {known} of this app")
        if not verify(signed, key, signer.key):
            raise RuleSetError(f"the signature is not that of signer {signed.signer}")
        if app != self.app:
            raise RuleSetError(f"the record is one of app {app}; this is {self.app}")
        if signer.subject is not None:
            return SignerIdentity(signer.subject, signer.role, signed.signer)
        if by is None:
            raise RuleSetError(f"signer {signed.signer} signs for others, and names nobody")
        role = by.role if signer.role.includes(by.role) else signer.role
        return SignerIdentity(by.subject, role, signed.signer)

    # --- what is needed -----------------------------------------------------------------------------------------

    def need(self, tags: Iterable[str], mode: RuleMode, rule: Rule | None = None) -> ApprovalNeed:
        """Return the requirements of a change. ``tags``: those of the new version and of the present ones, so that no
        version escapes by leaving its tag out. ``rule``: the new version; one whose content was approved needs no
        approval."""
        covering = [one for one in self.policies.values() if not one.removed and one.covers(frozenset(tags))]
        signed = any(one.require == "signed" for one in covering)
        asking = [one for one in covering if one.approvals_for(mode)]
        if not asking or (rule is not None and content_digest(rule) in self.approved.get(rule.id, ())):
            return ApprovalNeed(signed=signed)
        return ApprovalNeed(
            max(one.approvals_for(mode) for one in asking),
            signed,
            min(one.emergency_hours for one in asking),
            tuple(sorted(one.policy for one in asking)),
        )

    def bind(self, rule_id: str, tags: Collection[str]) -> None:
        """Let the policies of the tags that a rule has now hold for its later versions too."""
        covered = {tag for one in self.policies.values() if not one.removed for tag in one.tags} & {*tags}
        more = tuple(sorted(covered.union(self.bound.get(rule_id, ()))))
        if more and more != self.bound.get(rule_id):
            self.bound[rule_id] = more
            self.touched = True

    def check_unsigned(self, need: ApprovalNeed, rule_id: str) -> None:
        """Raise ``RuleSetError`` if a change that nobody has signed needs more."""
        if need.approvals:
            raise RuleSetError(f"{rule_id} needs {need.text}; headgate rules propose asks for it")
        if need.signed:
            raise RuleSetError(f"changes of {rule_id} have to be signed; headgate rules propose signs them")

    # --- proposals ----------------------------------------------------------------------------------------------

    def check_new(self, name: str, at_ms: int) -> None:
        """Raise ``RuleSetError`` if a proposal is known already, or too old."""
        self._forget()
        if name in self.closed or name in self.proposals:
            raise RuleSetError("this proposal was made before; nothing changed")
        self.check_time(at_ms)

    def check_room(self, text: str, subject: str) -> None:
        """Raise ``RuleSetError`` if an open proposal of this person would be one too many."""
        own = sum(one.by == subject for one in self.proposals.values())
        if own >= _OPEN_OF_ONE:
            raise RuleSetError(f"{own} proposals of {subject} are open, which is the limit; withdraw some by a refusal")
        if len(self.proposals) >= _OPEN:
            raise RuleSetError(f"{len(self.proposals)} proposals are open, which is the limit; approve or refuse some")
        if sum(len(one.text) for one in self.proposals.values()) + len(text) > _OPEN_BYTES:
            raise RuleSetError(f"open proposals have {_OPEN_BYTES} bytes together; approve or refuse some")

    def check_time(self, at_ms: int) -> None:
        """Raise ``RuleSetError`` if a signed text is too old or from the future."""
        if not self.clock_ms - KEPT_MS < at_ms <= self.clock_ms + _AHEAD_MS:
            raise RuleSetError("the text was signed more than 30 days ago, or more than an hour in the future")

    def open(self, name: str, proposal: OpenProposal) -> None:
        """Keep a proposal until it is decided."""
        self.proposals[name] = proposal
        self.touched = True

    def close(self, name: str) -> None:
        """Forget a proposal that is decided, and remember its id."""
        self.proposals.pop(name, None)
        self.closed[name] = self.clock_ms + KEPT_MS + _AHEAD_MS
        self.touched = True

    def find(self, name: str) -> OpenProposal:
        """Return an open proposal. ``RuleSetError`` without one."""
        found = self.proposals.get(name)
        if found is None or (not found.in_force and found.document.at_ms + KEPT_MS <= self.clock_ms):
            raise RuleSetError("there is no such open proposal")
        return found

    def add_approval(self, name: str, by: SignerIdentity) -> OpenProposal:
        """Count an approval, and return the proposal with it. ``RuleSetError`` if the person has proposed it, or has
        approved it before."""
        proposal = self.find(name)
        by.require(SignerRole.APPROVER, "an approval")
        if by.subject == proposal.by:
            raise RuleSetError(f"{by.subject} has proposed it; another subject has to approve")
        if by.subject in proposal.approvals:
            raise RuleSetError(f"{by.subject} has approved it before")
        known = (*proposal.keys, *("" for _ in proposal.approvals[len(proposal.keys) :]))  # of an older state
        counted = replace(proposal, approvals=(*proposal.approvals, by.subject), keys=(*known, by.signer))
        self.open(name, counted)
        return counted

    def approve_content(self, rules: Collection[Rule], held: Callable[[str], Collection[int]]) -> None:
        """Remember the contents as approved, and end the emergencies of these rules. ``held``: the versions of a rule
        in slots; an emergency goes on for those that are not approved."""
        for rule in rules:
            digest = content_digest(rule)
            others = [one for one in self.approved.get(rule.id, ()) if one != digest]
            self.approved[rule.id] = (*others, digest)[-_APPROVED:]
            self.bound.pop(rule.id, None)
            self.bind(rule.id, rule.tags)
            known = self.emergencies.pop(rule.id, None)
            if known is not None and not known.over:
                left = {*known.versions} & {*held(rule.id)} - {rule.version}
                if left:
                    self.emergencies[rule.id] = replace(known, versions=tuple(sorted(left)))
        self.touched = True

    # --- emergencies --------------------------------------------------------------------------------------------

    def begin_emergency(self, rule: Rule, proposal: str, hours: int, before: bytes | None) -> int:
        """Let a version count without approval, and return until when, in epoch milliseconds. A further one within the
        hours of another ends with it."""
        self.check_emergency(rule.id)
        self.bind(rule.id, rule.tags)
        known = self.emergencies.get(rule.id)
        until_ms = self.clock_ms + hours * HOUR_MS
        if known is not None:
            self.emergencies[rule.id] = replace(
                known, versions=(*known.versions, rule.version), proposals=(*known.proposals, proposal)
            )
            until_ms = known.until_ms
        else:
            text = None if before is None else before.decode()
            self.emergencies[rule.id] = Emergency((rule.version,), until_ms, (proposal,), text)
        self.touched = True
        return until_ms

    def check_emergency(self, rule_id: str) -> None:
        """Raise ``RuleSetError`` if an emergency of the rule has ended unapproved."""
        known = self.emergencies.get(rule_id)
        if known is not None and (known.over or known.until_ms <= self.clock_ms):
            raise RuleSetError(f"an emergency of {rule_id} has ended unapproved; another subject has to approve first")

    def end_emergency_of(self, proposal: str) -> None:
        """Let the emergencies of a refused proposal end now."""
        for rule, one in self.emergencies.items():
            if proposal in one.proposals and not one.over:
                self.emergencies[rule] = replace(one, until_ms=self.clock_ms)
                self.touched = True

    def take_ended(self) -> list[tuple[str, Emergency]]:
        """Return the emergencies that end now, by rule, and mark them."""
        ended = [(r, e) for r, e in sorted(self.emergencies.items()) if not e.over and e.until_ms <= self.clock_ms]
        for rule, one in ended:
            self.emergencies[rule] = replace(one, over=True)
            for proposal in one.proposals:
                if proposal in self.proposals:
                    self.close(proposal)
            self.touched = True
        return ended

    def _forget(self) -> None:
        """Drop old proposals, those of emergencies that other versions have replaced, and old ids."""
        running = {name for one in self.emergencies.values() if not one.over for name in one.proposals}
        for name, one in [*self.proposals.items()]:
            is_done = name not in running if one.in_force else one.document.at_ms + KEPT_MS <= self.clock_ms
            if is_done:
                self.close(name)
        for name in [name for name, until in self.closed.items() if until <= self.clock_ms]:
            del self.closed[name]
            self.touched = True


def _has_admin(signers: Iterable[SignerDocument]) -> bool:
    """Return whether one of them may sign signers and policies. A console may not: it signs for others."""
    return any(one.role is SignerRole.ADMIN and not one.revoked and not one.attests for one in signers)


def _approves_alike(before: SignerDocument, now: SignerDocument) -> bool:
    """Return whether an approval that was signed with the key before counts as one that is signed now."""
    same = (before.key, before.subject, before.attests) == (now.key, now.subject, now.attests)
    return same and not now.revoked and (now.role.includes(SignerRole.APPROVER) or now.role is before.role)


def _required(value: bytes | None, what: str) -> bytes:
    if value is None:
        raise RuleSetError(f"nothing changed: {what}")
    return value


def _check_newer(version: int, known: SignerDocument | PolicyDocument | None, what: str) -> None:
    if known is not None and version <= known.version:
        raise RuleSetError(f"version {version} of {what} is not above version {known.version}; raise it")
