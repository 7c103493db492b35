"""One event through a running rules app, end to end: a rule of its own, an event that satisfies it, its alert.

The rule is in shadow: its alert goes to the shadow lane, which no consumer of alerts reads, and it is deleted in the
end, whatever the result. Promises: every reported record was read with ``read_committed``; a step that fails names
itself.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from headgate.errors import InputError
from headgate.records.file_rows import Row
from headgate.records.replay import KafkaSink
from headgate.rules.publish import AppTopics, ControlChange, note_for_user, publish, require_app, rule_change
from rulecore.documents.rule import Rule, RuleMode, RuleOutcome, Severity
from streamcore.decode.scalar import make_record
from streamcore.kafka.readers import Follower, end_offsets
from streamcore.kafka.settings import KafkaSettings
from streamcore.schema import Field, Kind, StreamSchema
from streamcore.wire.lanes import SHADOW

RULE = "headgate-probe"
_POLL_MS = 200
_WHY = "headgate probe"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a probe. ``rule_ms``: from publishing the rule to the app's answer; ``alert_ms``: from sending the
    event until its alert could be read."""

    app: str
    event: str
    alert_id: str
    rule_ms: int
    alert_ms: int


def probe(kafka: KafkaSettings, app: str, schema: StreamSchema, topic: str, at_ms: int, limit_ms: int) -> ProbeResult:
    """Wait at most ``limit_ms`` for the rule and as long again for the alert. ``InputError`` names the step that
    failed."""
    topics, event = AppTopics(app), f"probe-{uuid.uuid4().hex}"
    require_app(kafka, topics)
    rule = _rule(schema, event)
    with _delete_rule_afterwards(kafka, topics):
        began = time.monotonic()
        (published,) = publish(kafka, topics, [rule_change(rule)], note_for_user(_WHY), limit_ms)
        if published.response is None:
            raise InputError(f"app {app}: no answer to a rule within {limit_ms} ms; is the app running?")
        if not published.response.accepted:
            raise InputError(f"app {app}: rejected the probe's rule: {published.response.reason}")
        rule_ms = _elapsed_ms(began)
        alert_id, alert_ms = _send_and_await_alert(
            kafka, topics, (topic, _event(schema, event, at_ms)), f"{event} was seen", limit_ms
        )
    return ProbeResult(app, event, alert_id, rule_ms, alert_ms)


def _rule(schema: StreamSchema, event: str) -> Rule:
    field = None if schema.event_id is None else schema.get(schema.event_id)
    if field is None or field.type.kind is not Kind.STRING:
        raise InputError(f"stream {schema.name}: has no event_id of type string, by which a probe identifies its event")
    return Rule(
        id=RULE,
        version=time.time_ns() // 1_000_000_000,
        owner=_WHY,
        description="Sent by headgate probe to see whether the app works; deleted when it has been seen.",
        on=schema.name,
        where=f"{schema.event_id} = '{event}'",
        then=RuleOutcome(severity=Severity.LOW, message=f"{{{field.name}}} was seen"),
        mode=RuleMode.SHADOW,
    )


@contextlib.contextmanager
def _delete_rule_afterwards(kafka: KafkaSettings, topics: AppTopics) -> Iterator[None]:
    try:
        yield
    finally:
        publish(kafka, topics, [ControlChange(RULE, None, RULE)], note_for_user(_WHY), None)


def _send_and_await_alert(
    kafka: KafkaSettings, topics: AppTopics, event: tuple[str, Row], message: str, limit_ms: int
) -> tuple[str, int]:
    """Send the event to its topic; the id of the alert with that message, and how long it took."""
    lane = f"{topics.app}.{SHADOW}"
    with Follower(kafka, [lane], since=end_offsets(kafka, [lane])) as follower:
        began = time.monotonic()
        sink = KafkaSink(kafka, event[0])
        sink.send(event[1])
        sink.flush_all()
        while _elapsed_ms(began) < limit_ms:
            for record in follower.poll(_POLL_MS):
                body = orjson.loads(record.value or b"{}")
                if body.get("message") == message:
                    return str(body["alert_id"]), _elapsed_ms(began)
    raise InputError(
        f"app {topics.app}: no alert in {lane} within {limit_ms} ms of an event in topic {event[0]}; does the app read "
        f"that topic, and is it behind? See {topics.app}.deadletters too"
    )


def _event(schema: StreamSchema, event: str, at_ms: int) -> Row:
    keys = {name for key in schema.keys for name in key}
    values = {f.name: _any_value(f) for f in schema.fields if not f.nullable or f.name in keys}
    values |= {str(schema.event_id): event, schema.event_time: at_ms}
    first, record = schema.keys[0], make_record(schema, values)
    key = str(values[first[0]]).encode() if len(first) == 1 else None
    return Row(record.value or b"", record.key or key, at_ms)


def _any_value(field: Field) -> object:
    """Return a value for a field that must have one; people see it among their keys."""
    return {Kind.BOOLEAN: False, Kind.STRING: RULE}.get(field.type.kind, 0)


def _elapsed_ms(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
