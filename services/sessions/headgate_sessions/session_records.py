"""The columns of a session's record, and the aggregates that they are made from."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from headgate_sessions.settings import SessionsSettings
from streamcore.aggregates import Aggregate, Count, CountDistinct, First, Funnel, Last, Max, Sum, Ties
from streamcore.topology.stream import Stream


def session_aggregates(settings: SessionsSettings) -> Mapping[str, Aggregate]:
    """Return the aggregates over the events of a session. No result depends on the order of arrival: of events with the
    same time, ``Ties.VALUE`` takes the smallest value as the first and the largest as the last."""
    return {
        "events": Count(),
        "pages": CountDistinct("page", settings.max_pages),
        "funnel_step": Funnel("step", settings.funnel),
        "conversions": Count("conversion"),
        "revenue": Sum("money"),
        "currency": First("currency", Ties.VALUE),
        "first_page": First("page", Ties.VALUE),
        "last_page": Last("page", Ties.VALUE),
        "ended_at": Max("at"),
    }


def session_rows(sessions: Stream, settings: SessionsSettings) -> Stream:
    """Convert the revisions of sessions to records. ``session_id`` is the user and the start of the session's first
    revision."""
    bounce = (pl.col(settings.bounce.of) <= settings.bounce.at_most) & (pl.col("conversions") == 0)
    return sessions.select(
        _session_id("window_anchor").alias("session_id"),
        "user_id",
        pl.col("window_start").alias("started_at"),
        "ended_at",
        (pl.col("ended_at") - pl.col("window_start")).dt.total_milliseconds().alias("duration_ms"),
        "events",
        "pages",
        "first_page",
        "last_page",
        "funnel_step",
        (pl.col("conversions") > 0).alias("converted"),
        pl.col("revenue").fill_null(0),
        "currency",
        (bounce & ~pl.col("is_deleted")).alias("bounce"),
        "is_final",
        "is_deleted",
        _session_id("merged_into").alias("merged_into"),
        "revision",
    )


def _session_id(anchor: str) -> pl.Expr:
    """Return the id of the session with this anchor: ``<user>.<milliseconds since 1970>``; null without an anchor."""
    return pl.format("{}.{}", "user_id", pl.col(anchor).dt.epoch("ms"))
