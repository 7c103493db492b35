"""What kept a rule silent though its conditions held: its mode and dates, its rejection or quarantine, a late event.

``circumstances`` asks each of ``CHECKS`` in turn; a feature that can keep a rule silent adds its own function there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headgate.explain_inquiry import Inquiry
from headgate.explain_reading import Found, Reading
from headgate.moments import show_time
from headgate.publishing import Answer, AppTopics, read_answers
from rulecore.compiled import CompiledRule, RuleLimits, compile_rule
from rulecore.errors import RuleError
from rulecore.explain_rule import Circumstance
from rulecore.load import decode_record
from rulecore.model import Kind, Mode, Rule
from streamcore.kafka.readers import Record
from streamcore.schema import StreamSchema

_RECORD_BYTES = 1 << 20
_STATUS_RECORDS = 50_000


@dataclass(frozen=True, slots=True)
class Version:
    """One control record of a rule; ``rule`` is None for a deletion and for what cannot be read."""

    record: Found
    rule: Rule | None


@dataclass(frozen=True, slots=True)
class History:
    """The control topic by rule id, oldest first. ``there``: whether the topic exists."""

    topic: str
    there: bool
    versions: Mapping[str, Sequence[Version]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Ids of rules that are not deleted."""
        return sorted(name for name, versions in self.versions.items() if versions[-1].record.value is not None)

    def version(self, name: str, number: int | None = None) -> Version | None:
        """The last record of that version, or the last of all."""
        for one in reversed(self.versions.get(name, ())):
            if one.rule is not None and number in (None, one.rule.version):
                return one
        return None

    def compiled(
        self, name: str, streams: Mapping[str, StreamSchema], number: int | None = None
    ) -> CompiledRule | None:
        """That version against the streams; None where it is not there or does not compile."""
        version = self.version(name, number)
        if version is None or version.rule is None:
            return None
        try:
            return compile_rule(version.rule, streams, RuleLimits())
        except RuleError:
            return None


def read_history(reader: Reading, topic: str) -> History:
    """All that the control topic holds now."""
    _, last = reader.bounds(topic)
    versions: dict[str, list[Version]] = {}
    for record in reader.every(topic):
        name = (record.key or b"").decode(errors="replace")
        versions.setdefault(name, []).append(Version(record, _rule(record.value)))
    return History(topic, bool(last), versions)


def _rule(value: bytes | None) -> Rule | None:
    try:
        return None if value is None else decode_record(value, _RECORD_BYTES)
    except RuleError:
        return None


@dataclass(frozen=True, slots=True)
class Case:
    """All that a check may look at."""

    history: History
    topics: AppTopics
    rule: CompiledRule
    inquiry: Inquiry
    answers: Sequence[Answer]

    @property
    def published(self) -> Found | None:
        """The control record of the rule's version; None for one that is only in a file."""
        version = self.history.version(self.rule.rule.id, self.rule.rule.version)
        same = version is not None and version.rule == self.rule.rule
        return version.record if version is not None and same else None


#: Gives a reason that is no condition, or None.
Check = Callable[[Case], Circumstance | None]


def circumstances(
    reader: Reading, history: History, topics: AppTopics, rule: CompiledRule, inquiry: Inquiry
) -> tuple[Circumstance, ...]:
    """Everything that applies, the decisive ones first."""
    case = Case(history, topics, rule, inquiry, _answers(reader, topics, rule.rule.id))
    found = [one for check in CHECKS if (one := check(case)) is not None]
    return tuple(sorted(found, key=lambda one: not one.decisive))


def _answers(reader: Reading, topics: AppTopics, name: str) -> Sequence[Answer]:
    """What the app said of the rule, oldest first."""
    found: list[Record] = []
    for table in reader.backwards(topics.status, _STATUS_RECORDS):
        rows = table.to_pylist()
        found += [
            Record(topics.status, r["partition"], r["offset"], r["timestamp_ms"], r["key"], r["value"])
            for r in rows
            if r["key"] == name.encode()
        ]
    found.sort(key=lambda r: (r.timestamp_ms, r.partition, r.offset))
    return [*read_answers(found)]


# --- the checks -------------------------------------------------------------------------------------------------


def _dead_letter(case: Case) -> Circumstance | None:
    if case.inquiry.dead is None:
        return None
    return Circumstance("dead letter", f"the record is no event of {case.rule.rule.on}: {case.inquiry.dead}")


def _mode(case: Case) -> Circumstance | None:
    mode = case.rule.rule.status
    said = {
        Mode.PAUSED: "the rule is paused: it is not evaluated, and keeps what it counted",
        Mode.DRAFT: "the rule is a draft: it is only checked and kept",
        Mode.RETIRED: "the rule is retired",
    }
    if mode in said:
        return Circumstance(mode.value, said[mode])
    if mode is Mode.SHADOW:
        return Circumstance("shadow", f"its alerts go to {case.topics.app}.shadow, not to .alerts", decisive=False)
    return None


def _effective(case: Case) -> Circumstance | None:
    effective, record = case.rule.rule.effective, case.inquiry.record
    if effective is None or record is None:
        return None
    if effective.start is not None and record.timestamp_ms < effective.start:
        return Circumstance("not yet effective", f"the rule is effective from {show_time(effective.start)} UTC on")
    if effective.end is not None and record.timestamp_ms >= effective.end:
        return Circumstance("expired", f"the rule was effective until {show_time(effective.end)} UTC")
    return None


def _answered(case: Case) -> Circumstance | None:
    """The app's last word on this version."""
    record = case.published
    for answer in reversed(case.answers):
        of_record = record is not None and answer.position.offset == record.offset
        if answer.status == "quarantined" and answer.version == case.rule.rule.version:
            return Circumstance("quarantine", f"the app does not evaluate it any more: {answer.reason}")
        if of_record and answer.status == "rejected":
            return Circumstance("rejected", f"the app rejected this version: {answer.reason}")
        if of_record:
            return None
    return None


def _unknown(case: Case) -> Circumstance | None:
    if not case.history.there:
        return None
    if case.published is None:
        said = f"this version is not on {case.history.topic}: it was never published, or another one was"
        return Circumstance("not published", said)
    if case.history.versions[case.rule.rule.id][-1].record.value is None:
        return Circumstance("deleted", "the rule has been deleted")
    return None


def _published_later(case: Case) -> Circumstance | None:
    published, record = case.published, case.inquiry.record
    if published is None or record is None or published.timestamp_ms <= record.timestamp_ms:
        return None
    said = (
        f"this version was published at {show_time(published.timestamp_ms)} UTC, after the event was written "
        f"({show_time(record.timestamp_ms)} UTC): an app that was not behind saw the event without it"
    )
    return Circumstance("published later", said, decisive=False)


def _late(case: Case) -> Circumstance | None:
    """Rules per event see late events, too."""
    late = case.inquiry.late
    if late is None or case.rule.kind is Kind.EVENT:
        return None
    said = (
        f"the event came {late.lateness_ms / 1000:g} s behind the watermark ({show_time(late.watermark_ms)} UTC): its "
        "windows may have been over, so rules with state did not see it"
    )
    return Circumstance("late", said)


#: In the order in which they are asked.
CHECKS: tuple[Check, ...] = (_dead_letter, _unknown, _mode, _effective, _answered, _late, _published_later)
