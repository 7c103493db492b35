"""The texts that are signed: signers, policies, proposals, approvals."""

from __future__ import annotations

import enum
import hashlib
from typing import Annotated, Final, Literal, TypeVar

import orjson
from pydantic import Field, ValidationError, field_validator, model_validator

from rulecore.documents.base import DocumentModel
from rulecore.documents.decision_policy import DecisionPolicy, DecisionPolicyName
from rulecore.documents.loading import format_faults
from rulecore.documents.rule import Rule, RuleMode
from rulecore.documents.rule_kinds import RuleName
from rulecore.documents.scalars import MAX_TEXT
from rulecore.errors import RuleSetError
from rulecore.governance.signatures import is_public_key

#: Most versions and deletions of one proposal.
MAX_PROPOSED: Final = 1_000
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,79}$")]
AppName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
PersonName = Annotated[str, Field(pattern=r"^[^\x00-\x20\x7f]{1,200}$")]
_Number = Annotated[int, Field(ge=1, le=2**53)]


class SignerRole(enum.StrEnum):
    """Rights of a signer; each includes those before it. ``author`` proposes, ``publisher`` publishes what needs no
    approval and in an emergency, ``approver`` approves, ``admin`` signs signers and policies."""

    AUTHOR = "author"
    PUBLISHER = "publisher"
    APPROVER = "approver"
    ADMIN = "admin"

    def includes(self, needed: SignerRole) -> bool:
        """Return whether this role has the rights of the other."""
        return _LADDER.index(self) >= _LADDER.index(needed)


_LADDER: Final = tuple(SignerRole)


class AttestedPerson(DocumentModel):
    """A person whom a console has identified, and for whom it signs."""

    subject: Annotated[PersonName, Field(description="The subject of the token, which never changes.")]
    issuer: Annotated[str, Field(max_length=500, description="Who has issued the token.")] = ""
    role: Annotated[SignerRole, Field(strict=False, description="The person's role.")]


class _Signed(DocumentModel):
    app: Annotated[AppName, Field(description="The app, so that a record of another app is refused.")]


class SignerDocument(_Signed):
    """A key, and whose it is."""

    signer: Annotated[Name, Field(description="Name of the signer.")]
    version: Annotated[_Number, Field(description="Above that of the signer's document before.")]
    key: Annotated[str, Field(description="The public key: 32 bytes of Ed25519, as base64.")]
    subject: Annotated[PersonName | None, Field(description="Whose key it is; null for a console.")] = None
    role: Annotated[SignerRole, Field(strict=False, description="The highest role that counts with this key.")]
    attests: Annotated[
        bool,
        Field(description="Whether it signs for others: a console, which names the person it has identified."),
    ] = False
    revoked: Annotated[bool, Field(description="Whether the key counts no more.")] = False

    @field_validator("key")
    @classmethod
    def _check_key(cls, key: str) -> str:
        if not is_public_key(key):
            raise ValueError("32 bytes as base64 are needed")
        return key

    @model_validator(mode="after")
    def _check_subject(self) -> SignerDocument:
        if (self.subject is None) is not self.attests:
            raise ValueError("a signer has a subject, or attests for others: one of the two")
        return self


GovernedMode = Literal["live", "canary", "shadow", "paused", "retired"]


class PolicyDocument(_Signed):
    """The approvals that rules need before they count."""

    policy: Annotated[Name, Field(description="Name of the policy.")]
    version: Annotated[_Number, Field(description="Above that of the policy's document before.")]
    tags: Annotated[
        tuple[str, ...],
        Field(strict=False, max_length=100, description="Of rules with one of these tags; empty: of all rules."),
    ] = ()
    modes: Annotated[
        tuple[GovernedMode, ...],
        Field(strict=False, min_length=1, description="Modes that need approval. retired: deletions too."),
    ] = ("live", "canary")
    approvals: Annotated[int, Field(ge=0, le=10, description="Number of approvals by others than the proposer.")] = 1
    emergency_hours: Annotated[
        int, Field(ge=0, le=168, description="Hours that a version counts in an emergency alone; 0: never.")
    ] = 0
    require: Annotated[
        Literal["signed"] | None, Field(description="signed: every change of these rules has to be signed.")
    ] = None
    removed: Annotated[bool, Field(description="Whether the policy counts no more.")] = False

    def covers(self, tags: frozenset[str]) -> bool:
        """Return whether it is about rules with these tags."""
        return not self.tags or not tags.isdisjoint(self.tags)

    def approvals_for(self, mode: RuleMode) -> int:
        """Return how many approvals this mode needs."""
        return self.approvals if mode.value in self.modes else 0


