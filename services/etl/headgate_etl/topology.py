"""The topology of the ETL app: what its document describes, from input topics to routes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import polars as pl

from headgate_etl.derive_with_lists import REPLIES, DeriveOperatorFactory
from headgate_etl.documents import DeduplicateDocument, EtlDocument, RouteTarget
from headgate_etl.lookups import enrichment
from headgate_etl.masking import mask_columns
from headgate_etl.plan import EtlPlan, Input, build_plan
from headgate_etl.routing import RouteRows
from headgate_etl.table_lookup import look_up
from rulecore.mapping.failed_rows import keep_valid
from rulecore.mapping.types import CODE, REASON
from streamcore.app import Source
from streamcore.durations import Milliseconds
from streamcore.operators.deduplication.operator import DUPLICATES, WhenFull
from streamcore.topology.nodes import SinkNode, polars_dtype
from streamcore.topology.stream import Stream, operate, source
from streamcore.topology.topology import Topology
from streamcore.wire.lanes import STATUS
from streamcore.wire.raw import ORIGIN


def build_topology(settings: EtlDocument, sources: Sequence[Source] | None = None) -> Topology:
    """Build the topology that the settings describe. ``ConfigError`` lists every entry that is wrong.

    ``sources``: the streams and formats of the inputs, in their order; None: those of the files.
    """
    plan = build_plan(settings, sources)
    dead_letters: list[SinkNode] = []
    mapped = [keep_valid(_read_input(settings, each), dead_letters) for each in plan.inputs]
    clean = mapped[0].union(*mapped[1:]) if len(mapped) > 1 else mapped[0]
    for path, lookup in settings.all_lookups.items():
        if path in plan.tables:
            clean = look_up(clean, settings, path, plan.tables[path], dead_letters)
            continue
        adds = {name: polars_dtype(plan.model[name].type) for name in lookup.adds}
        clean = clean.enrich(enrichment(path.rpartition(".")[2], lookup, adds))
    if settings.deduplicate is not None:
        clean = _deduplicate(clean, settings.id, settings.deduplicate)
    duplicates = _duplicates_lane(clean, plan, settings.deduplicate)
    clean, replies = _derive(clean, settings, plan, dead_letters)
    routed = _route(clean, plan, dead_letters)
    return Topology(settings.app, *routed, *duplicates, *dead_letters, *replies)


def _read_input(settings: EtlDocument, source_input: Input) -> Stream:
    """Map the events of an input to rows of the model. A row that failed has ``CODE`` and ``REASON``."""
    events = source(source_input.schema, settings.watermark, format=source_input.format, raw=True)
    return events.flat_map(source_input.stage)


def _deduplicate(rows: Stream, key: tuple[str, ...], document: DeduplicateDocument) -> Stream:
    return rows.key_by(*key).deduplicate(
        Milliseconds(document.horizon_ms),
        name="deduplicate",
        max_ids=document.max_ids,
        when_full=WhenFull.FORGET_OLDEST if document.forget_oldest else WhenFull.PASS,
        keep_duplicates=document.duplicates_to is not None,
    )


def _duplicates_lane(rows: Stream, plan: EtlPlan, document: DeduplicateDocument | None) -> list[SinkNode]:
    """Return the lane of duplicates, with personal fields masked; none if duplicates are only counted."""
    if document is None or document.duplicates_to is None:
        return []
    masks = {name: mask for name, mask in plan.masks.items() if name in rows.schema}
    return [rows.side(DUPLICATES).flat_map(partial(mask_columns, masks=masks)).sink(document.duplicates_to)]


def _derive(
    rows: Stream, settings: EtlDocument, plan: EtlPlan, dead_letters: list[SinkNode]
) -> tuple[Stream, list[SinkNode]]:
    """Add the derived fields; also return the lane of replies to control records about lists, if lists are used."""
    if plan.derived is None:
        return rows, []
    if not plan.uses_lists:
        return keep_valid(rows.flat_map(plan.derived), dead_letters), []
    factory = DeriveOperatorFactory(plan.derived, plan.lists)
    derived = operate([rows.key_by(*settings.id)], "derive", factory, name="derive", control_input=True)
    return keep_valid(derived, dead_letters), [derived.side(REPLIES).sink(STATUS, key="rule")]


def _route(rows: Stream, plan: EtlPlan, dead_letters: list[SinkNode]) -> list[SinkNode]:
    """Return the lane of each route. Rows that no route takes go to ``otherwise``, or become dead letters."""
    types = {field.name: field.type for field in plan.model.values()}
    routed = rows.flat_map(RouteRows(types, plan.routes, plan.masks, plan.otherwise))
    if plan.otherwise is None:
        unrouted = routed.filter(pl.col(CODE).is_not_null()).select(CODE, REASON, *ORIGIN)
        dead_letters.append(unrouted.dead_letters(CODE, REASON))
    sinks = []
    for route in plan.routes:
        merged = [route.merge] if route.merge and route.merge not in route.columns else []
        route_rows = routed.filter(route.is_taken).select(*route.columns, *merged)
        sinks.append(
            SinkNode("", route_rows.port, route.name, route.key, merge=route.merge)
            if route.to is RouteTarget.KAFKA
            else route_rows.table(route.name)
        )
    return sinks
