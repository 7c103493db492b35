"""The sessions app: events in; sessions and metrics for a dashboard out.

::

    <stream topic> ─▶ decode, prepare ─▶ by event id: the first ─┬▶ by user: sessions ─────────────▶ <app>.sessions
                                                                 ├▶ by the minute ─▶ <app>.activity, <app>.revenue
                                                                 └▶ of late ───────▶ <app>.active, <app>.top
    what is late ─▶ <app>.late         what is no event ─▶ <app>.deadletters          (one transaction)

The lanes that the settings send to PostgreSQL hold the same rows, in a transaction of their own before that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from headgate_sessions.dashboard_metrics import dashboard_metrics
from headgate_sessions.event_columns import prepare_events
from headgate_sessions.session_records import session_aggregates, session_rows
from headgate_sessions.settings import SessionsSettings
from headgate_sessions.topics import KEYS, SESSIONS, table_lane
from streamcore.app import App
from streamcore.engine.report import Listeners
from streamcore.errors import ConfigError
from streamcore.service.build_runner import build_runner
from streamcore.service.config.sinks import sink_factory
from streamcore.spark.runner import Runner
from streamcore.spark.runtime import Runtime
from streamcore.topology.nodes import SinkNode
from streamcore.topology.stream import Stream, source
from streamcore.topology.topology import Topology
from streamcore.windowing import RevisionPolicy, Session
from streamcore.wire.lanes import LATE


def topology(settings: SessionsSettings) -> Topology:
    """Build the topology. Lanes that the database settings name appear a second time, as rows."""
    schema = settings.stream.stream_schema()
    events = prepare_events(source(schema, settings.watermark), settings, schema)
    if settings.deduplicate_ms:
        by_id = events.key_by("event_id")
        events = by_id.deduplicate(settings.deduplicate_ms, max_ids=settings.max_ids, late_to=LATE)
    lanes = {SESSIONS: session_rows(sessions(events, settings), settings), **dashboard_metrics(events, settings)}
    sinks = [rows.sink(lane, key=KEYS[lane]) for lane, rows in lanes.items()]
    return Topology(settings.app, *sinks, *_table_sinks(lanes, settings))


def _table_sinks(lanes: Mapping[str, Stream], settings: SessionsSettings) -> list[SinkNode]:
    """Return the lanes of rows that a database gets."""
    wanted = settings.postgres.tables if settings.postgres else {}
    known = {table_lane(lane): rows for lane, rows in lanes.items()}
    if unknown := sorted({*wanted} - {*known}):
        raise ConfigError(f"postgres.tables: there is no lane {unknown[0]!r}; there are {', '.join(known)}")
    return [known[lane].table(lane) for lane in wanted]


def sessions(events: Stream, settings: SessionsSettings) -> Stream:
    """Of the events that have a user."""
    of_users = events.filter(pl.col("user_id").is_not_null()).key_by("user_id")
    windows = of_users.window(Session(settings.gap.gap_ms, "gap_ms" if settings.gap.by_type else None))
    policy = RevisionPolicy(settings.early_ms, at_end=settings.early_ms > 0)
    return (
        windows.allowed_lateness(settings.lateness_ms)
        .late_to(LATE)
        .revise(policy, SESSIONS, **session_aggregates(settings))
    )


def build_app(settings: SessionsSettings) -> App:
    """Build the app."""
    return _app(topology(settings), settings)


def _app(graph: Topology, settings: SessionsSettings) -> App:
    stream = settings.stream
    app = graph.app(
        topics={source.name: stream.topic for source in graph.sources},
        lanes={lane: settings.lane_topic(lane) for lane in graph.lanes},
        control_topic=settings.control_topic,
        shards=settings.shards,
        limits=settings.limits,
    )
    (only,) = app.sources
    return replace(app, sources=(replace(only, reject_extra_fields=stream.reject_extra_fields),))


def build(settings: SessionsSettings, start: Runtime, listeners: Listeners) -> Runner:
    """Put the app together."""
    graph = topology(settings)
    sinks = [sink_factory(settings.postgres, graph.table_columns)] if settings.postgres else []
    return build_runner(_app(graph, settings), settings, start, listeners, sinks)
