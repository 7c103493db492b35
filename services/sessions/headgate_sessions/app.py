"""The sessions app: events in; sessions and metrics for a dashboard out.

::

    <stream topic> ─▶ decode, compute ─▶ deduplicate by event id ─┬▶ by user: sessions ──▶ <app>.sessions
                                                                  ├▶ by minute ──────────▶ <app>.activity, <app>.revenue
                                                                  └▶ in sliding windows ─▶ <app>.active, <app>.top
    late events ─▶ <app>.late         records that fail ─▶ <app>.deadletters            (one transaction)

Sinks, such as a table of PostgreSQL or Iceberg, get the rows of the lanes that the settings name there, before Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from headgate_sessions.dashboard_metrics import dashboard_metrics
from headgate_sessions.plan import AT, EVENT_ID, GAP, PERIOD, USER, SessionPlan, build_plan
from headgate_sessions.session_records import session_rows
from headgate_sessions.settings import SessionsSettings
from headgate_sessions.topics import KEYS, SESSIONS
from rulecore.mapping.failed_rows import keep_valid
from streamcore.app import App, Source
from streamcore.durations import Milliseconds
from streamcore.errors import ConfigError
from streamcore.service.config.sinks import named_lanes, sink_factories
from streamcore.service.live_documents import StreamDocuments, bind_app, build_with_streams
from streamcore.topology.nodes import SinkNode
from streamcore.topology.stream import Stream, source
from streamcore.topology.topology import Topology
from streamcore.windowing import RevisionPolicy, Session
from streamcore.wire.lanes import LATE, table_lane
from streamcore.wire.raw import ORIGIN

if TYPE_CHECKING:
    from streamcore.engine.report import Listeners
    from streamcore.spark.runner import Runner
    from streamcore.spark.runtime import Runtime


def build_topology(settings: SessionsSettings, given: Source | None = None) -> Topology:
    """Build the topology. A lane that a sink of the settings names is in it twice: as records, and as rows.

    ``given``: the stream and its format; None: those of the settings.
    """
    found = given or _make_source(settings)
    plan = build_plan(settings, found.schema)
    dead_letters: list[SinkNode] = []
    read = source(plan.schema, settings.watermark, format=found.format, raw=True)
    events = keep_valid(read.flat_map(plan.events), dead_letters)
    if settings.deduplicates:
        by_id = events.key_by(EVENT_ID)
        events = by_id.deduplicate(Milliseconds(settings.deduplicate_ms), max_ids=settings.max_ids, late_to=LATE)
    sessions = session_rows(build_sessions(events, settings, plan), plan)
    lanes = {SESSIONS: sessions, **dashboard_metrics(events, settings)}
    sinks = [rows.sink(lane, key=KEYS[lane]) for lane, rows in lanes.items()]
    return Topology(settings.app, *sinks, *dead_letters, *_table_sinks(lanes, settings))


def _table_sinks(lanes: Mapping[str, Stream], settings: SessionsSettings) -> list[SinkNode]:
    """Return the lanes whose rows go to sinks. ``ConfigError`` names an entry of a sink whose lane does not exist."""
    available = {table_lane(lane): rows for lane, rows in lanes.items()}
    requested = dict.fromkeys(lane for _, lane in named_lanes(settings))
    for path, lane in named_lanes(settings):
        if lane not in available:
            raise ConfigError(f"{path}: there is no lane {lane!r}; there are {', '.join(available)}")
    return [available[lane].table(lane) for lane in requested]


def build_sessions(events: Stream, settings: SessionsSettings, plan: SessionPlan) -> Stream:
    """Return the revisions of the sessions, which are built from the events that have a user."""
    gap = None if settings.gap.expression is None else GAP
    read = {USER, GAP, *plan.inputs, *ORIGIN}
    of_users = events.filter(pl.col(USER).is_not_null()).select(*(name for name in events.schema if name in read))
    if settings.max_length_ms is None:
        by_user = of_users.key_by(USER)
    else:  # events on two sides of a multiple of it have two keys, so no event can join their sessions
        by_user = of_users.map(**{PERIOD: pl.col(AT).dt.epoch("ms") // settings.max_length_ms}).key_by(USER, PERIOD)
    windows = by_user.window(Session(Milliseconds(settings.gap.gap_ms), gap))
    policy = RevisionPolicy(Milliseconds(settings.early_ms), at_end=settings.early_ms > 0)
    return (
        windows.allowed_lateness(Milliseconds(settings.lateness_ms))
        .late_to(LATE)
        .revise(policy, SESSIONS, **plan.aggregates)
    )


def build_app(settings: SessionsSettings) -> App:
    """Build the app, without sinks or runtime."""
    return build_with_streams([_make_source(settings)], partial(_build_with, settings))


def _make_source(settings: SessionsSettings) -> Source:
    stream = settings.stream
    return stream.apply_to(Source(stream.stream_schema(), stream.topic, format=stream.input_format()))


def _build_with(settings: SessionsSettings, documents: StreamDocuments) -> App:
    (found,) = documents.sources
    return bind_app(build_topology(settings, found), settings, documents.sources, documents)


def create_runner(settings: SessionsSettings, runtime: Runtime, listeners: Listeners) -> Runner:
    """Create the runner of the app and its sinks."""
    from streamcore.service.build_runner import (
        build_runner,
    )  # loads Spark, which an app that is only built does not need

    sinks = sink_factories(settings, build_topology(settings).table_columns)
    return build_runner(build_app(settings), settings, runtime, listeners, sinks)
