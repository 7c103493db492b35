"""The rules app: event streams and published rules in; alerts, answers, late events and dead letters out.

::

    <stream topics> ─┐
    <app>.control   ─┼─▶ decode, route by key ─▶ rules kernel per shard ─▶ <app>.alerts, .shadow, .status,
    heartbeat       ─┘                                                     .decisions, .late, .deadletters
                                                                           (one transaction)

Sinks, such as a table of PostgreSQL or Iceberg, get alerts and decisions as rows, too, if the settings say so, before
Kafka.

Each shard has parts of decisions, one for each rule that fired at an event; the driver merges them into one record for
each event. With ``feature_stage`` a keyed stage in front of the kernel computes the features of other keys than their
rule's (``rulecore.feature_stage``). Events of a stream with ``deduplicate`` are routed by their id first, and their
repetitions end there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa

from headgate_rules.settings import RulesSettings
from headgate_rules.topics import LANES, ROW_LANES, find_lane_faults, lanes_of_sinks
from rulecore.alerts.alert_rows import alert_columns
from rulecore.alerts.decision_rows import decision_columns, merge_decisions_and_rows
from rulecore.alerts.decisions import DECISION_PARTS, merge_decisions
from rulecore.factory import LateEventWriter, RulesFactory, find_exchanges
from rulecore.key_columns import keep_keys
from rulecore.lists.routing import DATA_KEYS
from rulecore.settings import DispatchSettings, GroupSettings, StateBudgets
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.engine.deduplication.stage import add_deduplication
from streamcore.engine.published_streams import add_streams
from streamcore.engine.report import Listeners
from streamcore.errors import ConfigError
from streamcore.schema.published_document import PublishedDocument
from streamcore.service.build_runner import build_runner
from streamcore.service.config.sinks import sink_factories
from streamcore.spark.runner import Runner
from streamcore.spark.runtime import Runtime
from streamcore.wire.lanes import CONTROL, DECISIONS


def build_app(settings: RulesSettings) -> App:
    """Build the app, without sinks or runtime."""
    if faults := find_lane_faults(settings):
        raise ConfigError("\n".join(line for fault in faults for line in fault.lines()))
    in_files = tuple(
        stream.apply_to(Source(stream.stream_schema(), stream.topic, format=stream.input_format()))
        for stream in settings.streams
    )
    for source in in_files:
        if not source.schema.has_keys:
            raise ConfigError(
                f"stream {source.schema.name}: keys is missing; rules group events by the fields of a key, "
                "such as keys: [[customer]]; [[]] sends all events to one shard"
            )
    return _build(settings, in_files, ())


def _build(settings: RulesSettings, in_files: tuple[Source, ...], published: Sequence[PublishedDocument]) -> App:
    """Build the app with the streams of its files, those that were published while it ran, and the keys by which rules
    group. The files are read once: what is written into them later is for the next start."""
    sources = add_streams(in_files, published)
    further = dict(keys for one in published if (keys := one.further_keys) is not None)
    streams = tuple(
        RuleStream(one.schema, one.topic, keep_keys(one.schema, further.get(one.schema.name, ()))) for one in sources
    )
    row_lanes = lanes_of_sinks(settings)
    rules = RulesFactory(
        streams=streams,
        sources=sources,
        max_rules=settings.max_rules,
        groups=GroupSettings(distinct=settings.max_distinct),
        dispatch=DispatchSettings(compare_every_ms=settings.compare_every_ms, chosen=settings.max_chosen_events),
        max_matches=settings.max_matches,
        budgets=StateBudgets(
            rule_bytes=settings.max_rule_state_bytes,
            group_bytes=settings.max_group_state_bytes,
            shard_bytes=settings.max_shard_state_bytes,
        ),
        feature_stage=settings.feature_stage,
        alert_rows=tuple(lane for lane in row_lanes if lane != DECISIONS),
    )
    app = App(
        name=settings.app,
        sources=sources,
        control_topic=settings.control_topic,
        lanes={lane: settings.lane_topic(lane) for lane in LANES} | {CONTROL: settings.control_topic},
        tables=frozenset(ROW_LANES[lane] for lane in row_lanes),
        stages=(rules.for_features(), rules) if settings.feature_stage else (rules,),
        exchanges=tuple(find_exchanges(streams, feature_stage=settings.feature_stage)),
        shards=settings.shards,
        key_groups=settings.key_groups,
        watermark=settings.watermark,
        state=settings.state,
        limits=settings.limits,
        rebuild=partial(_build, settings, in_files),
        data_keys=DATA_KEYS,
        reads_of_all_stages=True,
        merges={DECISION_PARTS: merge_decisions_and_rows if DECISIONS in row_lanes else merge_decisions},
    )
    return add_deduplication(app, LateEventWriter(streams))


def table_columns() -> Mapping[str, pa.Schema]:
    """Return the columns of the rows of each lane that sinks take."""
    return {rows: decision_columns() if lane == DECISIONS else alert_columns() for lane, rows in ROW_LANES.items()}


def create_runner(settings: RulesSettings, runtime: Runtime, listeners: Listeners) -> Runner:
    """Create the runner of the app and its sinks."""
    sinks = sink_factories(settings, table_columns())
    return build_runner(build_app(settings), settings, runtime, listeners, sinks)
