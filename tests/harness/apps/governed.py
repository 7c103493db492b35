"""People with keys, and their signed control records."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from rulecore.documents.control_keys import APPROVAL_KEY, POLICY_KEY, PROPOSAL_KEY, SIGNER_KEY
from rulecore.governance.documents import proposal_id
from rulecore.governance.signatures import SigningKey
from streamcore.kernel import ControlRecord

APP = "shop"


@dataclass(frozen=True)
class Signer:
    """A person, or a console that signs for others, with a key."""

    name: str
    role: str
    subject: str | None
    key: SigningKey

    @classmethod
    def of(cls, name: str, role: str, subject: str | None = "") -> Signer:
        """Return a signer with a key of its name. ``subject`` None: a console."""
        return cls(name, role, name if subject == "" else subject, SigningKey(hashlib.sha256(name.encode()).digest()))

    def sign(self, record_key: str, document: Mapping[str, object]) -> ControlRecord:
        """Return a document as a signed record."""
        text = orjson.dumps({"app": APP, **document}).decode()
        return ControlRecord(0, 0, record_key.encode(), self.key.sign(self.name, record_key, text).encode())

    def introduce(self, other: Signer, version: int = 1, **entries: object) -> ControlRecord:
        """Return the record by which this admin makes another signer known."""
        document = {"signer": other.name, "version": version, "key": other.key.public, "role": other.role}
        document |= {"subject": other.subject, "attests": other.subject is None}
        return self.sign(f"{SIGNER_KEY}{other.name}", document | entries)

    def policy(self, name: str = "two", version: int = 1, **entries: object) -> ControlRecord:
        """Return the record of a policy."""
        return self.sign(f"{POLICY_KEY}{name}", {"policy": name, "version": version, **entries})

    def propose(self, *rules: Mapping[str, object], at_ms: int, **entries: object) -> tuple[str, ControlRecord]:
        """Return the id of a proposal, and its record."""
        text = orjson.dumps({"app": APP, "rules": rules, "at_ms": at_ms, **entries}).decode()
        name = proposal_id(text)
        key = f"{PROPOSAL_KEY}{name}"
        return name, ControlRecord(0, 0, key.encode(), self.key.sign(self.name, key, text).encode())

    def approve(self, proposal: str, at_ms: int, **entries: object) -> ControlRecord:
        """Return the record of an approval."""
        return self.sign(f"{APPROVAL_KEY}{proposal}", {"proposal": proposal, "at_ms": at_ms, **entries})


ADMIN = Signer.of("ada", "admin")
AUTHOR = Signer.of("alice", "author")
PUBLISHER = Signer.of("bob", "publisher")
APPROVER = Signer.of("carol", "approver")
SECOND = Signer.of("dora", "approver")
CONSOLE = Signer.of("console", "approver", None)
STRANGER = Signer.of("mallory", "admin")
PEOPLE = (AUTHOR, PUBLISHER, APPROVER, SECOND, CONSOLE)


def introduced() -> list[ControlRecord]:
    """Return the records by which all but the stranger are known."""
    return [ADMIN.introduce(ADMIN), *(ADMIN.introduce(one) for one in PEOPLE)]
