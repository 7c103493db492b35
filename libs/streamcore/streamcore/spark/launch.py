"""Runs an app in this process: creates its topics, session and runner, and drains it on SIGTERM."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

from streamcore.app import App
from streamcore.outages import OUTAGES
from streamcore.spark.runtime import Runtime

if TYPE_CHECKING:
    from streamcore.engine.report import Listeners
    from streamcore.kafka.topics import TopicSpec
    from streamcore.spark.runner import RunSettings

_BROKER_WAIT_MS = 60_000


def run_app(app: App, settings: RunSettings, listeners: Listeners | None = None) -> None:
    """Run the app until SIGTERM or SIGINT; block until it has drained. Raise ``StreamError`` if it fails for good.

    Missing topics that the app writes are created; event topics belong to their producers.
    """
    with Runtime(app.name, settings.checkpoint, settings.spark) as runtime:
        from streamcore.kafka.systems import broker_dependency
        from streamcore.kafka.topics import check_transaction_timeout, ensure_topics, wait_for_broker
        from streamcore.spark.runner import Runner

        with OUTAGES.attempt(broker_dependency(settings.kafka), "the first request"):
            wait_for_broker(settings.kafka, _BROKER_WAIT_MS)
        check_transaction_timeout(settings.kafka, settings.delivery.transaction_timeout_ms)
        ensure_topics(settings.kafka, own_topics(app, settings.markers_topic))
        runner = Runner(app, settings, runtime, listeners)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: runner.drain())
        runner.run()


def own_topics(app: App, markers_topic: str) -> list[TopicSpec]:
    """Return the specs of the topics that the app writes (lanes and markers) and of the control topic."""
    from streamcore.kafka.control_topic import control_topic
    from streamcore.kafka.topics import TopicSpec

    lanes = [TopicSpec(topic, 1) for topic in dict.fromkeys(app.lanes.values()) if topic != app.control_topic]
    return [*lanes, control_topic(app.control_topic), TopicSpec(markers_topic, 1, compacted=True)]
