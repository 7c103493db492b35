"""The search app: product changes and the shop's events in; documents for an index out.

::

    <products> ─▶ check ──────────────────────────────▶ latest change ─┐
    <events>   ─▶ what counts ─▶ rolling totals a span ───────────────┴▶ latest of both ─▶ documents (sink)
                                        │ too old: <app>.late              paced by the    <app>.changes
                       cannot be used: <app>.deadletters                   clock
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from headgate_search.popularity import COUNTS, MEASURES, is_inactive, weighted_events
from headgate_search.products import CODE, FIELDS, LOG_POSITION, REASON, as_documents, validated
from headgate_search.settings import DOCUMENTS, SearchSettings
from headgate_search.topics import CHANGES
from streamcore.app import App
from streamcore.engine.report import Listeners
from streamcore.operators.rolling.totals import RollingSpan
from streamcore.service.build_runner import build_runner
from streamcore.service.config.sinks import sink_factory
from streamcore.spark.runner import Runner
from streamcore.spark.runtime import Runtime
from streamcore.topology.stream import source
from streamcore.topology.topology import Topology
from streamcore.wire.lanes import LATE


def build_topology(settings: SearchSettings) -> Topology:
    """From changes and events to documents."""
    products = source(settings.products.stream_schema(), settings.watermark)
    events = source(settings.events.stream_schema(), settings.watermark)

    spans = [RollingSpan(span.name, span.span_ms, span.step_ms) for span in settings.spans]
    metric_columns = [f"{measure}_{span.name}" for span in spans for measure in MEASURES]
    popularity = (
        events.filter(COUNTS)
        .flat_map(weighted_events)
        .key_by("id")
        .rolling(*spans, name="popularity", max_entries=settings.max_steps, late_to=LATE, **MEASURES)
        .map(quiet=is_inactive(metric_columns))
    )
    verdicts = products.flat_map(validated)
    unusable = verdicts.filter(pl.col(REASON).is_not_null()).dead_letters(CODE, REASON)
    changes = verdicts.filter(pl.col(REASON).is_null()).flat_map(as_documents)
    joined = replace(changes.key_by("id").join(popularity.key_by("id")), max_rows=settings.max_products)
    latest = joined.latest(
        deleted="deleted", right_deleted="quiet", order=LOG_POSITION, refresh_ms=settings.refresh_ms, name="documents"
    )
    documents = latest.select("id", "deleted", *FIELDS, "updated_at", *map(_metric_or_zero, metric_columns))
    changes_lane = (documents.sink(CHANGES, key="id"),) if settings.publish_changes else ()
    return Topology(settings.app, documents.table(DOCUMENTS), *changes_lane, unusable)


def _metric_or_zero(name: str) -> pl.Expr:
    """Zero where nothing is known of a product that is there."""
    return pl.when(~pl.col("deleted")).then(pl.col(name).fill_null(0)).alias(name)


def build_app(settings: SearchSettings) -> App:
    """Build the app."""
    return _app(build_topology(settings), settings)


def _app(topology: Topology, settings: SearchSettings) -> App:
    app = topology.app(
        topics={stream.stream_schema().name: stream.topic for stream in (settings.products, settings.events)},
        lanes={lane: settings.lane_topic(lane) for lane in topology.lanes},
        control_topic=settings.control_topic,
        shards=settings.shards,
        limits=settings.limits,
    )
    strict = {one.topic for one in (settings.products, settings.events) if one.reject_extra_fields}
    return replace(app, sources=tuple(replace(s, reject_extra_fields=s.topic in strict) for s in app.sources))


def build(settings: SearchSettings, start: Runtime, listeners: Listeners) -> Runner:
    """Put the app together."""
    topology = build_topology(settings)
    sinks = [sink_factory(settings.opensearch, topology.table_columns)]
    return build_runner(_app(topology, settings), settings, start, listeners, sinks)
