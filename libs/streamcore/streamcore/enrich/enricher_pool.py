"""The enrichers of a worker process, shared by its tasks.

A worker runs many short tasks, each with the enrichment as a value. Open connections and the cache make look-ups cheap
and must outlive a task, so there is one enricher for each name.
"""

from __future__ import annotations

import atexit
import os

from streamcore.enrich.enricher import Enricher
from streamcore.enrich.spec import Enrichment

_enrichers: dict[tuple[int, str], Enricher] = {}  # by process: a forked child has neither the loop nor the connections


def shared_enricher(spec: Enrichment) -> Enricher:
    """Return this process's enricher of that name. One that was made from another value is closed and replaced."""
    place = os.getpid(), spec.name
    found = _enrichers.get(place)
    if found is not None and found.spec != spec:
        found.close()
        found = None
    if found is None:
        found = _enrichers[place] = Enricher(spec)
    return found


def close_shared_enrichers() -> None:
    """Close all enrichers of this process; done at its end too."""
    for place in [place for place in _enrichers if place[0] == os.getpid()]:
        _enrichers.pop(place).close()


atexit.register(close_shared_enrichers)
