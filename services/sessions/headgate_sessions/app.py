"""The sessions app: events in; sessions and metrics for a dashboard out.

::

    <stream topic> ─▶ decode, prepare ─▶ deduplicate by event id ─┬▶ by user: sessions ──▶ <app>.sessions
                                                                  ├▶ by minute ──────────▶ <app>.activity, <app>.revenue
                                                                  └▶ in sliding windows ─▶ <app>.active, <app>.top
    late events ─▶ <app>.late         undecodable records ─▶ <app>.deadletters          (one transaction)

PostgreSQL gets the rows of the lanes that the settings name, in a transaction of its own, before that of Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from headgate_sessions.dashboard_metrics import dashboard_metrics
from headgate_sessions.event_columns import prepare_events
from headgate_sessions.session_records import session_aggregates, session_rows
from headgate_sessions.settings import SessionsSettings
from headgate_sessions.topics import KEYS, SESSIONS, table_lane
from rulecore.documents.status import answer_record
from streamcore.app import App, Source
from streamcore.durations import Milliseconds
from streamcore.errors import ConfigError
from streamcore.schema import StreamSchema
from streamcore.service.config.sinks import sink_factory
from streamcore.service.live_documents import StreamDocuments, bind_app, build_with_streams
from streamcore.topology.nodes import SinkNode
from streamcore.topology.stream import Stream, source
from streamcore.topology.topology import Topology
from streamcore.windowing import RevisionPolicy, Session
from streamcore.wire.lanes import LATE

if TYPE_CHECKING:
    from streamcore.engine.report import Listeners
    from streamcore.spark.runner import Runner
    from streamcore.spark.runtime import Runtime


def build_topology(settings: SessionsSettings, schema: StreamSchema | None = None) -> Topology:
    """Build the topology. A lane that ``postgres.tables`` names is in it twice: as records, and as rows of a table.

    ``schema``: of the stream; None: that of its file.
    """
    schema = schema or settings.stream.stream_schema()
    events = prepare_events(source(schema, settings.watermark), settings, schema)
    if settings.deduplicate_ms:
        by_id = events.key_by("event_id")
        events = by_id.deduplicate(Milliseconds(settings.deduplicate_ms), max_ids=settings.max_ids, late_to=LATE)
    lanes = {SESSIONS: session_rows(build_sessions(events, settings), settings), **dashboard_metrics(events, settings)}
    sinks = [rows.sink(lane, key=KEYS[lane]) for lane, rows in lanes.items()]
    return Topology(settings.app, *sinks, *_table_sinks(lanes, settings))


def _table_sinks(lanes: Mapping[str, Stream], settings: SessionsSettings) -> list[SinkNode]:
    """Return the lanes whose rows go to PostgreSQL. ``ConfigError`` names a table whose lane does not exist."""
    requested = settings.postgres.tables if settings.postgres else {}
    available = {table_lane(lane): rows for lane, rows in lanes.items()}
    if unknown := sorted({*requested} - {*available}):
        raise ConfigError(f"postgres.tables: there is no lane {unknown[0]!r}; there are {', '.join(available)}")
    return [available[lane].table(lane) for lane in requested]


def build_sessions(events: Stream, settings: SessionsSettings) -> Stream:
    """Return the revisions of the sessions, which are built from the events that have a user."""
    user_events = events.filter(pl.col("user_id").is_not_null()).key_by("user_id")
    windows = user_events.window(Session(Milliseconds(settings.gap.gap_ms), "gap_ms" if settings.gap.by_type else None))
    policy = RevisionPolicy(Milliseconds(settings.early_ms), at_end=settings.early_ms > 0)
    return (
        windows.allowed_lateness(Milliseconds(settings.lateness_ms))
        .late_to(LATE)
        .revise(policy, SESSIONS, **session_aggregates(settings))
    )


def build_app(settings: SessionsSettings) -> App:
    """Build the app, without sinks or runtime."""
    stream = settings.stream
    in_file = stream.apply_to(Source(stream.stream_schema(), stream.topic))
    return build_with_streams([in_file], partial(_build_with, settings), answer_record)


def _build_with(settings: SessionsSettings, documents: StreamDocuments) -> App:
    (found,) = documents.sources
    return bind_app(build_topology(settings, found.schema), settings, documents.sources, documents)


def create_runner(settings: SessionsSettings, runtime: Runtime, listeners: Listeners) -> Runner:
    """Create the runner of the app and its sinks."""
    from streamcore.service.build_runner import (
        build_runner,
    )  # loads Spark, which an app that is only built does not need

    topology = build_topology(settings)
    sinks = [sink_factory(settings.postgres, topology.table_columns)] if settings.postgres else []
    return build_runner(build_app(settings), settings, runtime, listeners, sinks)
