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

from headgate_etl.deriving import ANSWERS, MakeDeriving
from headgate_etl.lookup import enrichment
from headgate_etl.masking import masked
from headgate_etl.phase import CODE, REASON
from headgate_etl.plan import Plan, plan
from headgate_etl.routing import Routing
from headgate_etl.settings import DeduplicateDocument, EtlSettings, Target
from headgate_etl.sinks import factories
from streamcore.app import App
from streamcore.lanes import STATUS
from streamcore.operators.deduplicate import DUPLICATES, WhenFull
from streamcore.raw import ORIGIN
from streamcore.service.running import build_runner
from streamcore.spark.runner import Listeners, Runner
from streamcore.spark.start import Start
from streamcore.topology.nodes import Sink, dtype_of
from streamcore.topology.stream import Stream, operate, source
from streamcore.topology.topology import Topology


def topology(settings: EtlSettings) -> Topology:
    """The document as a topology. ``ConfigError`` for what cannot run."""
    found = plan(settings)
    letters: list[Sink] = []
    rows = [_sound(_read(settings, found, number), letters) for number in range(len(found.inputs))]
    clean = rows[0].union(*rows[1:]) if len(rows) > 1 else rows[0]
    if settings.lookup is not None:
        adds = {name: dtype_of(found.model[name].type) for name in settings.lookup.adds}
        clean = clean.enrich(enrichment(settings.lookup, adds))
    if settings.deduplicate is not None:
        clean = _deduplicated(clean, settings.id, settings.deduplicate)
    again = _again(clean, found, settings.deduplicate)
    clean, answers = _derived(clean, settings, found, letters)
    routed = _routed(clean, found, letters)
    return Topology(settings.app, *routed, *again, *letters, *answers)


def _read(settings: EtlSettings, found: Plan, number: int) -> Stream:
    """An input's events as rows of the model, or with the reason why they are not."""
    one = found.inputs[number]
    return source(one.schema, settings.watermark, format=one.format, raw=True).flat_map(one.phase)


def _sound(rows: Stream, letters: list[Sink]) -> Stream:
    """The rows that did not fail; the others end among the dead letters."""
    letters.append(rows.filter(pl.col(CODE).is_not_null()).dead_letters(CODE, REASON))
    kept = [name for name in rows.schema if name not in (CODE, REASON)]
    return rows.filter(pl.col(CODE).is_null()).select(*kept)


def _deduplicated(rows: Stream, key: tuple[str, ...], document: DeduplicateDocument) -> Stream:
    return rows.key_by(*key).deduplicate(
        document.horizon_ms,
        name="deduplicate",
        max_ids=document.max_ids,
        when_full=WhenFull.FORGET_OLDEST if document.forget_oldest else WhenFull.PASS,
        keep_duplicates=document.duplicates_to is not None,
    )


def _again(rows: Stream, found: Plan, document: DeduplicateDocument | None) -> list[Sink]:
    """The lane of duplicates, masked as all that leaves."""
    if document is None or document.duplicates_to is None:
        return []
    masks = {name: mask for name, mask in found.masks.items() if name in rows.schema}
    return [rows.side(DUPLICATES).flat_map(partial(masked, masks=masks)).sink(document.duplicates_to)]


def _derived(rows: Stream, settings: EtlSettings, found: Plan, letters: list[Sink]) -> tuple[Stream, list[Sink]]:
    """With the fields that are computed, and the answers to records about lists."""
    if found.derived is None:
        return rows, []
    if not found.asks_lists:
        return _sound(rows.flat_map(found.derived), letters), []
    make = MakeDeriving(found.derived, found.lists)
    made = operate([rows.key_by(*settings.id)], "derive", make, name="derive", heard=True)
    return _sound(made, letters), [made.side(ANSWERS).sink(STATUS, key="rule")]


def _routed(rows: Stream, found: Plan, letters: list[Sink]) -> list[Sink]:
    types = {field.name: field.type for field in found.model.values()}
    routed = rows.flat_map(Routing(types, found.routes, found.masks, found.otherwise))
    if found.otherwise is None:
        lost = routed.filter(pl.col(CODE).is_not_null()).select(CODE, REASON, *ORIGIN)
        letters.append(lost.dead_letters(CODE, REASON))
    sinks = []
    for route in found.routes:
        taken = routed.filter(route.taken).select(*route.columns)
        sinks.append(taken.sink(route.name, key=route.key) if route.to is Target.KAFKA else taken.table(route.name))
    return sinks


def build_app(settings: EtlSettings) -> App:
    """The app: the topology, its topics and its limits."""
    found = plan(settings)
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


def build(settings: EtlSettings, start: Start, listeners: Listeners) -> Runner:
    """Put the app together."""
    sinks = [*factories(settings, topology(settings).table_columns)]
    return build_runner(build_app(settings), settings, start, listeners, sinks)
