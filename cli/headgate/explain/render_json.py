"""An explanation as a document for programs: everything that is known."""

from __future__ import annotations

from dataclasses import asdict
from decimal import Decimal

import orjson

from headgate.console.output import Json
from headgate.explain.query import ExplainResult
from rulecore.explain.condition import Clause
from rulecore.explain.explanation import EventTrace, WindowTrace


def as_json(answer: ExplainResult) -> Json:
    """Everything that is known."""
    explanation = answer.explanation
    rule = explanation.rule.rule
    silent = any(one.decisive for one in answer.circumstances)
    document = {
        "rule": rule.id,
        "version": rule.version,
        "kind": rule.kind.value,
        "about": answer.about,
        "fired": explanation.fired and not silent,
        "verdict": explanation.verdict,
        "circumstances": [asdict(one) for one in answer.circumstances],
        "event": None if explanation.event is None else _event_json(explanation.event),
        "events": [_event_json(event) for event in explanation.events],
        "windows": [_window_json(window) for window in explanation.windows],
        "looked_at": explanation.looked_at,
        "satisfied": explanation.satisfied,
        "rejected": [asdict(one) for one in explanation.rejected],
        "alerts": list(explanation.alerts),
        "alert": answer.alert,
        "same": answer.same,
        "differences": list(answer.differences),
        "published": None if answer.published is None else _found_json(answer),
        "notes": list(answer.notes),
    }
    found: Json = orjson.loads(orjson.dumps(document, default=_plain))
    return found


def _plain(value: object) -> str:
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _found_json(answer: ExplainResult) -> Json:
    found = answer.published
    assert found is not None
    key = (found.key or b"").decode()
    return {"alert_id": key, "topic": found.topic, "partition": found.partition, "offset": found.offset}


def _event_json(event: EventTrace) -> dict[str, object]:
    conditions = {name: _clause_json(clause) for name, clause in event.conditions.items()}
    return {
        "source": event.origin.place,
        "event_time_ms": event.origin.event_ms,
        "values": dict(event.values),
        "conditions": conditions,
    }


def _window_json(window: WindowTrace) -> dict[str, object]:
    return {
        "start_ms": window.start_ms,
        "end_ms": window.end_ms,
        "event_time_ms": window.time_ms,
        "values": {seen.text: seen.value for seen in window.seen},
        "having": _clause_json(window.having),
    }


def _clause_json(clause: Clause) -> dict[str, object]:
    return {
        "text": clause.text,
        "result": clause.truth.value,
        "decided": clause.decided,
        "joint": clause.joint,
        "values": {seen.text: seen.value for seen in clause.seen},
        "note": clause.note,
        "parts": [_clause_json(part) for part in clause.parts],
    }
