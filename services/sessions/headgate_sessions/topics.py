"""The lanes of the sessions app. Unlike ``app``, this module does not import Spark."""

from __future__ import annotations

from collections.abc import Mapping

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


def row_lanes(settings: SessionsSettings) -> Mapping[str, tuple[str, ...]]:
    """Return the lanes of rows that the settings ask for, with their keys."""
    metrics = settings.dashboard_metrics
    absent = {ACTIVITY, ACTIVE, REVENUE, TOP} if metrics is None else set()
    if metrics is not None:
        absent = {lane for lane, value in ((REVENUE, metrics.amount), (TOP, metrics.page)) if value is None}
    return {lane: key for lane, key in KEYS.items() if lane not in absent}


def lanes(settings: SessionsSettings) -> tuple[str, ...]:
    """Return the lanes that are topics."""
    return (*row_lanes(settings), LATE, DEAD_LETTERS, STATUS)
