"""The rules app: event streams and published rules in; alerts, answers, late events and dead letters out.

::

    <stream topics> ─┐
    <app>.control   ─┼─▶ decode, route by key ─▶ rules kernel per shard ─▶ <app>.alerts, .shadow, .status,
    heartbeat       ─┘                                                     .late, .deadletters  (one transaction)
"""

from __future__ import annotations

from headgate_rules.settings import RulesSettings
from headgate_rules.topics import LANES, topics
from rulecore.factory import RulesFactory, RuleStream
from rulecore.settings import GroupSettings, OutletSettings
from streamcore.app import App, Source
from streamcore.kafka.topics import check_transaction_timeout, ensure_topics, wait_for_broker
from streamcore.spark.runner import Listeners, Runner, RunSettings
from streamcore.spark.start import Start

_BROKER_WAIT_MS = 60_000


def build_app(settings: RulesSettings) -> App:
    """The topology, as a value."""
    schemas = [(stream, stream.schema_of()) for stream in settings.streams]
    return App(
        name=settings.app,
        sources=tuple(Source(schema, stream.topic, stream.reject_extra_fields) for stream, schema in schemas),
        control_topic=settings.control_topic,
        lanes={lane: settings.lane_topic(lane) for lane in LANES},
        stages=(
            RulesFactory(
                streams=tuple(RuleStream(schema, stream.topic) for stream, schema in schemas),
                max_rules=settings.max_rules,
                groups=GroupSettings(distinct=settings.max_distinct),
                outlet=OutletSettings(compare_every_ms=settings.compare_every_ms),
                max_matches=settings.max_matches,
                shards=settings.shards,
            ),
        ),
        shards=settings.shards,
        watermark=settings.watermark,
        limits=settings.limits,
    )


def build_runner(settings: RulesSettings, start: Start, listeners: Listeners) -> Runner:
    """Make sure of the broker and the topics, and put the app together."""
    kafka = settings.kafka.settings()
    run = RunSettings(
        kafka=kafka,
        checkpoint=settings.checkpoint,
        spark=settings.spark_session,
        markers_topic=settings.markers_topic,
        trigger_ms=settings.trigger_ms,
        starting_offsets=settings.starting_offsets,
    )
    wait_for_broker(kafka, _BROKER_WAIT_MS)
    check_transaction_timeout(kafka, run.delivery.transaction_timeout_ms)
    ensure_topics(kafka, topics(settings))
    return Runner(build_app(settings), run, start, listeners)
