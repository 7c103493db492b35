"""A service's runner: make sure of the broker and the topics, and put the app together.

Imports Spark and all that a cut needs, which takes seconds; ``run_service`` does that while the JVM starts.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from streamcore.app import App
from streamcore.engine.report import Listeners
from streamcore.kafka.control_topic import disable_compaction
from streamcore.kafka.systems import broker_dependency
from streamcore.kafka.topics import check_transaction_timeout, ensure_topics, wait_for_broker
from streamcore.outages import OUTAGES
from streamcore.service.config.settings import ServiceSettings
from streamcore.service.topics import topics_of_service
from streamcore.sinks.sink import SinkFactory
from streamcore.spark.runner import Runner, RunSettings
from streamcore.spark.runtime import Runtime

_BROKER_WAIT_MS = 60_000
_LOG = logging.getLogger(__name__)


def build_runner(
    app: App, settings: ServiceSettings, start: Runtime, listeners: Listeners, sinks: Sequence[SinkFactory] = ()
) -> Runner:
    """Build the runner of ``app`` with a service's settings; make the topics that are missing.

    A control topic that is compacted is altered to keep everything.
    """
    run = RunSettings(
        kafka=settings.kafka,
        checkpoint=settings.checkpoint,
        spark=settings.spark_session,
        markers_topic=settings.markers_topic,
        trigger_ms=settings.trigger_ms,
        starting_offsets=settings.starting_offsets,
        ending_offsets=settings.ending_offsets,
        max_clock_ahead_ms=settings.max_clock_ahead_ms,
        mode=settings.checkpointing_mode,
        sinks=tuple(sinks),
        savepoints=settings.savepoints_root,
        registry=settings.schema_registry,
    )
    listeners.waiting(f"Kafka at {run.kafka.bootstrap}")
    with OUTAGES.attempt(broker_dependency(run.kafka), "the first request"):
        wait_for_broker(run.kafka, _BROKER_WAIT_MS)
    check_transaction_timeout(run.kafka, run.delivery.transaction_timeout_ms)
    if disable_compaction(run.kafka, settings.control_topic):
        _LOG.warning(
            "topic %s was compacted and now keeps everything: history before this start is not complete",
            settings.control_topic,
        )
    listeners.waiting("the topics of the app")
    ensure_topics(run.kafka, topics_of_service(settings, app.lanes))
    return Runner(app, run, start, listeners)
