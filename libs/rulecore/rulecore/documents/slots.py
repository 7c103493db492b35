"""Where the versions of one rule stand: the one that counts, one on trial, one that waits for its time, a draft.

Promises: pure functions over a small mapping; a version finds its slot by its mode and its time alone.
Refuses to know expressions, streams and records.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rulecore.documents.rule import Rule, RuleMode


class Slot(enum.StrEnum):
    """``live``: the version that counts. ``candidate``: a shadow or canary version beside a live one.

    ``scheduled``: a version whose time has not come. ``draft``: one that is only checked and kept.
    """

    LIVE = "live"
    CANDIDATE = "candidate"
    SCHEDULED = "scheduled"
    DRAFT = "draft"


class VersionSlot(NamedTuple):
    """A version's place: its rule's id and the slot there."""

    rule: str
    slot: Slot

    def __str__(self) -> str:
        return f"{self.slot}:{self.rule}"

    @classmethod
    def parse(cls, text: str) -> VersionSlot:
        """Return the inverse of ``str``."""
        slot, _, rule = text.partition(":")
        return cls(rule, Slot(slot))


#: Modes that a rule is evaluated in.
EVALUATED: Final = frozenset({RuleMode.LIVE, RuleMode.SHADOW, RuleMode.CANARY})
_TRIALS: Final = frozenset({RuleMode.SHADOW, RuleMode.CANARY})


def slot_for(rule: Rule, live: Rule | None, clock_ms: int) -> Slot:
    """Return the slot of a version published now (or whose time has come). ``live``: the one in the live slot."""
    if rule.status is RuleMode.DRAFT:
        return Slot.DRAFT
    if rule.effective is not None and rule.effective.start is not None and rule.effective.start > clock_ms:
        return Slot.SCHEDULED
    beside = live is not None and live.status is RuleMode.LIVE
    return Slot.CANDIDATE if beside and rule.status in _TRIALS else Slot.LIVE


def displaced_slots(rule: Rule, slot: Slot, others: Mapping[Slot, Rule]) -> Iterable[Slot]:
    """Return the slots that a version empties when it takes its own: older ones, unless they count beside it."""
    for other, version in others.items():
        stays = other is Slot.LIVE and slot is not Slot.LIVE
        waits = other is Slot.SCHEDULED and slot is Slot.DRAFT
        trial = other is Slot.CANDIDATE and slot in (Slot.DRAFT, Slot.SCHEDULED)
        if other is not slot and version.version < rule.version and not (stays or waits or trial):
            yield other


def version_key(rule: Rule) -> str:
    """Return the name of a version in metrics, quarantine and state."""
    return f"{rule.id}@{rule.version}"
