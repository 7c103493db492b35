"""The lanes of the sessions app and their topics. Apart from the app: who only needs names does not import Spark."""

from __future__ import annotations

from headgate_sessions.settings import SessionsSettings
from streamcore.wire.lanes import DEAD_LETTERS, LATE

SESSIONS = "sessions"
ACTIVITY = "activity"
REVENUE = "revenue"
ACTIVE = "active"
TOP = "top"

#: The lanes whose rows are also a table's, and the key of each.
KEYS = {
    SESSIONS: ("session_id",),
    ACTIVITY: ("minute",),
    REVENUE: ("minute", "currency"),
    ACTIVE: ("until",),
    TOP: ("until", "rank"),
}


def table_lane(lane: str) -> str:
    """Return the lane that holds the same rows for a database."""
    return f"{lane}_table"


def lanes(settings: SessionsSettings) -> tuple[str, ...]:
    """Return the lanes that are topics."""
    return (*(KEYS if settings.dashboard_metrics else (SESSIONS,)), LATE, DEAD_LETTERS)
