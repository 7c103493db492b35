"""The ETL app: event topics in; clean rows out, to Kafka lanes and to tables.

::

    <topic 1> ─▶ map, validate ─┐
    <topic 2> ─▶ map, validate ─┼─▶ look up ─▶ deduplicate ─▶ derive ─▶ mask, route ─┬─▶ <app>.<route>   (Kafka)
    ...              │          ┘      │            │           ▲ │           │      └─▶ rows of a table (a sink)
                     ▼                 ▼            ▼           │ ▼           ▼
                     <app>.deadletters: why, and the record's own bytes       │
    <app>.control: lists ───────────────────────────────────────┘ answers ─▶ <app>.status
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import polars as pl

from headgate_etl.derive_with_lists import ANSWERS, DeriveOperatorFactory
from headgate_etl.documents import DeduplicateDocument, RouteTarget
from headgate_etl.http_lookup import enrichment
from headgate_etl.mapping_types import CODE, REASON
from headgate_etl.masking import mask_columns
from headgate_etl.plan import EtlPlan, build_plan
from headgate_etl.routing import RouteRows
from headgate_etl.settings import EtlSettings
from headgate_etl.sinks import factories
from streamcore.app import App
from streamcore.engine.report import Listeners
from streamcore.operators.deduplication.operator import DUPLICATES, WhenFull
from streamcore.service.build_runner import build_runner
from streamcore.spark.runner import Runner
from streamcore.spark.runtime import Runtime
from streamcore.topology.nodes import SinkNode, polars_dtype
from streamcore.topology.stream import Stream, operate, source
from streamcore.topology.topology import Topology
from streamcore.wire.lanes import STATUS
from streamcore.wire.raw import ORIGIN


def topology(settings: EtlSettings) -> Topology:
    """Build the topology of the document. ``ConfigError`` if it cannot run."""
    found = build_plan(settings)
    dead_letters: list[SinkNode] = []
    rows = [_keep_valid(_read(settings, found, number), dead_letters) for number in range(len(found.inputs))]
    clean = rows[0].union(*rows[1:]) if len(rows) > 1 else rows[0]
    if settings.lookup is not None:
        adds = {name: polars_dtype(found.model[name].type) for name in settings.lookup.adds}
        clean = clean.enrich(enrichment(settings.lookup, adds))
    if settings.deduplicate is not None:
        clean = _deduplicate(clean, settings.id, settings.deduplicate)
    duplicates = _duplicates_lane(clean, found, settings.deduplicate)
    clean, answers = _derive(clean, settings, found, dead_letters)
    routed = _route(clean, found, dead_letters)
    return Topology(settings.app, *routed, *duplicates, *dead_letters, *answers)


def _read(settings: EtlSettings, found: EtlPlan, number: int) -> Stream:
    """Map an input's events to rows of the model, or to the reason why they are none."""
    one = found.inputs[number]
    return source(one.schema, settings.watermark, format=one.format, raw=True).flat_map(one.phase)


def _keep_valid(rows: Stream, dead_letters: list[SinkNode]) -> Stream:
    """Keep the rows that did not fail; send the others to the dead-letter lane."""
    dead_letters.append(rows.filter(pl.col(CODE).is_not_null()).dead_letters(CODE, REASON))
    kept = [name for name in rows.schema if name not in (CODE, REASON)]
    return rows.filter(pl.col(CODE).is_null()).select(*kept)


def _deduplicate(rows: Stream, key: tuple[str, ...], document: DeduplicateDocument) -> Stream:
    return rows.key_by(*key).deduplicate(
        document.horizon_ms,
        name="deduplicate",
        max_ids=document.max_ids,
        when_full=WhenFull.FORGET_OLDEST if document.forget_oldest else WhenFull.PASS,
        keep_duplicates=document.duplicates_to is not None,
    )


def _duplicates_lane(rows: Stream, found: EtlPlan, document: DeduplicateDocument | None) -> list[SinkNode]:
    """Return the lane of duplicates, masked like all output."""
    if document is None or document.duplicates_to is None:
        return []
    masks = {name: mask for name, mask in found.masks.items() if name in rows.schema}
    return [rows.side(DUPLICATES).flat_map(partial(mask_columns, masks=masks)).sink(document.duplicates_to)]


def _derive(
    rows: Stream, settings: EtlSettings, found: EtlPlan, dead_letters: list[SinkNode]
) -> tuple[Stream, list[SinkNode]]:
    """With the fields that are computed, and the answers to records about lists."""
    if found.derived is None:
        return rows, []
    if not found.asks_lists:
        return _keep_valid(rows.flat_map(found.derived), dead_letters), []
    make = DeriveOperatorFactory(found.derived, found.lists)
    made = operate([rows.key_by(*settings.id)], "derive", make, name="derive", heard=True)
    return _keep_valid(made, dead_letters), [made.side(ANSWERS).sink(STATUS, key="rule")]


def _route(rows: Stream, found: EtlPlan, dead_letters: list[SinkNode]) -> list[SinkNode]:
    types = {field.name: field.type for field in found.model.values()}
    routed = rows.flat_map(RouteRows(types, found.routes, found.masks, found.otherwise))
    if found.otherwise is None:
        lost = routed.filter(pl.col(CODE).is_not_null()).select(CODE, REASON, *ORIGIN)
        dead_letters.append(lost.dead_letters(CODE, REASON))
    sinks = []
    for route in found.routes:
        taken = routed.filter(route.is_taken).select(*route.columns)
        sinks.append(
            taken.sink(route.name, key=route.key) if route.to is RouteTarget.KAFKA else taken.table(route.name)
        )
    return sinks


def build_app(settings: EtlSettings) -> App:
    """Build the app: the topology, its topics and its limits."""
    found = build_plan(settings)
    written = topology(settings)
    app = written.app(
        topics={one.schema.name: one.topic for one in found.inputs},
        lanes={lane: settings.lane_topic(lane) for lane in written.lanes},
        control_topic=settings.control_topic,
        shards=settings.shards,
        limits=settings.limits,
    )
    strict = [one.reject_extra_fields for one in found.inputs]
    sources = [replace(s, reject_extra_fields=reject) for s, reject in zip(app.sources, strict, strict=True)]
    return replace(app, sources=tuple(sources))


def build(settings: EtlSettings, start: Runtime, listeners: Listeners) -> Runner:
    """Put the app together."""
    sinks = [*factories(settings, topology(settings).table_columns)]
    return build_runner(build_app(settings), settings, start, listeners, sinks)
