"""The topics of the rules app. Apart from the app, so that who only needs their names does not import Spark."""

from __future__ import annotations

from headgate_rules.settings import RulesSettings
from streamcore.kafka.control import control_topic
from streamcore.kafka.topics import TopicSpec
from streamcore.lanes import ALERTS, DEAD_LETTERS, LATE, SHADOW, STATUS

LANES = (ALERTS, SHADOW, STATUS, LATE, DEAD_LETTERS)


def topics(settings: RulesSettings) -> list[TopicSpec]:
    """The topics that the app writes, and the control topic. Event topics belong to their producers."""
    lanes = [
        TopicSpec(settings.lane_topic(lane), settings.output_partitions, retention_ms=settings.output_retention_ms)
        for lane in LANES
    ]
    return [*lanes, control_topic(settings.control_topic), TopicSpec(settings.markers_topic, 1, compacted=True)]