class ProposalDocument(_Signed):
    """Versions of rules and decision policies to publish, and those to delete, all or none."""

    rules: Annotated[tuple[Rule, ...], Field(strict=False, max_length=MAX_PROPOSED, description="Versions.")] = ()
    delete: Annotated[
        tuple[RuleName, ...], Field(strict=False, max_length=MAX_PROPOSED, description="Ids of rules to delete.")
    ] = ()
    decision_policies: Annotated[
        tuple[DecisionPolicy, ...], Field(strict=False, max_length=MAX_PROPOSED, description="Versions of policies.")
    ] = ()
    delete_policies: Annotated[
        tuple[DecisionPolicyName, ...],
        Field(strict=False, max_length=MAX_PROPOSED, description="Names of decision policies to delete."),
    ] = ()
    why: Annotated[str, Field(max_length=MAX_TEXT, description="The reason.")] = ""
    emergency: Annotated[bool, Field(description="Whether it counts at once, for the hours of the policy.")] = False
    at_ms: Annotated[int, Field(ge=0, description="When it was signed, in epoch milliseconds.")]
    by: Annotated[AttestedPerson | None, Field(description="Of a console: the person.")] = None

    @property
    def contents(self) -> tuple[str, ...]:
        """Its changes, for people: each version, and the names of what it deletes."""
        versions = [(rule.id, rule.version) for rule in self.rules]
        versions += [(one.decision_policy, one.version) for one in self.decision_policies]
        return (*(f"{name}@{version}" for name, version in versions), *self.delete, *self.delete_policies)

    @model_validator(mode="after")
    def _check_content(self) -> ProposalDocument:
        names = [*(rule.id for rule in self.rules), *self.delete]
        policies = [*(one.decision_policy for one in self.decision_policies), *self.delete_policies]
        if not names and not policies:
            raise ValueError("a proposal has rules or deletions")
        if len(set(names)) != len(names) or len(set(policies)) != len(policies):
            raise ValueError("a proposal names each rule and each decision policy once")
        return self


class ApprovalDocument(_Signed):
    """The verdict of a person on a proposal."""

    proposal: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", description="Id of the proposal.")]
    verdict: Annotated[Literal["approve", "refuse"], Field(description="refuse closes the proposal.")] = "approve"
    why: Annotated[str, Field(max_length=MAX_TEXT, description="The reason.")] = ""
    at_ms: Annotated[int, Field(ge=0, description="When it was signed, in epoch milliseconds.")]
    by: Annotated[AttestedPerson | None, Field(description="Of a console: the person.")] = None


_Document = TypeVar("_Document", bound=_Signed)


def read_text(text: str, model: type[_Document]) -> _Document:
    """Return the document of a signed text. ``RuleSetError`` if it is none."""
    try:
        return model.model_validate(orjson.loads(text))
    except ValidationError as error:
        raise RuleSetError(format_faults(error, model)) from None
    except (ValueError, RecursionError):
        raise RuleSetError("the text is no JSON") from None


def write_text(document: _Signed) -> str:
    """Return the text to sign."""
    return orjson.dumps(document.model_dump(mode="json", by_alias=True), option=orjson.OPT_SORT_KEYS).decode()


def proposal_id(text: str) -> str:
    """Return the name of a proposal: BLAKE2b of its text, 32 hexadecimal digits. So an approval is of this text."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def content_digest(rule: Rule) -> str:
    """Return the digest of the content of a version, whatever its number and its tests."""
    document = rule.model_dump(mode="json", by_alias=True, exclude={"version", "tests"})
    return hashlib.blake2b(orjson.dumps(document, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()
