"""The lanes of the search app and their topics. Apart from the app: who only needs names does not import Spark."""

from __future__ import annotations

from headgate_search.settings import SearchSettings
from streamcore.wire.lanes import DEAD_LETTERS, LATE

#: The rows of ``documents`` as records, for other consumers.
CHANGES = "changes"


def lanes(settings: SearchSettings) -> tuple[str, ...]:
    """Those that are topics."""
    return (*((CHANGES,) if settings.publish_changes else ()), DEAD_LETTERS, LATE)
