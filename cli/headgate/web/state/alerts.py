"""Alerts of an app: pages of them by rule, key, severity and time; one by its id."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import orjson

from headgate.explain.kafka_reader import KafkaReader, KafkaRecord
from headgate.web.problems import not_found
from headgate.web.state.newest_first import NewestFirst
from headgate.web.state.values import AlertPage, AlertValue
from streamcore.kafka.settings import KafkaSettings
from streamcore.wire.lanes import ALERTS, SHADOW

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


@dataclass(frozen=True, slots=True)
class AlertReader:
    """Reads the alerts of an app. ``scan``: the most records that one search reads."""

    kafka: KafkaSettings
    app: str
    scan: int

    def page(self, lane: str, wanted: AlertFilter, limit: int, below: Mapping[int, int]) -> AlertPage:
        """Return up to ``limit`` alerts, the newest first."""
        rows, found = NewestFirst(KafkaReader(self.kafka), f"{self.app}.{lane}", dict(below)), list[AlertValue]()
        ended, needles = False, wanted.needles
        for record in rows:
            if wanted.since_ms is not None and record.timestamp_ms < wanted.since_ms:
                ended = True
                break
            value = record.value or b""
            alert = parse_alert(record, lane) if all(needle in value for needle in needles) else None
            if alert is not None and wanted.matches(alert):
                found.append(alert)
            if len(found) >= limit or rows.read >= self.scan:
                break
        return AlertPage(alerts=tuple(found), read=rows.read, next=None if ended else rows.cursor)

    def find(self, alert_id: str) -> AlertValue:
        """Return an alert of either lane. ``ProblemError`` if it is not among the last ``scan`` of both."""
        reader = KafkaReader(self.kafka)
        for lane in (ALERTS, SHADOW):
            record = reader.find(f"{self.app}.{lane}", "key", alert_id.encode(), self.scan)
            found = None if record is None else parse_alert(record, lane)
            if found is not None:
                return found
        raise not_found(f"alert {alert_id} is not among the last {self.scan:,} alerts of app {self.app}")
