"""The topics of the rules app. Apart from the app, so that who only needs their names does not import Spark."""

from __future__ import annotations

from headgate_rules.settings import RulesSettings
from streamcore.kafka.topics import TopicSpec
from streamcore.lanes import ALERTS, DEAD_LETTERS, LATE, SHADOW, STATUS
from streamcore.service.topics import own_topics

LANES = (ALERTS, SHADOW, STATUS, LATE, DEAD_LETTERS)


def topics(settings: RulesSettings) -> list[TopicSpec]:
    """The topics that the app writes, and the control topic."""
    return own_topics(settings, LANES)
