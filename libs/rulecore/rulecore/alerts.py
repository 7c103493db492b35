"""What a rule says when it fires: the alert's fields, its identity and its bytes.

The identity is a hash of what fired (rule, version, and the event or the key and window), so the same firing has the
same identity wherever and however often it is computed.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import orjson

from rulecore import lang
from rulecore.compiled import CompiledRule
from rulecore.firing import Firing, Origin
from rulecore.lang.types import Value
from streamcore.lanes import Record
from streamcore.schema import StreamSchema, Type


@dataclass(frozen=True, slots=True)
class Given:
    """What an alert says of how it was given: lane, epoch of the rule set, how many were suppressed before it."""

    lane: str
    epoch: int
    suppressed: int | None = None


def event_alert(
    rule: CompiledRule, schema: StreamSchema, event: Mapping[str, Value], origin: Origin, given: Given
) -> Record:
    """The alert of a rule per event. ``event``: physical values by column, those of the message at least."""
    identity = [rule.rule.id, rule.rule.version, origin.topic, origin.partition, origin.offset]
    body: dict[str, object] = {
        "kind": "event",
        "key": _key(event, schema, schema.keys[rule.route]),
        "window": None,
        "timing": None,
        "event_time_ms": origin.event_ms,
        "values": {},
        "source": origin.place,
        "warming": False,
        "message": _message(rule, event),
        "rules_epoch": given.epoch,
    }
    return _record(rule, identity, body, given)


def alert(firing: Firing, schema: StreamSchema, origin: Origin | None, given: Given) -> Record:
    """The alert of a rule with state; ``origin`` is the event at which it fired, None for one at a watermark."""
    rule = firing.rule
    key = _key(firing.key, schema, rule.group_by)
    identity = [rule.rule.id, rule.rule.version, list(key.values()), *firing.mark]
    body: dict[str, object] = {
        "kind": rule.kind.value,
        "key": key,
        "window": {"start_ms": firing.start_ms, "end_ms": firing.end_ms},
        "timing": firing.timing.value,
        "event_time_ms": firing.time_ms,
        "values": {f.text: _plain(firing.values[f.column], f.type) for f in rule.figures},
        "source": None if origin is None else origin.place,
        "warming": firing.warming,
        "message": _message(rule, {**firing.key, **firing.values}),
        "rules_epoch": given.epoch,
    }
    if firing.events:
        body["events"] = [{**event.place, "event_time_ms": event.event_ms} for event in firing.events]
    return _record(rule, identity, body, given)


def _record(rule: CompiledRule, identity: list[object], body: dict[str, object], given: Given) -> Record:
    alert_id = hashlib.blake2b(orjson.dumps(identity), digest_size=16).hexdigest()
    if given.suppressed is not None:
        body["suppressed"] = given.suppressed
    document = {"alert_id": alert_id, **_said_by(rule.digest, rule), **body}
    return Record(given.lane, alert_id.encode(), orjson.dumps(document))


#: What every alert of a rule version says; kept, for a burst of alerts is when time is short.
_KEPT: dict[str, dict[str, object]] = {}
_MAX_KEPT = 50_000


def _said_by(digest: str, rule: CompiledRule) -> dict[str, object]:
    if digest not in _KEPT:
        if len(_KEPT) >= _MAX_KEPT:
            _KEPT.clear()
        then = rule.rule.then
        _KEPT[digest] = {
            "rule": rule.rule.id,
            "version": rule.rule.version,
            "mode": rule.rule.status.value,
            "stream": rule.rule.on,
            "severity": then.severity.value,
            "outcome": then.outcome,
            "score": then.score,
        }
    return _KEPT[digest]


def _message(rule: CompiledRule, physical: Mapping[str, Value]) -> str:
    values = {p.name: lang.to_logical(physical[p.column], p.type) for p in rule.placeholders}
    return rule.message.format(values.__getitem__)


def _key(row: Mapping[str, Value], schema: StreamSchema, names: tuple[str, ...]) -> dict[str, object]:
    return {name: _plain(row[name], kind) for name, kind in _typed(schema, names)}


@functools.lru_cache(maxsize=1_024)
def _typed(schema: StreamSchema, names: tuple[str, ...]) -> tuple[tuple[str, Type], ...]:
    return tuple((f.name, f.type) for name in names if (f := schema.get(name)) is not None)


def _plain(value: Value, kind: Type) -> object:
    """Decimals as text with all their digits; JSON has the rest."""
    logical = lang.to_logical(value, kind)
    return format(logical, "f") if isinstance(logical, Decimal) else logical
