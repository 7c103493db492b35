"""The prefixes of the keys of the control topic, and the subject of each. A key without a prefix is a rule's id.

The app that answers a record and the caller that waits for the answer use the same mapping.
"""

from __future__ import annotations

from typing import Final

from rulecore.documents.status import Subject
from streamcore.engine.publication import DOCUMENT_KEY, STREAM_KEY

RELEASE_KEY: Final = "release/"
STAGED_KEY: Final = "staged/"
BACKFILL_KEY: Final = "backfill/"
QUARANTINE_KEY: Final = "quarantine/"
LIST_KEY: Final = "list/"
LIST_PART_KEY: Final = "part/"
DECISION_POLICY_KEY: Final = "decision-policy/"
FEATURE_KEY: Final = "feature/"
SIGNER_KEY: Final = "signer/"
POLICY_KEY: Final = "policy/"
PROPOSAL_KEY: Final = "proposal/"
APPROVAL_KEY: Final = "approval/"

_SUBJECTS: Final = {
    RELEASE_KEY: Subject.RELEASE,
    STAGED_KEY: Subject.PART,
    BACKFILL_KEY: Subject.BACKFILL,
    QUARANTINE_KEY: Subject.RULE,
    LIST_KEY: Subject.LIST,
    LIST_PART_KEY: Subject.PART,
    DECISION_POLICY_KEY: Subject.DECISION_POLICY,
    FEATURE_KEY: Subject.FEATURE,
    SIGNER_KEY: Subject.SIGNER,
    POLICY_KEY: Subject.POLICY,
    PROPOSAL_KEY: Subject.PROPOSAL,
    APPROVAL_KEY: Subject.APPROVAL,
    STREAM_KEY: Subject.STREAM,
    DOCUMENT_KEY: Subject.DOCUMENT,
}


def parse_key(key: str) -> tuple[Subject, str]:
    """Return the subject of a record with this key, and the name without the prefix."""
    for prefix, subject in _SUBJECTS.items():
        if key.startswith(prefix):
            return subject, key.removeprefix(prefix)
    return Subject.RULE, key
