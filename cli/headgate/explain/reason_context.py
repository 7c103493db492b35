"""The input of the checks in ``reasons``: the app's rules with their history, the explanation, the app's responses."""

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
    """The app's rules and their history. ``app_exists``: whether the app's control topic exists."""

    topics: AppTopics
    app_exists: bool
    history: RuleHistory
    now_ms: int

    @property
    def streams(self) -> Mapping[str, StreamSchema]:
        """The streams by name."""
        return self.history.rules.streams

    @property
    def names(self) -> list[str]:
        """Ids of rules that have a version in any slot."""
        return sorted({slot.rule for slot in self.history.rules.rules})

    def find_compiled(self, name: str, version: int | None = None) -> CompiledRule | None:
        """Return a version of a rule. ``version`` None: the one in the first of its slots, in the order of ``Slot``.

        None if there is no such version, or if it no longer compiles.
        """
        versions = [
            rule for slot in Slot if (rule := self.history.rules.rules.get(VersionSlot(name, slot))) is not None
        ]
        if version is None:
            return versions[0] if versions else None
        in_slot = next((rule for rule in versions if rule.rule.version == version), None)
        document = self.history.documents.get((name, version))
        if in_slot is not None or document is None:
            return in_slot
        try:
            features = self.history.rules.features.documents
            return compile_rule(document, self.streams, RuleLimits(), self.history.lists.types(), features)
        except RuleError:
            return None

    def control_entry(self, rule: Rule) -> ControlEntry | None:
        """Return the control record that published a version; None if it was never accepted, or if its document
        differs."""
        if self.history.documents.get((rule.id, rule.version)) != rule:
            return None
        return next(
            entry.written
            for entry in self.history.entries
            if (entry.status.name, entry.status.version) == (rule.id, rule.version)
            and entry.status.status is StatusKind.ACCEPTED
        )

    def superseded_by(self, rule: Rule) -> tuple[int | None, int] | None:
        """Return the version that replaced this one (None: the rule was deleted), and the time in epoch milliseconds;
        None while this version has a slot."""
        if any(held.rule == rule for slot, held in self.history.rules.rules.items() if slot.rule == rule.id):
            return None
        counted = self.history.live_versions.get(rule.id, ())
        after = [n for n, (_, version) in enumerate(counted) if version == rule.version]
        later = counted[after[-1] + 1 :] if after else [change for change in counted if (change[1] or 0) > rule.version]
        if not later:
            return None
        entry_index, version = later[0]
        return version, self.history.entries[entry_index].written.time_ms


@dataclass(frozen=True, slots=True)
class StatusMessage:
    """A response of the app, and its time in epoch milliseconds."""

    response: ControlResponse
    time_ms: int


@dataclass(frozen=True, slots=True)
class ReasonContext:
    """The input of a check. ``messages``: the app's responses about the rule, oldest first. ``scan``: the most records
    to read of a topic."""

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
        """The app's responses about this version."""
        return [message for message in self.messages if message.response.version == self.rule.rule.version]

    @property
    def control_entry(self) -> ControlEntry | None:
        """The control record of the rule's version; None for one that is only in a file."""
        return self.known.control_entry(self.rule.rule)

    def came_after(self, time_ms: int) -> bool:
        """Return whether the record in question was written at or after ``time_ms``; True if there is no record."""
        record = self.evidence.record
        return record is None or record.timestamp_ms >= time_ms
