"""The lanes of the rules app. Unlike ``app``, this module does not import Spark."""

from __future__ import annotations

from collections.abc import Sequence

from headgate_rules.settings import RulesSettings
from streamcore.service.config.faults import DocumentFault
from streamcore.service.config.sinks import named_lanes
from streamcore.wire.lanes import ALERTS, DEAD_LETTERS, DECISIONS, LATE, SHADOW, STATUS, table_lane

LANES = (ALERTS, SHADOW, DECISIONS, STATUS, LATE, DEAD_LETTERS)
#: The lanes that sinks take as rows, by the lane that has them as records.
ROW_LANES = {lane: table_lane(lane) for lane in (ALERTS, SHADOW, DECISIONS)}


def find_lane_faults(settings: RulesSettings) -> Sequence[DocumentFault]:
    """Return the entries of sinks for lanes that are not there."""
    *most, last = ROW_LANES.values()
    return [
        DocumentFault(path, f"there is no lane {lane!r}; sinks take {', '.join(most)} and {last}")
        for path, lane in named_lanes(settings)
        if lane not in ROW_LANES.values()
    ]


def lanes_of_sinks(settings: RulesSettings) -> tuple[str, ...]:
    """Return the lanes whose records sinks take as rows."""
    named = {lane for _, lane in named_lanes(settings)}
    return tuple(lane for lane, rows in ROW_LANES.items() if rows in named)
