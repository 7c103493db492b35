"""Alerts as records of a lane, and the filter that selects some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import orjson

from headgate.explain.kafka_reader import KafkaRecord
from headgate.web.state.lanes.lane_kind import LaneKind, find_needles, key_terms, term
from headgate.web.state.values import AlertValue


@dataclass(frozen=True, slots=True)
class AlertFilter:
    """Selects alerts; an entry that is empty selects all. ``key``: a value of the key, or ``column=value``.
    ``since_ms`` and ``until_ms``: bounds of the time at which the alert was raised, the second exclusive."""

    rule: str = ""
    severity: str = ""
    key: str = ""
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def terms(self) -> frozenset[str]:
        """The terms that each selected alert has."""
        words = {"rule": self.rule, "severity": self.severity, "key": self.key}
        return frozenset(term(name, word) for name, word in words.items() if word)

    def matches(self, alert: AlertValue) -> bool:
        """Return whether the filter selects the alert."""
        return (
            self.terms.issubset(alert_terms(alert))
            and (self.until_ms is None or alert.raised_ms < self.until_ms)
            and (self.since_ms is None or alert.raised_ms >= self.since_ms)
        )

    @property
    def needles(self) -> tuple[bytes, ...]:
        """Bytes that the record of each selected alert contains."""
        return find_needles((self.rule, self.severity, self.key.rpartition("=")[2]))


def alert_terms(alert: AlertValue) -> Sequence[str]:
    """Return the terms by which an alert is found."""
    return [term("rule", alert.rule), term("severity", alert.severity), *key_terms(alert.key)]


def alert_kind(lane: str) -> LaneKind[AlertValue]:
    """Return how the alerts of a lane are read."""
    return LaneKind(partial(parse_alert, lane=lane), alert_terms)


def parse_alert(record: KafkaRecord, lane: str) -> AlertValue | None:
    """Return the alert of a record; None for one that is none, because others may write there."""
    try:
        body = orjson.loads(record.value or b"")
        return AlertValue(
            alert_id=(record.key or b"").decode(),
            rule=body["rule"],
            version=body["version"],
            severity=body["severity"],
            message=body["message"],
            key=body["key"],
            event_time_ms=body["event_time_ms"],
            raised_ms=record.timestamp_ms,
            lane=lane,
            partition=record.partition,
            offset=record.offset,
            body=body,
        )
    except (ValueError, KeyError, TypeError):
        return None
