"""The sessions app: events in; sessions and figures out.

::

    <stream topic> ─▶ decode, prepare ─▶ by event id: the first ─┬▶ by user: sessions ─────────────▶ <app>.sessions
                                                                 ├▶ by the minute ─▶ <app>.activity, <app>.revenue
                                                                 └▶ of late ───────▶ <app>.active, <app>.top
    what is late ─▶ <app>.late         what is no event ─▶ <app>.deadletters          (one transaction)

What the settings send to PostgreSQL are the same rows, in a transaction of its own before that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from headgate_sessions.events import prepared
from headgate_sessions.figures import figures
from headgate_sessions.records import kept, records
from headgate_sessions.settings import SessionsSettings
from headgate_sessions.topics import KEYS, SESSIONS, table_lane
from streamcore.app import App
from streamcore.errors import ConfigError
from streamcore.lanes import LATE
from streamcore.service.running import build_runner
from streamcore.spark.runner import Listeners, Runner
from streamcore.spark.start import Start
from streamcore.topology.nodes import Sink
from streamcore.topology.stream import Stream, source
from streamcore.topology.topology import Topology
from streamcore.windowing import Revising, Session


def topology(settings: SessionsSettings) -> Topology:
    """The topology, as a value. The lanes that settings of a database name are there a second time, as rows."""
    schema = settings.stream.schema_of()
    events = prepared(source(schema, settings.watermark), settings, schema)
    if settings.deduplicate_ms:
        by_id = events.key_by("event_id")
        events = by_id.deduplicate(settings.deduplicate_ms, max_ids=settings.max_ids, late_to=LATE)
    lanes = {SESSIONS: records(sessions(events, settings), settings), **figures(events, settings)}
    sinks = [rows.sink(lane, key=KEYS[lane]) for lane, rows in lanes.items()]
    return Topology(settings.app, *sinks, *_tables(lanes, settings))


def _tables(lanes: Mapping[str, Stream], settings: SessionsSettings) -> list[Sink]:
    """The lanes of rows that a database gets."""
    wanted = settings.postgres.tables if settings.postgres else {}
    known = {table_lane(lane): rows for lane, rows in lanes.items()}
    if unknown := sorted({*wanted} - {*known}):
        raise ConfigError(f"postgres.tables: there is no lane {unknown[0]!r}; there are {', '.join(known)}")
    return [known[lane].table(lane) for lane in wanted]


def sessions(events: Stream, settings: SessionsSettings) -> Stream:
    """Of the events that have a user."""
    of_users = events.filter(pl.col("user_id").is_not_null()).key_by("user_id")
    windows = of_users.window(Session(settings.gap.gap_ms, "gap_ms" if settings.gap.by_type else None))
    revising = Revising(settings.early_ms, at_end=settings.early_ms > 0)
    return windows.allowed_lateness(settings.lateness_ms).late_to(LATE).revise(revising, SESSIONS, **kept(settings))


def build_app(settings: SessionsSettings) -> App:
    """The app that runs it."""
    return _app(topology(settings), settings)


def _app(ways: Topology, settings: SessionsSettings) -> App:
    stream = settings.stream
    app = ways.app(
        topics={source.name: stream.topic for source in ways.sources},
        lanes={lane: settings.lane_topic(lane) for lane in ways.lanes},
        control_topic=settings.control_topic,
        shards=settings.shards,
        limits=settings.limits,
    )
    (only,) = app.sources
    return replace(app, sources=(replace(only, reject_extra_fields=stream.reject_extra_fields),))


def build(settings: SessionsSettings, start: Start, listeners: Listeners) -> Runner:
    """Put the app together."""
    ways = topology(settings)
    sinks = [settings.postgres.factory(ways.table_columns)] if settings.postgres else []
    return build_runner(_app(ways, settings), settings, start, listeners, sinks)
