"""The keys of the control topic: what each is about. One that begins with none of these prefixes is a rule's id.

Promises: one mapping, for the app that answers a record and for whoever waits for the answer.
"""

from __future__ import annotations

from typing import Final

from rulecore.status import Subject

RELEASE_KEY: Final = "release/"
STAGED_KEY: Final = "staged/"
FILL_KEY: Final = "fill/"
LIST_KEY: Final = "list/"
LIST_PART_KEY: Final = "part/"

_SUBJECTS: Final = {
    RELEASE_KEY: Subject.RELEASE,
    STAGED_KEY: Subject.PART,
    FILL_KEY: Subject.FILL,
    LIST_KEY: Subject.LIST,
    LIST_PART_KEY: Subject.PART,
}


def subject_of(key: str) -> tuple[Subject, str]:
    """What a record of this key is about, and the name without the prefix."""
    for prefix, subject in _SUBJECTS.items():
        if key.startswith(prefix):
            return subject, key.removeprefix(prefix)
    return Subject.RULE, key
