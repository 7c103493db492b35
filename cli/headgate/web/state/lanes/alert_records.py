"""Alerts as records of a lane, and the filter that selects some."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from headgate.explain.kafka_reader import KafkaRecord
from headgate.web.state.values import AlertValue

#: A text that JSON has as it is, in every way of writing it.
_PLAIN = re.compile(r"[A-Za-z0-9_. :-]+")


@dataclass(frozen=True, slots=True)
class AlertFilter:
    """Selects alerts; an entry that is empty selects all. ``key``: a value of the key, or ``column=value``.
    ``since_ms`` and ``until_ms``: bounds of the time at which the alert was raised, the second exclusive."""

    rule: str = ""
    severity: str = ""
    key: str = ""
    since_ms: int | None = None
    until_ms: int | None = None

    def matches(self, alert: AlertValue) -> bool:
        """Return whether the filter selects the alert."""
        return (
            (not self.rule or alert.rule == self.rule)
            and (not self.severity or alert.severity == self.severity)
            and (not self.key or any(self.key in (text, f"{name}={text}") for name, text in key_texts(alert)))
            and (self.until_ms is None or alert.raised_ms < self.until_ms)
            and (self.since_ms is None or alert.raised_ms >= self.since_ms)
        )

    @property
    def needles(self) -> tuple[bytes, ...]:
        """Bytes that the record of each selected alert contains, whatever wrote it: most records need no parser."""
        texts = (self.rule, self.severity, self.key.rpartition("=")[2])
        return tuple(text.encode() for text in texts if _PLAIN.fullmatch(text))


def key_texts(alert: AlertValue) -> Iterator[tuple[str, str]]:
    """Yield column and value of the alert's key, as texts."""
    for name, value in alert.key.items():
        yield name, value if isinstance(value, str) else orjson.dumps(value).decode()


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
