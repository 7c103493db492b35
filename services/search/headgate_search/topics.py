"""The lanes of the search app and their topics. Apart from the app: who only needs names does not import Spark."""

from __future__ import annotations

from headgate_search.settings import SearchSettings
from streamcore.kafka.topics import TopicSpec
from streamcore.lanes import DEAD_LETTERS, LATE
from streamcore.service.topics import own_topics

#: The rows of ``documents`` as records, for whoever wants to listen.
CHANGES = "changes"


def lanes(settings: SearchSettings) -> tuple[str, ...]:
    """Those that are topics."""
    return (*((CHANGES,) if settings.publish_changes else ()), DEAD_LETTERS, LATE)


def topics(settings: SearchSettings) -> list[TopicSpec]:
    """The topics that the app writes, and the control topic."""
    return own_topics(settings, lanes(settings))
