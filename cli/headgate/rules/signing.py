"""Signs control records of rules: proposals, approvals, policies, signers.

A key file has the signer's name and the 32 bytes of its private key, and only its owner can read it.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import orjson

from headgate.errors import InputError
from headgate.rules.publish import ControlChange
from rulecore.documents.control_keys import APPROVAL_KEY, POLICY_KEY, PROPOSAL_KEY, SIGNER_KEY
from rulecore.documents.decision_policy import DecisionPolicy
from rulecore.documents.rule import Rule
from rulecore.errors import RuleSetError
from rulecore.governance.documents import (
    ApprovalDocument,
    AttestedPerson,
    PolicyDocument,
    ProposalDocument,
    SignerDocument,
    proposal_id,
    read_text,
    write_text,
)
from rulecore.governance.signatures import SigningKey

_SEED_BYTES = 32


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """Who signs for an app. ``person``: for whom a console signs; None for a key of a person's own."""

    signer: str
    key: SigningKey
    app: str
    person: AttestedPerson | None = None

    def signer_change(self, entries: Mapping[str, object]) -> ControlChange:
        """Return the record that makes a signer known. ``InputError`` if an entry is wrong."""
        document = _checked({"app": self.app, **entries}, SignerDocument)
        return self._change(f"{SIGNER_KEY}{document.signer}", write_text(document), document.signer)

    def policy_change(self, entries: Mapping[str, object]) -> ControlChange:
        """Return the record of a policy. ``InputError`` if an entry is wrong."""
        document = _checked({"app": self.app, **entries}, PolicyDocument)
        return self._change(f"{POLICY_KEY}{document.policy}", write_text(document), document.policy)

    def proposal_change(
        self,
        rules: Sequence[Rule],
        deleted: Sequence[str],
        why: str,
        at_ms: int,
        *,
        emergency: bool = False,
        policies: Sequence[DecisionPolicy] = (),
        deleted_policies: Sequence[str] = (),
    ) -> ControlChange:
        """Return the record of a proposal. ``at_ms``: the time of the signature. ``policies``: decision policies."""
        text = write_text(
            ProposalDocument(
                app=self.app,
                rules=tuple(rules),
                delete=tuple(deleted),
                decision_policies=tuple(policies),
                delete_policies=tuple(deleted_policies),
                why=why,
                emergency=emergency,
                at_ms=at_ms,
                by=self.person,
            )
        )
        name = proposal_id(text)
        return self._change(f"{PROPOSAL_KEY}{name}", text, name)

    def approval_change(self, proposal: str, why: str, at_ms: int, *, refuse: bool = False) -> ControlChange:
        """Return the record of an approval or a refusal."""
        entries = {"app": self.app, "proposal": proposal, "why": why, "at_ms": at_ms}
        document = _checked({**entries, "verdict": "refuse" if refuse else "approve"}, ApprovalDocument)
        document = document.model_copy(update={"by": self.person})
        return self._change(f"{APPROVAL_KEY}{proposal}", write_text(document), proposal)

    def _change(self, record_key: str, text: str, name: str) -> ControlChange:
        return ControlChange(record_key, self.key.sign(self.signer, record_key, text).encode(), name)


_Document = TypeVar("_Document", SignerDocument, PolicyDocument, ApprovalDocument)


def _checked(entries: Mapping[str, object], model: type[_Document]) -> _Document:
    try:
        return read_text(orjson.dumps(entries).decode(), model)
    except (RuleSetError, orjson.JSONEncodeError) as error:
        raise InputError(str(error)) from None


def new_key(signer: str, file: Path) -> SigningKey:
    """Write a new key to a file that only its owner can read. ``InputError`` if the file exists."""
    seed = secrets.token_bytes(_SEED_BYTES)
    try:
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}; a key is never overwritten") from None
    with os.fdopen(opened, "wb") as out:
        out.write(orjson.dumps({"signer": signer, "key": base64.b64encode(seed).decode()}) + b"\n")
    return SigningKey(seed)


def read_key(file: Path, app: str) -> KeyHolder:
    """Return the signer of a key file. ``InputError`` if the file is none, or others can read it."""
    try:
        if file.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
            raise InputError(f"{file}: others can read or write this key; run chmod 600 {file}")
        found = orjson.loads(file.read_bytes())
        seed = base64.b64decode(found["key"], validate=True)
        signer = found["signer"]
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, binascii.Error):
        raise InputError(f"{file}: no key file; headgate rules new-key writes one") from None
    if len(seed) != _SEED_BYTES or not isinstance(signer, str):
        raise InputError(f"{file}: no key file; headgate rules new-key writes one")
    return KeyHolder(signer, SigningKey(seed), app)
