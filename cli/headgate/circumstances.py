"""What kept a rule silent though its conditions held: its life, its rejection or quarantine, a late event.

``circumstances`` asks each of ``CHECKS`` in turn; a feature that can keep a rule silent adds its own function there.
What becomes of a firing before it is an alert is asked by ``circumstances_given``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.circumstances_case import Case, Known, Said
from headgate.circumstances_given import GIVEN
from headgate.explain_inquiry import Inquiry
from headgate.explain_reading import Reading
from headgate.moments import show_time
from headgate.publishing import AppTopics, read_answers
from rulecore.explanation import Circumstance, Explanation
from rulecore.model import Kind, Mode
from rulecore.status import StatusKind, Subject
from streamcore.kafka.readers import Record

_STATUS_RECORDS = 50_000

#: Gives a reason that is no condition, or None.
Check = Callable[[Case], Circumstance | None]


def circumstances(
    reader: Reading, known: Known, explanation: Explanation, inquiry: Inquiry, scan: int
) -> tuple[Circumstance, ...]:
    """Everything that applies, the decisive ones first."""
    said = _said(reader, known.topics, explanation.rule.rule.id)
    case = Case(reader, known, explanation, inquiry, said, scan)
    found = [one for check in CHECKS if (one := check(case)) is not None]
    return tuple(sorted(found, key=lambda one: not one.decisive))


def _said(reader: Reading, topics: AppTopics, name: str) -> Sequence[Said]:
    """What the app said of the rule, oldest first."""
    found: list[Record] = []
    for table in reader.backwards(topics.status, _STATUS_RECORDS):
        found += [
            Record(topics.status, r["partition"], r["offset"], r["timestamp_ms"], r["key"], r["value"])
            for r in table.to_pylist()
            if r["key"] == name.encode()
        ]
    found.sort(key=lambda r: (r.timestamp_ms, r.partition, r.offset))
    return [Said(answer, r.timestamp_ms) for r in found for answer in read_answers([r])]


def _dead_letter(case: Case) -> Circumstance | None:
    if case.inquiry.dead is None:
        return None
    return Circumstance("dead letter", f"the record is no event of {case.rule.rule.on}: {case.inquiry.dead}")


def _unknown(case: Case) -> Circumstance | None:
    if not case.known.there:
        return None
    if case.published is None:
        said = (
            f"this version is not on {case.known.topics.control}, or was not accepted there: it was never published, "
            "or another one was"
        )
        return None if _refused(case) else Circumstance("not published", said)
    return None


def _replaced(case: Case) -> Circumstance | None:
    """By the changes that came after this version counted."""
    if case.published is None or (over := case.known.over(case.rule.rule)) is None:
        return None
    version, at_ms = over
    what, decisive = ("deleted", "replaced")[version is not None], case.came_after(at_ms)
    by = "the rule was deleted" if version is None else f"version {version} took the place of this one"
    return Circumstance(what, f"{by} at {show_time(at_ms)} UTC", decisive)


def _mode(case: Case) -> Circumstance | None:
    mode = case.rule.rule.status
    said = {
        Mode.PAUSED: "the rule is paused: it is not evaluated, and keeps what it counted",
        Mode.DRAFT: "the rule is a draft: it is only checked and kept",
        Mode.RETIRED: "the rule is retired",
    }
    return Circumstance(mode.value, said[mode]) if mode in said else None


def _effective(case: Case) -> Circumstance | None:
    """By the record's time where there is one, else by now."""
    effective = case.rule.rule.effective
    if effective is None:
        return None
    record = case.inquiry.record
    at_ms = case.known.now_ms if record is None else record.timestamp_ms
    if effective.start is not None and at_ms < effective.start:
        return Circumstance("not yet effective", f"the rule is effective from {show_time(effective.start)} UTC on")
    if effective.end is not None and at_ms >= effective.end:
        return Circumstance("expired", f"the rule was effective until {show_time(effective.end)} UTC")
    return None


def _quarantined(case: Case) -> Circumstance | None:
    """Unless the event came before that; a new version is never in quarantine."""
    for said in reversed(case.of_version):
        if said.answer.status == StatusKind.QUARANTINED:
            text = f"since {show_time(said.time_ms)} UTC the app does not evaluate it any more: {said.answer.reason}"
            return Circumstance("quarantine", text, case.came_after(said.time_ms))
    return None


def _rejected(case: Case) -> Circumstance | None:
    reason = _refused(case)
    return None if reason is None else Circumstance("rejected", f"the app rejected this version: {reason}")


def _refused(case: Case) -> str | None:
    """Why the app refused the version; None when it did not. One that it had accepted before counts nevertheless."""
    answers = [said.answer for said in case.of_version if said.answer.subject == Subject.RULE]
    if any(answer.accepted for answer in answers):
        return None
    return next((a.reason for a in reversed(answers) if a.status == StatusKind.REJECTED), None)


def _published_later(case: Case) -> Circumstance | None:
    published, record = case.published, case.inquiry.record
    if published is None or record is None or published.time_ms <= record.timestamp_ms:
        return None
    said = (
        f"this version was published at {show_time(published.time_ms)} UTC, after the event was written "
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
CHECKS: tuple[Check, ...] = (
    _dead_letter,
    _unknown,
    _replaced,
    _mode,
    _effective,
    _quarantined,
    _rejected,
    _late,
    *GIVEN,
    _published_later,
)
