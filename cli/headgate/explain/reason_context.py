"""The data that reasons are found in: the app's rules with their history, the explanation, the app's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.explain.evidence import Evidence
from headgate.explain.kafka_reader import KafkaReader
from headgate.rules.publish import AppTopics, ControlResponse
from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.documents.slots import Slot, VersionSlot
from rulecore.documents.status import StatusKind
from rulecore.errors import RuleError
from rulecore.explain.explanation import Explanation
from rulecore.ruleset.history import ControlEntry, RuleHistory
from streamcore.schema import StreamSchema


@dataclass(frozen=True, slots=True)
class AppRules:
    """The app's rules now. ``there``: whether its control topic exists."""

    topics: AppTopics
    there: bool
    history: RuleHistory
    now_ms: int

    @property
    def streams(self) -> Mapping[str, StreamSchema]:
        """By name."""
        return self.history.rules.streams

    @property
    def names(self) -> list[str]:
        """Ids of rules that have a version in any slot."""
        return sorted({place.rule for place in self.history.rules.rules})

    def find_compiled(self, name: str, version: int | None = None) -> CompiledRule | None:
        """Return that version, or the one that counts, else the scheduled one, else the draft.

        None where it is not there or does not compile any more.
        """
        slots = [found for slot in Slot if (found := self.history.rules.rules.get(VersionSlot(name, slot))) is not None]
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

    def control_entry(self, rule: Rule) -> ControlEntry | None:
        """Return the control record that brought a version; None for one that was never accepted, or differs."""
        if self.history.documents.get((rule.id, rule.version)) != rule:
            return None
        return next(
            entry.written
            for entry in self.history.entries
            if (entry.status.name, entry.status.version) == (rule.id, rule.version)
            and entry.status.status is StatusKind.ACCEPTED
        )

    def superseded_by(self, rule: Rule) -> tuple[int | None, int] | None:
        """Return the version that replaced this one (None: the rule was deleted) and when; None while it has a
        slot."""
        if any(one.rule == rule for place, one in self.history.rules.rules.items() if place.rule == rule.id):
            return None
        counted = self.history.live_versions.get(rule.id, ())
        after = [n for n, (_, version) in enumerate(counted) if version == rule.version]
        later = counted[after[-1] + 1 :] if after else [one for one in counted if (one[1] or 0) > rule.version]
        if not later:
            return None
        place, version = later[0]
        return version, self.history.entries[place].written.time_ms


@dataclass(frozen=True, slots=True)
class StatusMessage:
    """An answer of the app, and its time."""

    response: ControlResponse
    time_ms: int


@dataclass(frozen=True, slots=True)
class ReasonContext:
    """The data of a check. ``messages``: the app's responses on the rule, oldest first. ``scan``: most records."""

    reader: KafkaReader
    known: AppRules
    explanation: Explanation
    evidence: Evidence
    messages: Sequence[StatusMessage]
    scan: int

    @property
    def rule(self) -> CompiledRule:
        """The version in question."""
        return self.explanation.rule

    @property
    def version_messages(self) -> Sequence[StatusMessage]:
        """The app's answers about this version."""
        return [message for message in self.messages if message.response.version == self.rule.rule.version]

    @property
    def control_entry(self) -> ControlEntry | None:
        """The control record of the rule's version; None for one that is only in a file."""
        return self.known.control_entry(self.rule.rule)

    def came_after(self, time_ms: int) -> bool:
        """Whether the record in question was written after a time; one that is not known was."""
        record = self.evidence.record
        return record is None or record.timestamp_ms >= time_ms
