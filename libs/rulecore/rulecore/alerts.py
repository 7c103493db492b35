"""What a rule says when it fires: the alert's fields, its identity and its bytes.

The identity is a hash of what fired (rule, version, and the event or the key and window), so the same firing has the
same identity wherever and however often it is computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import orjson

from rulecore import lang
from rulecore.compiled import CompiledRule
from rulecore.lang.types import Value
from rulecore.model import Mode
from rulecore.windowed import Firing
from streamcore.lanes import ALERTS, SHADOW, Record
from streamcore.schema import StreamSchema

_BATCH = orjson.OPT_SORT_KEYS


@dataclass(frozen=True, slots=True)
class Origin:
    """The event behind an alert: where it was read, and its event time in epoch milliseconds."""

    topic: str
    partition: int
    offset: int
    event_ms: int


def event_alert(
    rule: CompiledRule, schema: StreamSchema, event: Mapping[str, Value], origin: Origin, epoch: int
) -> Record:
    """The alert of a rule per event. ``event``: physical values by column, those of the message at least."""
    identity = [rule.rule.id, rule.rule.version, origin.topic, origin.partition, origin.offset]
    key = {name: _json(event[name], schema, name) for name in schema.keys[0]}
    body = _common(rule, identity, epoch, event) | {
        "kind": "event",
        "key": key,
        "window": None,
        "timing": None,
        "event_time_ms": origin.event_ms,
        "values": {},
        "source": _source(origin),
        "warming": False,
    }
    return _record(rule, body)


def window_alert(firing: Firing, schema: StreamSchema, origin: Origin | None, epoch: int) -> Record:
    """The alert of a windowed rule; ``origin`` None for one at the end of its window."""
    rule = firing.rule
    key = {name: _json(firing.key[name], schema, name) for name in rule.group_by}
    identity = [rule.rule.id, rule.rule.version, list(key.values()), firing.start_ms, firing.end_ms]
    physical: dict[str, Value] = {**firing.key, **firing.values}  # type: ignore[dict-item]
    values = {s.text: _plain(lang.to_logical(firing.values[s.column], s.type)) for s in rule.aggregates}  # type: ignore[arg-type]
    body = _common(rule, identity, epoch, physical) | {
        "kind": "window",
        "key": key,
        "window": {"start_ms": firing.start_ms, "end_ms": firing.end_ms},
        "timing": "final" if origin is None else "early",
        "event_time_ms": firing.end_ms if origin is None else origin.event_ms,
        "values": values,
        "source": None if origin is None else _source(origin),
        "warming": firing.warming,
    }
    return _record(rule, body)


def _common(rule: CompiledRule, identity: list[object], epoch: int, physical: Mapping[str, Value]) -> dict[str, object]:
    then = rule.rule.then
    values = {p.name: lang.to_logical(physical[p.column], p.type) for p in rule.placeholders}
    return {
        "alert_id": hashlib.blake2b(orjson.dumps(identity), digest_size=16).hexdigest(),
        "rule": rule.rule.id,
        "version": rule.rule.version,
        "stream": rule.rule.on,
        "severity": then.severity.value,
        "outcome": then.outcome,
        "score": then.score,
        "message": rule.message.format(values.__getitem__),
        "rules_epoch": epoch,
    }


def _record(rule: CompiledRule, body: Mapping[str, object]) -> Record:
    lane = SHADOW if rule.rule.mode is Mode.SHADOW else ALERTS
    return Record(lane, str(body["alert_id"]).encode(), orjson.dumps(body, option=_BATCH))


def _source(origin: Origin) -> dict[str, object]:
    return {"topic": origin.topic, "partition": origin.partition, "offset": origin.offset}


def _json(value: object, schema: StreamSchema, name: str) -> object:
    field = schema.get(name)
    assert field is not None, "a rule names fields of its stream only"
    return _plain(lang.to_logical(value, field.type))  # type: ignore[arg-type]


def _plain(value: Value) -> object:
    """Decimals as text with all their digits; JSON has the rest."""
    return format(value, "f") if isinstance(value, Decimal) else value
