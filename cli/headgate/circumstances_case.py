"""What circumstances are found in: the app's rules with their history, the explanation, what the app said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.explain_inquiry import Inquiry
from headgate.explain_reading import Reading
from headgate.publishing import Answer, AppTopics
from rulecore.audit import History, Written
from rulecore.compiled import CompiledRule, RuleLimits, compile_rule
from rulecore.errors import RuleError
from rulecore.explanation import Explanation
from rulecore.model import Rule
from rulecore.slots import Place, Slot
from rulecore.status import StatusKind
from streamcore.schema import StreamSchema


@dataclass(frozen=True, slots=True)
class Known:
    """The app's rules now. ``there``: whether its control topic exists."""

    topics: AppTopics
    there: bool
    history: History
    now_ms: int

    @property
    def streams(self) -> Mapping[str, StreamSchema]:
        """By name."""
        return self.history.rules.streams

    @property
    def names(self) -> list[str]:
        """Ids of rules that have a version in any slot."""
        return sorted({place.rule for place in self.history.rules.rules})

    def compiled(self, name: str, version: int | None = None) -> CompiledRule | None:
        """That version, or the one that counts, else the one that waits for its time, else the draft.

        None where it is not there or does not compile any more.
        """
        slots = [found for slot in Slot if (found := self.history.rules.rules.get(Place(name, slot))) is not None]
        if version is None:
            return slots[0] if slots else None
        held = next((one for one in slots if one.rule.version == version), None)
        document = self.history.documents.get((name, version))
        if held is not None or document is None:
            return held
        try:
            return compile_rule(document, self.streams, RuleLimits(), self.history.lists.types())
        except RuleError:
            return None

    def published(self, rule: Rule) -> Written | None:
        """The control record that brought a version; None for one that was never accepted, or reads otherwise."""
        if self.history.documents.get((rule.id, rule.version)) != rule:
            return None
        return next(
            entry.written
            for entry in self.history.entries
            if (entry.status.name, entry.status.version) == (rule.id, rule.version)
            and entry.status.status is StatusKind.ACCEPTED
        )

    def over(self, rule: Rule) -> tuple[int | None, int] | None:
        """The version that took the place of this one (None: it was deleted), and when; None while it has a place."""
        if any(one.rule == rule for place, one in self.history.rules.rules.items() if place.rule == rule.id):
            return None
        counted = self.history.counted.get(rule.id, ())
        after = [n for n, (_, version) in enumerate(counted) if version == rule.version]
        later = counted[after[-1] + 1 :] if after else [one for one in counted if (one[1] or 0) > rule.version]
        if not later:
            return None
        place, version = later[0]
        return version, self.history.entries[place].written.time_ms


@dataclass(frozen=True, slots=True)
class Said:
    """What the app said, and when."""

    answer: Answer
    time_ms: int


@dataclass(frozen=True, slots=True)
class Case:
    """All that a check may look at. ``said``: of the rule, oldest first. ``scan``: records to look at, at most."""

    reader: Reading
    known: Known
    explanation: Explanation
    inquiry: Inquiry
    said: Sequence[Said]
    scan: int

    @property
    def rule(self) -> CompiledRule:
        """The version in question."""
        return self.explanation.rule

    @property
    def of_version(self) -> Sequence[Said]:
        """What was said of this version."""
        return [said for said in self.said if said.answer.version == self.rule.rule.version]

    @property
    def published(self) -> Written | None:
        """The control record of the rule's version; None for one that is only in a file."""
        return self.known.published(self.rule.rule)

    def came_after(self, time_ms: int) -> bool:
        """Whether the record in question was written after a time; one that is not known was."""
        record = self.inquiry.record
        return record is None or record.timestamp_ms >= time_ms
