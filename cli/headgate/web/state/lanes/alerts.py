"""Alerts of an app: pages of them by rule, key, severity and time; one by its id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.explain.kafka_reader import KafkaReader
from headgate.web.problems import not_found
from headgate.web.state.alert_index import AlertIndex
from headgate.web.state.alert_records import AlertFilter, parse_alert
from headgate.web.state.newest_first import NewestFirst
from headgate.web.state.values import AlertPage, AlertValue
from streamcore.kafka.settings import KafkaSettings
from streamcore.wire.lanes import ALERTS, SHADOW


@dataclass(frozen=True, slots=True)
class AlertReader:
    """Reads the alerts of an app. ``scan``: the most records that one search reads."""

    kafka: KafkaSettings
    app: str
    scan: int
    indexes: Mapping[str, AlertIndex] = field(init=False)

    def __post_init__(self) -> None:
        """Make the indexes of the lanes; they are filled when they are asked first."""
        made = {lane: AlertIndex(self.kafka, f"{self.app}.{lane}", lane, self.scan) for lane in (ALERTS, SHADOW)}
        object.__setattr__(self, "indexes", made)

    def close(self) -> None:
        """Close the consumers of the indexes."""
        for index in self.indexes.values():
            index.close()

    def page(self, lane: str, wanted: AlertFilter, limit: int, below: Mapping[int, int]) -> AlertPage:
        """Return up to ``limit`` alerts, the newest first."""
        known = self.indexes[lane].page(wanted, limit, below)
        return self._search(lane, wanted, limit, below) if known is None else known

    def _search(self, lane: str, wanted: AlertFilter, limit: int, below: Mapping[int, int]) -> AlertPage:
        """Return alerts that are older than the index."""
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
        known = next((one for index in self.indexes.values() if (one := index.find(alert_id)) is not None), None)
        if known is not None:
            return known
        reader = KafkaReader(self.kafka)
        for lane in (ALERTS, SHADOW):
            record = reader.find(f"{self.app}.{lane}", "key", alert_id.encode(), self.scan)
            found = None if record is None else parse_alert(record, lane)
            if found is not None:
                return found
        raise not_found(f"alert {alert_id} is not among the last {self.scan:,} alerts of app {self.app}")
