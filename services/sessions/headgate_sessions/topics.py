"""The lanes of the sessions app. Unlike ``app``, this module does not import Spark."""

from __future__ import annotations

from headgate_sessions.settings import SessionsSettings
from streamcore.wire.lanes import DEAD_LETTERS, LATE, STATUS

SESSIONS = "sessions"
ACTIVITY = "activity"
REVENUE = "revenue"
ACTIVE = "active"
TOP = "top"

#: The lanes that can also be tables, and the key columns of each.
KEYS = {
    SESSIONS: ("session_id",),
    ACTIVITY: ("minute",),
    REVENUE: ("minute", "currency"),
    ACTIVE: ("until",),
    TOP: ("until", "rank"),
}


def table_lane(lane: str) -> str:
    """Return the name of the lane that sends the rows of ``lane`` to a table."""
    return f"{lane}_table"


def lanes(settings: SessionsSettings) -> tuple[str, ...]:
    """Return the lanes that are topics."""
    return (*(KEYS if settings.dashboard_metrics else (SESSIONS,)), LATE, DEAD_LETTERS, STATUS)
