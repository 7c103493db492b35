"""Metrics for a dashboard, as streams.

Counts per minute are emitted early, during the minute, and corrected by later revisions. Metrics of sliding windows are
emitted once, when the watermark has passed the window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from headgate_sessions.plan import AMOUNT, CURRENCY, PAGE, USER
from headgate_sessions.settings import DashboardMetricsDocument, SessionsSettings
from headgate_sessions.topics import ACTIVE, ACTIVITY, REVENUE, TOP, row_lanes
from streamcore.aggregates import ApproxDistinct, Count, Sum, TopN
from streamcore.durations import Milliseconds
from streamcore.topology.stream import Stream
from streamcore.windowing import RevisionPolicy, Sliding, Tumbling


def dashboard_metrics(events: Stream, settings: SessionsSettings) -> Mapping[str, Stream]:
    """Return the stream of each metric, by lane; none if the settings turn metrics off."""
    metrics = settings.dashboard_metrics
    if metrics is None:
        return {}
    build: Mapping[str, Callable[[], Stream]] = {
        ACTIVITY: lambda: _activity(events, metrics, settings.lateness_ms),
        REVENUE: lambda: _revenue(events, metrics, settings.lateness_ms),
        ACTIVE: lambda: _active(events, metrics),
        TOP: lambda: _top(events, metrics),
    }
    return {lane: build[lane]() for lane in row_lanes(settings) if lane in build}


def _activity(events: Stream, metrics: DashboardMetricsDocument, lateness_ms: int) -> Stream:
    """Return the number of events and the approximate number of users of each minute."""
    minutes = (
        events.key_by().window(Tumbling(Milliseconds(metrics.every_ms))).allowed_lateness(Milliseconds(lateness_ms))
    )
    revisions = minutes.revise(
        RevisionPolicy(Milliseconds(metrics.early_ms), at_end=True),
        ACTIVITY,
        events=Count(),
        users=ApproxDistinct(USER),
    )
    return revisions.select(pl.col("window_start").alias("minute"), "events", "users", "is_final", "revision")


def _revenue(events: Stream, metrics: DashboardMetricsDocument, lateness_ms: int) -> Stream:
    """Return the revenue and the number of payments of each minute and currency."""
    money_events = (
        events.filter(pl.col(AMOUNT).is_not_null()).key_by(CURRENCY).window(Tumbling(Milliseconds(metrics.every_ms)))
    )
    revisions = money_events.allowed_lateness(Milliseconds(lateness_ms)).revise(
        RevisionPolicy(Milliseconds(metrics.early_ms), at_end=True), REVENUE, revenue=Sum(AMOUNT), payments=Count()
    )
    return revisions.select(
        pl.col("window_start").alias("minute"), "currency", "revenue", "payments", "is_final", "revision"
    )


def _active(events: Stream, metrics: DashboardMetricsDocument) -> Stream:
    """Return the approximate number of users of each sliding window."""
    windows = events.key_by().window(Sliding(Milliseconds(metrics.active_ms), Milliseconds(metrics.active_every_ms)))
    return windows.aggregate(ACTIVE, users=ApproxDistinct(USER)).select(
        pl.col("window_start").alias("since"), pl.col("window_end").alias("until"), "users"
    )


def _top(events: Stream, metrics: DashboardMetricsDocument) -> Stream:
    """Return the pages with the most events of each sliding window, by rank."""
    windows = (
        events.filter(pl.col(PAGE).is_not_null())
        .key_by(PAGE)
        .window(Sliding(Milliseconds(metrics.top_ms), Milliseconds(metrics.top_every_ms)))
    )
    # Sliding windows end at multiples of top_every_ms. So the counts of one sliding window, and no others, are in the
    # tumbling window of that length, where the ranking is made.
    pages = windows.aggregate("pages", events=Count()).select("page", "events", pl.col("window_end").alias("until"))
    rankings = pages.key_by("until").window(Tumbling(Milliseconds(metrics.top_every_ms)))
    ranked = rankings.aggregate(TOP, best=TopN("page", by="events", n=metrics.top))
    return ranked.flat_map(_ExplodeRanks(metrics.top_ms))


class _ExplodeRanks:
    """Turns a ranking into one row per rank. ``top_ms``: length of the ranked window."""

    def __init__(self, top_ms: int) -> None:
        self.top_ms = top_ms

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        since = pl.col("until") - pl.duration(milliseconds=self.top_ms)
        ranked = rows.with_columns(rank=pl.int_ranges(1, pl.col("best").list.len() + 1)).explode("best", "rank")
        engine = [name for name in rows.columns if name.startswith("__")]
        return ranked.select(
            since.cast(rows.schema["until"]).alias("since"),
            "until",
            "rank",
            pl.col("best").struct.field("page"),
            pl.col("best").struct.field("events"),
            *engine,
        )
