"""The search app: product changes and the shop's events in; documents for an index out.

::

    <products> ─▶ check ──────────────────────────────▶ latest change ─┐
    <events>   ─▶ counted ones ─▶ rolling totals per span ─────────────┴▶ latest of both ─▶ documents (sink)
                                        │ too old: <app>.late              paced by the    <app>.changes
                       cannot be used: <app>.deadletters                   clock
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from headgate_search.popularity import IS_COUNTED, MEASURES, is_inactive, to_amounts
from headgate_search.products import CODE, FIELDS, LOG_POSITION, REASON, add_faults, to_documents
from headgate_search.settings import DOCUMENTS, SearchSettings
from headgate_search.topics import CHANGES
from rulecore.documents.status import answer_record
from streamcore.app import App, Source
from streamcore.durations import Milliseconds
from streamcore.operators.rolling.totals import RollingSpan
from streamcore.schema import StreamSchema
from streamcore.service.config.sinks import sink_factory
from streamcore.service.live_documents import StreamDocuments, bind_app, build_with_streams
from streamcore.topology.stream import source
from streamcore.topology.topology import Topology
from streamcore.wire.lanes import LATE

if TYPE_CHECKING:
    from streamcore.engine.report import Listeners
    from streamcore.spark.runner import Runner
    from streamcore.spark.runtime import Runtime


def build_topology(settings: SearchSettings, schemas: Sequence[StreamSchema] | None = None) -> Topology:
    """Build the topology that turns product changes and shop events into the rows of lane ``documents``.

    ``schemas``: of products and events; None: those of their files.
    """
    if schemas is None:
        schemas = [settings.products.stream_schema(), settings.events.stream_schema()]
    products, events = (source(schema, settings.watermark) for schema in schemas)

    spans = [RollingSpan(span.name, Milliseconds(span.span_ms), Milliseconds(span.step_ms)) for span in settings.spans]
    metric_columns = [f"{measure}_{span.name}" for span in spans for measure in MEASURES]
    popularity = (
        events.filter(IS_COUNTED)
        .flat_map(to_amounts)
        .key_by("id")
        .rolling(*spans, name="popularity", max_entries=settings.max_steps, late_to=LATE, **MEASURES)
        .map(inactive=is_inactive(metric_columns))
    )
    checked = products.flat_map(add_faults)
    unusable = checked.filter(pl.col(REASON).is_not_null()).dead_letters(CODE, REASON)
    product_changes = checked.filter(pl.col(REASON).is_null()).flat_map(to_documents)
    joined = replace(product_changes.key_by("id").join(popularity.key_by("id")), max_rows=settings.max_products)
    latest = joined.latest(
        deleted="deleted",
        right_deleted="inactive",
        order=LOG_POSITION,
        refresh_ms=Milliseconds(settings.refresh_ms),
        name="documents",
    )
    documents = latest.select("id", "deleted", *FIELDS, "updated_at", *map(_metric_or_default, metric_columns))
    changes_lane = (documents.sink(CHANGES, key="id"),) if settings.publish_changes else ()
    return Topology(settings.app, documents.table(DOCUMENTS), *changes_lane, unusable)


def _metric_or_default(name: str) -> pl.Expr:
    """Return the metric: 0 for a product without counted events, null for a deleted product."""
    return pl.when(~pl.col("deleted")).then(pl.col(name).fill_null(0)).alias(name)


def build_app(settings: SearchSettings) -> App:
    """Build the app, without sinks or runtime."""
    streams = (settings.products, settings.events)
    in_files = [one.apply_to(Source(one.stream_schema(), one.topic)) for one in streams]
    return build_with_streams(in_files, partial(_build_with, settings), answer_record)


def _build_with(settings: SearchSettings, documents: StreamDocuments) -> App:
    schemas = [each.schema for each in documents.sources]
    return bind_app(build_topology(settings, schemas), settings, documents.sources, documents)


def create_runner(settings: SearchSettings, runtime: Runtime, listeners: Listeners) -> Runner:
    """Create the runner of the app and its OpenSearch sink."""
    from streamcore.service.build_runner import (
        build_runner,
    )  # loads Spark, which an app that is only built does not need

    topology = build_topology(settings)
    sinks = [sink_factory(settings.opensearch, topology.table_columns)]
    return build_runner(build_app(settings), settings, runtime, listeners, sinks)
