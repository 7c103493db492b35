"""The topics that a service writes, and its control topic. Event topics belong to their producers."""

from __future__ import annotations

from collections.abc import Iterable

from streamcore.kafka.control_topic import control_topic
from streamcore.kafka.topics import TopicSpec
from streamcore.service.config.settings import ServiceSettings
from streamcore.wire.lanes import CONTROL


def topics_of_service(settings: ServiceSettings, lanes: Iterable[str]) -> list[TopicSpec]:
    """One a lane, beside the control topic and the markers."""
    return [
        *(
            TopicSpec(settings.lane_topic(lane), settings.output_partitions, retention_ms=settings.output_retention_ms)
            for lane in lanes
            if lane != CONTROL
        ),
        control_topic(settings.control_topic),
        TopicSpec(settings.markers_topic, 1, compacted=True),
    ]
