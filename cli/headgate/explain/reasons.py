"""Finds reasons outside its conditions why a rule raised no alert: it was deleted, rejected or quarantined, an event
was late, and others.

``find_reasons`` runs each function of ``CHECKS``; a feature that can prevent an alert adds its own function. The checks
of the module ``reasons_after_firing`` apply when the rule fired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.explain.evidence import Evidence
from headgate.explain.kafka_reader import KafkaReader
from headgate.explain.reason_context import AppRules, ReasonContext, StatusMessage
from headgate.explain.reasons_after_firing import CHECKS_AFTER_FIRING
from headgate.rules.publish import AppTopics, read_responses
from headgate.time_arguments import show_time
from rulecore.documents.rule import RuleKind, RuleMode
from rulecore.documents.status import StatusKind, Subject
from rulecore.explain.explanation import Explanation, RuleReason
from rulecore.streams import stream_names
from streamcore.durations import render_duration
from streamcore.kafka.readers import Record

_STATUS_RECORDS = 50_000

#: Returns a reason, or None if it does not apply.
Check = Callable[[ReasonContext], RuleReason | None]


def find_reasons(
    reader: KafkaReader, known: AppRules, explanation: Explanation, evidence: Evidence, scan: int
) -> tuple[RuleReason, ...]:
    """Return all reasons that apply, the decisive ones first."""
    messages = _read_status_messages(reader, known.topics, explanation.rule.rule.id)
    context = ReasonContext(reader, known, explanation, evidence, messages, scan)
    reasons = [reason for check in CHECKS if (reason := check(context)) is not None]
    return tuple(sorted(reasons, key=lambda reason: not reason.decisive))


def _read_status_messages(reader: KafkaReader, topics: AppTopics, name: str) -> Sequence[StatusMessage]:
    """Read the app's status messages about the rule, oldest first."""
    records: list[Record] = []
    for table in reader.backwards(topics.status, _STATUS_RECORDS):
        records += [
            Record(topics.status, r["partition"], r["offset"], r["timestamp_ms"], r["key"], r["value"])
            for r in table.to_pylist()
            if r["key"] == name.encode()
        ]
    records.sort(key=lambda r: (r.timestamp_ms, r.partition, r.offset))
    return [StatusMessage(response, r.timestamp_ms) for r in records for response in read_responses([r])]


def _dead_letter(context: ReasonContext) -> RuleReason | None:
    if context.evidence.dead is None:
        return None
    return RuleReason(
        "dead letter",
        f"the record is not an event of {' or '.join(stream_names(context.rule.rule.on))}: {context.evidence.dead}",
    )


def _duplicate(context: ReasonContext) -> RuleReason | None:
    """Check whether the event repeats another. Of a rule on one event only this event is read, so it may."""
    evidence = context.evidence
    schema = evidence.event_stream
    if schema is None or schema.deduplicate_ms is None:
        return None
    event_id = evidence.value(schema, str(schema.event_id))
    if evidence.duplicate:
        return RuleReason("duplicate", f"another event with {schema.event_id} {event_id} counts, so this one does not")
    if context.rule.kind is not RuleKind.EVENT or event_id is None:
        return None
    horizon = render_duration(schema.deduplicate_ms)
    text = f"if an event with {schema.event_id} {event_id} came within {horizon} before it, this one is not used"
    return RuleReason("duplicate?", text, decisive=False)


def _not_published(context: ReasonContext) -> RuleReason | None:
    if not context.known.app_exists:
        return None
    if context.control_entry is None:
        text = (
            f"this version is not on {context.known.topics.control}, or was not accepted there: "
            "it was never published, or a different document was"
        )
        return None if _rejection_reason(context) else RuleReason("not published", text)
    return None


