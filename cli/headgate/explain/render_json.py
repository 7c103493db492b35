"""The JSON form of an explanation, for programs."""

from __future__ import annotations

from dataclasses import asdict
from decimal import Decimal

import orjson

from headgate.console.output import Json
from headgate.explain.query import ExplainResult
from rulecore.explain.condition import Clause
from rulecore.explain.explanation import EventTrace, MatchTrace, PartialTrace, WindowTrace


def as_json(result: ExplainResult) -> Json:
    """Return all parts of the explanation as JSON."""
    explanation = result.explanation
    rule = explanation.rule.rule
    silent = any(one.decisive for one in result.reasons)
    document = {
        "rule": rule.id,
        "version": rule.version,
        "kind": rule.kind.value,
        "about": result.about,
        "fired": explanation.fired and not silent,
        "verdict": explanation.verdict,
        "reasons": [asdict(one) for one in result.reasons],
        "event": None if explanation.event is None else _event_json(explanation.event),
        "events": [_event_json(event) for event in explanation.events],
        "windows": [_window_json(window) for window in explanation.windows],
        "matches": [_match_json(match) for match in explanation.matches],
        "partials": [_partial_json(partial) for partial in explanation.partials],
        "scores": [asdict(score) for score in explanation.scores],
        "looked_at": explanation.looked_at,
        "satisfied": explanation.satisfied,
        "rejected": [asdict(one) for one in explanation.rejected],
        "alerts": list(explanation.alerts),
        "alert": result.alert,
        "same": result.same,
        "differences": list(result.differences),
        "published": None if result.published is None else _found_json(result),
        "notes": list(result.notes),
    }
    found: Json = orjson.loads(orjson.dumps(document, default=_plain))
    return found


def _plain(value: object) -> str:
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _found_json(result: ExplainResult) -> Json:
    found = result.published
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
        **({"places": dict(event.places)} if event.places else {}),
    }


def _window_json(window: WindowTrace) -> dict[str, object]:
    return {
        "start_ms": window.start_ms,
        "end_ms": window.end_ms,
        "event_time_ms": window.time_ms,
        "values": {seen.text: seen.value for seen in window.seen},
        "having": _clause_json(window.having),
    }


def _match_json(match: MatchTrace) -> dict[str, object]:
    return {
        "start_ms": match.start_ms,
        "end_ms": match.end_ms,
        "timed_out": match.timed_out,
        "events": [_event_json(event) for event in match.events],
    }


def _partial_json(partial: PartialTrace) -> dict[str, object]:
    return {
        "start_ms": partial.start_ms,
        "end_ms": partial.end_ms,
        "waited_for": list(partial.waited_for),
        "ended": partial.ended,
        "events": [_event_json(event) for event in partial.events],
        "missed": [_event_json(event) for event in partial.missed],
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
