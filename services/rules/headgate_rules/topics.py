"""The lanes of the rules app. Unlike ``app``, this module does not import Spark."""

from __future__ import annotations

from collections.abc import Sequence

from headgate_rules.settings import RulesSettings
from streamcore.service.config.faults import DocumentFault
from streamcore.service.config.sinks import named_lanes
from streamcore.wire.lanes import ALERTS, DEAD_LETTERS, LATE, SHADOW, STATUS, table_lane

LANES = (ALERTS, SHADOW, STATUS, LATE, DEAD_LETTERS)
#: The lane that sends alerts to sinks, as rows.
ALERT_ROWS = table_lane(ALERTS)


def find_lane_faults(settings: RulesSettings) -> Sequence[DocumentFault]:
    """Return the entries of sinks for lanes that are not there."""
    return [
        DocumentFault(path, f"there is no lane {lane!r}; sinks take {ALERT_ROWS}")
        for path, lane in named_lanes(settings)
        if lane != ALERT_ROWS
    ]