def _replacement(context: ReasonContext) -> RuleReason | None:
    """Check whether a later change replaced this version or deleted the rule."""
    if context.control_entry is None or (superseded_by := context.known.superseded_by(context.rule.rule)) is None:
        return None
    version, at_ms = superseded_by
    name, decisive = ("deleted", "replaced")[version is not None], context.came_after(at_ms)
    change = "the rule was deleted" if version is None else f"version {version} replaced this one"
    return RuleReason(name, f"{change} at {show_time(at_ms)} UTC", decisive)


def _mode(context: ReasonContext) -> RuleReason | None:
    mode = context.rule.rule.status
    texts = {
        RuleMode.PAUSED: "the rule is paused: it is not evaluated, and keeps what it counted",
        RuleMode.DRAFT: "the rule is a draft: it is only checked and kept",
        RuleMode.RETIRED: "the rule is retired",
    }
    return RuleReason(mode.value, texts[mode]) if mode in texts else None


def _effective(context: ReasonContext) -> RuleReason | None:
    """Check the rule's ``effective`` interval at the time of the record; without a record, at the present time."""
    effective = context.rule.rule.effective
    if effective is None:
        return None
    record = context.evidence.record
    at_ms = context.known.now_ms if record is None else record.timestamp_ms
    if effective.start is not None and at_ms < effective.start:
        return RuleReason("not yet effective", f"the rule is effective from {show_time(effective.start)} UTC on")
    if effective.end is not None and at_ms >= effective.end:
        return RuleReason("expired", f"the rule was effective until {show_time(effective.end)} UTC")
    return None


def _quarantine(context: ReasonContext) -> RuleReason | None:
    """Check whether this version is quarantined; decisive unless the record was written before."""
    for message in reversed(context.version_messages):
        if message.response.status == StatusKind.QUARANTINED:
            text = f"since {show_time(message.time_ms)} UTC the app does not evaluate it: {message.response.reason}"
            return RuleReason("quarantine", text, context.came_after(message.time_ms))
    return None


def _rejection(context: ReasonContext) -> RuleReason | None:
    reason = _rejection_reason(context)
    return None if reason is None else RuleReason("rejected", f"the app rejected this version: {reason}")


def _rejection_reason(context: ReasonContext) -> str | None:
    """Return why the app rejected the version; None if it did not, or if it accepted the version at another time."""
    answers = [message.response for message in context.version_messages if message.response.subject == Subject.RULE]
    if any(response.accepted for response in answers):
        return None
    return next((a.reason for a in reversed(answers) if a.status == StatusKind.REJECTED), None)


def _published_later(context: ReasonContext) -> RuleReason | None:
    published, record = context.control_entry, context.evidence.record
    if published is None or record is None or published.time_ms <= record.timestamp_ms:
        return None
    text = (
        f"this version was published at {show_time(published.time_ms)} UTC, after the event was written "
        f"({show_time(record.timestamp_ms)} UTC): an app that was not behind saw the event without it"
    )
    return RuleReason("published later", text, decisive=False)


def _late(context: ReasonContext) -> RuleReason | None:
    """Check whether the event was late. Event rules evaluate late events too, unless the deduplication of the stream
    may have forgotten their ids."""
    late, stream = context.evidence.late, context.evidence.event_stream
    horizon_ms = None if stream is None else stream.deduplicate_ms
    if late is None:
        return None
    behind = f"the event came {late.lateness_ms / 1000:g} s behind the watermark ({show_time(late.watermark_ms)} UTC)"
    if horizon_ms is not None and late.lateness_ms > horizon_ms:
        return RuleReason(
            "late", f"{behind}, more than the stream's deduplicate: it may repeat a forgotten one, and is not used"
        )
    if context.rule.kind is RuleKind.EVENT:
        return None
    text = f"{behind}: its windows may have ended, so rules with state did not count it"
    return RuleReason("late", text)


#: All checks, in the order in which they run.
CHECKS: tuple[Check, ...] = (
    _dead_letter,
    _duplicate,
    _not_published,
    _replacement,
    _mode,
    _effective,
    _quarantine,
    _rejection,
    _late,
    *CHECKS_AFTER_FIRING,
    _published_later,
)
