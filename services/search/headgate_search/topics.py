"""The lanes of the search app that end in Kafka topics. Unlike ``app``, this module does not import Spark."""

from __future__ import annotations

from headgate_search.settings import SearchSettings
from streamcore.wire.lanes import DEAD_LETTERS, LATE, STATUS

#: The lane with the rows of ``documents`` as Kafka records, for other consumers.
CHANGES = "changes"


def lanes(settings: SearchSettings) -> tuple[str, ...]:
    """Return the lanes that end in a Kafka topic."""
    return (*((CHANGES,) if settings.publish_changes else ()), DEAD_LETTERS, LATE, STATUS)
