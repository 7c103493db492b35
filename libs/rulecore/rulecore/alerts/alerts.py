"""Builds the alert of a firing: its fields, its id and its JSON bytes.

The alert id is a hash of rule, version, and the event or the key and window. A firing that is computed again, on any
shard or in a replay, therefore has an equal id.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import orjson

from rulecore import language as lang
from rulecore.compile.rule import CompiledRule
from rulecore.firing import Origin, RuleFiring
from rulecore.key_columns import keyed_schema
from rulecore.language.types import Value
from streamcore.schema import Field, StreamSchema, Type
from streamcore.wire.lanes import Record


@dataclass(frozen=True, slots=True)
class AlertContext:
    """The lane of an alert, the epoch of the rule set, and the number of firings suppressed before the alert.

    ``suppressed`` is None for a rule without ``suppress``. ``decision``: the id of the decision about the event at
    which the rule fired; None without a policy.
    """

    lane: str
    epoch: int
    suppressed: int | None = None
    decision: str | None = None


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert: its id, its lane and the fields of its JSON object. ``outcome``: that which its rule names, if any."""

    alert_id: str
    lane: str
    document: Mapping[str, object]
    outcome: str | None

    def record(self) -> Record:
        """Return the record of the alert."""
        return Record(self.lane, self.alert_id.encode(), orjson.dumps(self.document, default=write_decimal))


def event_alert(
    rule: CompiledRule,
    schema: StreamSchema,
    event: Mapping[str, Value],
    origin: Origin,
    context: AlertContext,
    fields: Sequence[Field],
) -> Alert:
    """Build the alert of an event rule. ``event``: physical values by column. ``fields``: those that events of its
    stream have."""
    identity = [rule.rule.id, rule.rule.version, origin.topic, origin.partition, origin.offset]
    body: dict[str, object] = {
        "kind": "event",
        "key": _key(event, schema, rule.route_key),
        "window": None,
        "timing": None,
        "event_time_ms": origin.event_ms,
        "values": {},
        "source": origin.place,
        "incomplete": False,
        "message": _message(rule, event),
        "rules_epoch": context.epoch,
    }
    if rule.rule.then.event:
        body["event"] = {field.name: lang.to_logical(event[field.name], field.type) for field in fields}
    return _alert(rule, identity, body, context)


def stateful_alert(firing: RuleFiring, schema: StreamSchema, origin: Origin | None, context: AlertContext) -> Alert:
    """Build the alert of a firing. ``origin``: the event at which the rule fired, None if it fired at a watermark."""
    rule = firing.rule
    key = _key(firing.key, schema, rule.group_by)
    identity = [rule.rule.id, rule.rule.version, list(key.values()), *firing.mark]
    body: dict[str, object] = {
        "kind": rule.kind.value,
        "key": key,
        "window": {"start_ms": firing.start_ms, "end_ms": firing.end_ms},
        "timing": firing.timing.value,
        "event_time_ms": firing.time_ms,
        "values": {f.text: to_json_value(firing.values[f.column], f.type) for f in rule.alert_fields},
        "source": None if origin is None else origin.place,
        "incomplete": firing.incomplete,
        "message": _message(rule, {**firing.key, **firing.values}),
        "rules_epoch": context.epoch,
    }
    if firing.events:
        steps = [{"step": step} for step in firing.steps] or [{}] * len(firing.events)
        places = [{**event.place, "event_time_ms": event.event_ms} for event in firing.events]
        body["events"] = [step | place for step, place in zip(steps, places, strict=True)]
    return _alert(rule, identity, body, context)


def _alert(rule: CompiledRule, identity: list[object], body: dict[str, object], context: AlertContext) -> Alert:
    """Return an alert. ``identity``: the values that the alert id is a hash of."""
    alert_id = hashlib.blake2b(orjson.dumps(identity), digest_size=16).hexdigest()
    if context.suppressed is not None:
        body["suppressed"] = context.suppressed
    if context.decision is not None:
        body["decision_id"] = context.decision
    document = {"alert_id": alert_id, **_rule_fields(rule.digest, rule), **body}
    return Alert(alert_id, context.lane, document, rule.rule.then.outcome)


def write_decimal(value: object) -> str:
    """Return the text of a decimal inside of a JSON document, for ``orjson``."""
    assert isinstance(value, Decimal)
    return format(value, "f")


_DEFAULT_OUTCOME = "review"
#: The fields that all alerts of a rule version share, by the rule's digest. A cache, so that many alerts are fast.
_RULE_FIELDS: dict[str, dict[str, object]] = {}
_MAX_RULE_FIELDS = 50_000


def _rule_fields(digest: str, rule: CompiledRule) -> dict[str, object]:
    if digest not in _RULE_FIELDS:
        if len(_RULE_FIELDS) >= _MAX_RULE_FIELDS:
            _RULE_FIELDS.clear()
        then = rule.rule.then
        _RULE_FIELDS[digest] = {
            "rule": rule.rule.id,
            "version": rule.rule.version,
            "mode": rule.rule.status.value,
            "stream": rule.rule.on,
            "severity": then.severity.value,
            "outcome": then.outcome or _DEFAULT_OUTCOME,
            "score": then.score,
        }
    return _RULE_FIELDS[digest]


def _message(rule: CompiledRule, physical: Mapping[str, Value]) -> str:
    values = {p.name: lang.to_logical(physical[p.column], p.type) for p in rule.placeholders}
    return rule.message.format(values.__getitem__)


def _key(row: Mapping[str, Value], schema: StreamSchema, names: tuple[str, ...]) -> dict[str, object]:
    return {name: to_json_value(row[name], kind) for name, kind in _select_fields(schema, names)}


@functools.lru_cache(maxsize=1_024)
def _select_fields(schema: StreamSchema, names: tuple[str, ...]) -> tuple[tuple[str, Type], ...]:
    keyed = keyed_schema(schema, names)
    return tuple((f.name, f.type) for name in names if (f := keyed.get(name)) is not None)


def to_json_value(value: Value, kind: Type) -> object:
    """Return the JSON value of a physical value; a decimal is text with all its digits."""
    logical: object = lang.to_logical(value, kind)
    return format(logical, "f") if isinstance(logical, Decimal) else logical
