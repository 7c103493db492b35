"""The slots of the versions of a rule: live, on trial, waiting for its start time, draft.

The functions are pure: the mode and start time of a version, the live version and the clock determine its slot.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rulecore.documents.rule import Rule, RuleMode


class Slot(enum.StrEnum):
    """The role of a version.

    ``live``: the version in effect. ``candidate``: a shadow or canary version beside a live one. ``scheduled``: a
    version whose start time has not come. ``draft``: a version that is only checked and stored.
    """

    LIVE = "live"
    CANDIDATE = "candidate"
    SCHEDULED = "scheduled"
    DRAFT = "draft"


class VersionSlot(NamedTuple):
    """The id of a rule, and one of its slots. As text: ``live:rule-id``."""

    rule: str
    slot: Slot

    def __str__(self) -> str:
        return f"{self.slot}:{self.rule}"

    @classmethod
    def parse(cls, text: str) -> VersionSlot:
        """Return the rule and slot that ``str`` wrote; raise ``ValueError`` for an unknown slot."""
        slot, _, rule = text.partition(":")
        return cls(rule, Slot(slot))


#: The modes in which a rule is evaluated.
EVALUATED: Final = frozenset({RuleMode.LIVE, RuleMode.SHADOW, RuleMode.CANARY})
_TRIALS: Final = frozenset({RuleMode.SHADOW, RuleMode.CANARY})


def slot_for(rule: Rule, live: Rule | None, clock_ms: int) -> Slot:
    """Return the slot that a version takes at ``clock_ms``. ``live``: the version in the live slot.

    A shadow or canary version is a candidate only beside a version of mode ``live``; else it takes the live slot.
    """
    if rule.status is RuleMode.DRAFT:
        return Slot.DRAFT
    if rule.effective is not None and rule.effective.start is not None and rule.effective.start > clock_ms:
        return Slot.SCHEDULED
    beside = live is not None and live.status is RuleMode.LIVE
    return Slot.CANDIDATE if beside and rule.status in _TRIALS else Slot.LIVE


def displaced_slots(rule: Rule, slot: Slot, others: Mapping[Slot, Rule]) -> Iterable[Slot]:
    """Yield the slots of the older versions that a version replaces when it takes ``slot``.

    A live version stays beside one in any other slot, a scheduled one beside a draft, and a candidate beside a draft
    or a scheduled one.
    """
    for other, version in others.items():
        keeps_live = other is Slot.LIVE and slot is not Slot.LIVE
        keeps_scheduled = other is Slot.SCHEDULED and slot is Slot.DRAFT
        keeps_candidate = other is Slot.CANDIDATE and slot in (Slot.DRAFT, Slot.SCHEDULED)
        keeps = keeps_live or keeps_scheduled or keeps_candidate
        if other is not slot and version.version < rule.version and not keeps:
            yield other


def version_key(rule: Rule) -> str:
    """Return the name of a version in metrics, quarantine and state."""
    return f"{rule.id}@{rule.version}"
