"""The search app: changes of documents and events to count in; documents for an index out.

::

    <documents 1> ─▶ map, check ─▶ latest change by id ─┐
    <documents n> ─▶ map, check ─▶ latest change by id ─┼▶ latest of all ─▶ documents (sink)
    <counters>    ─▶ counted ones ─▶ rolling totals ────┘  counts are       <app>.changes
                                        │ too old: <app>.late    paced by the clock
                       cannot be used: <app>.deadletters
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from headgate_search.changes import DELETED, ID, LOG_POSITION, is_inactive
from headgate_search.plan import SearchPlan, build_plan, counted_columns, read_sources
from headgate_search.settings import DOCUMENTS, SearchSettings
from headgate_search.topics import CHANGES
from rulecore.mapping.failed_rows import keep_valid
from streamcore.aggregates import Sum
from streamcore.app import App, Source
from streamcore.durations import Milliseconds
from streamcore.operators.rolling.decayed import half_life
from streamcore.operators.rolling.totals import RollingSpan
from streamcore.service.config.sinks import sink_factory
from streamcore.service.live_documents import StreamDocuments, bind_app, build_with_streams
from streamcore.topology.nodes import SinkNode, polars_dtype
from streamcore.topology.stream import Stream, source
from streamcore.topology.topology import Topology
from streamcore.wire.lanes import LATE
from streamcore.wire.raw import ORIGIN

if TYPE_CHECKING:
    from streamcore.engine.report import Listeners
    from streamcore.spark.runner import Runner
    from streamcore.spark.runtime import Runtime

_INACTIVE = "inactive"


def build_topology(settings: SearchSettings, sources: Sequence[Source] | None = None) -> Topology:
    """Build the topology that turns changes and events into the rows of lane ``documents``. ``ConfigError`` lists every
    entry that is wrong.

    ``sources``: as ``read_sources`` returns them; None: those of the files.
    """
    plan = build_plan(settings, sources)
    streams = [source(each.schema, settings.watermark, format=each.format, raw=True) for each in plan.sources]
    dead_letters: list[SinkNode] = []
    changes = [
        keep_valid(streams[each.source].flat_map(each.changes), dead_letters, without=ORIGIN) for each in plan.documents
    ]
    tables = [
        _Table(rows, each.changes.fields, DELETED, LOG_POSITION, partial=each.partial)
        for rows, each in zip(changes[1:], plan.documents[1:], strict=True)
    ]
    if plan.counters:
        counts = _count(streams, settings, plan, dead_letters)
        tables.append(_Table(counts, tuple(counted_columns(settings, plan)), _INACTIVE, None))
    documents = _join(changes[0], tables, settings, plan)
    changes_lane = (documents.sink(CHANGES, key=ID),) if settings.publish_changes else ()
    return Topology(settings.app, documents.table(DOCUMENTS), *changes_lane, *dead_letters)


@dataclass(frozen=True)
class _Table:
    """What adds ``columns`` to documents by id. ``deleted``: the column that marks a deletion, in the join; ``order``:
    columns that order changes of one event time, None: the last to arrive counts, and the clock paces them."""

    rows: Stream
    columns: tuple[str, ...]
    deleted: str
    order: tuple[str, ...] | None
    partial: bool = False


def _join(changes: Stream, tables: Sequence[_Table], settings: SearchSettings, plan: SearchPlan) -> Stream:
    """Return the latest documents with the columns of the tables."""
    first = plan.documents[0]
    columns = first.changes.fields
    order: tuple[str, ...] = LOG_POSITION
    if not tables:  # the join also finds the latest change of a document that nothing is added to
        nothing = changes.filter(pl.lit(value=False)).select(ID, DELETED)
        tables = [_Table(nothing, (), DELETED, ())]
    documents = changes
    summed = {f"{name}_{span.name}" for span in settings.spans for name in plan.counts}
    for number, table in enumerate(tables, 1):
        joined = replace(documents.key_by(ID).join(table.rows.key_by(ID)), max_rows=settings.max_documents)
        latest = joined.latest(
            deleted=DELETED,
            right_deleted=table.deleted,
            order=order,
            right_order=table.order,
            keeps=columns if number == 1 and first.partial else (),
            right_keeps=table.columns if table.partial else (),
            refresh_ms=Milliseconds(settings.refresh_ms if table.order is None else 0),
            name="documents" if number == len(tables) else f"documents-{number}",
        )
        added = [_count_or_default(name) if name in summed else pl.col(name) for name in table.columns]
        documents, order = latest.select(ID, DELETED, *columns, *added), ()
        columns = (*columns, *table.columns)
    return documents


def _count_or_default(name: str) -> pl.Expr:
    """Return the count: 0 for a document without counted events, null for a deleted one."""
    return pl.when(~pl.col(DELETED)).then(pl.col(name).fill_null(0)).alias(name)


def _count(
    streams: Sequence[Stream], settings: SearchSettings, plan: SearchPlan, dead_letters: list[SinkNode]
) -> Stream:
    """Return the rolling totals of each document."""
    parts = []
    for counter in plan.counters:
        valid = keep_valid(streams[counter.source].flat_map(counter.stage), dead_letters, without=ORIGIN)
        has_count = pl.any_horizontal(pl.col(name).is_not_null() for name in counter.counts)
        missing = {
            name: pl.lit(None, polars_dtype(type_)) for name, type_ in plan.counts.items() if name not in counter.counts
        }
        parts.append(valid.filter(pl.col(ID).is_not_null() & has_count).map(**missing).select(ID, *plan.counts))
    events = parts[0].union(*parts[1:]) if len(parts) > 1 else parts[0]
    spans = [RollingSpan(span.name, Milliseconds(span.span_ms), Milliseconds(span.step_ms)) for span in settings.spans]
    spans += [half_life(each.name, each.half_life_ms) for each in settings.half_lives]
    sums = {name: Sum(name) for name in plan.counts}
    totals = events.key_by(ID).rolling(*spans, name="counts", max_entries=settings.max_steps, late_to=LATE, **sums)
    return totals.map(**{_INACTIVE: is_inactive(counted_columns(settings, plan))})


def build_app(settings: SearchSettings) -> App:
    """Build the app, without sinks or runtime."""
    return build_with_streams(read_sources(settings), partial(_build_with, settings))


def _build_with(settings: SearchSettings, documents: StreamDocuments) -> App:
    return bind_app(build_topology(settings, documents.sources), settings, documents.sources, documents)


def create_runner(settings: SearchSettings, runtime: Runtime, listeners: Listeners) -> Runner:
    """Create the runner of the app and its OpenSearch sink."""
    from streamcore.service.build_runner import (
        build_runner,
    )  # loads Spark, which an app that is only built does not need

    topology = build_topology(settings)
    sinks = [sink_factory(settings.opensearch, topology.table_columns)]
    return build_runner(build_app(settings), settings, runtime, listeners, sinks)
