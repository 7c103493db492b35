"""Alerts of an app: pages of them by rule, key, severity and time; one by its id."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headgate.web.problems import not_found
from headgate.web.state.lanes.alert_records import AlertFilter, alert_kind
from headgate.web.state.lanes.lane_reader import LaneReader
from headgate.web.state.values import AlertPage, AlertValue
from streamcore.kafka.settings import KafkaSettings
from streamcore.wire.lanes import ALERTS, SHADOW


class AlertReader:
    """Reads the alerts of an app, by lane. ``scan``: the most records that one search reads."""

    def __init__(self, kafka: KafkaSettings, app: str, scan: int) -> None:
        self._app, self._scan = app, scan
        self.lanes = {lane: LaneReader(kafka, f"{app}.{lane}", alert_kind(lane), scan) for lane in (ALERTS, SHADOW)}

    def close(self) -> None:
        """Close the consumers."""
        for lane in self.lanes.values():
            lane.close()

    def page(self, lane: str, wanted: AlertFilter, limit: int, below: Mapping[int, int]) -> AlertPage:
        """Return up to ``limit`` alerts, the newest first."""
        found = self.lanes[lane].page(wanted, limit, below)
        return AlertPage(alerts=found.values, read=found.read, next=found.next)

    def find(self, alert_id: str) -> AlertValue:
        """Return an alert of either lane. ``ProblemError`` if it is not among the last ``scan`` of both."""
        readers = self.lanes.values()
        for look in (LaneReader.known, LaneReader.find):
            for reader in readers:
                found = reader.parse(look(reader, alert_id))
                if found is not None:
                    return found
        raise not_found(f"alert {alert_id} is not among the last {self._scan:,} alerts of app {self._app}")

    def known(self, alert_ids: Collection[str]) -> frozenset[str]:
        """Return those of some ids of which the alert is among the newest in memory."""
        readers = self.lanes.values()
        return frozenset(one for one in alert_ids if any(reader.known(one) is not None for reader in readers))
