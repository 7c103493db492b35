"""The enrichments of a worker process, kept from task to task.

A worker runs many short tasks, each with the enrichment as a value. What makes look-ups cheap (open connections, the
cache) has to outlive a task, so there is one enricher for each name.
"""

from __future__ import annotations

import atexit
import os

from streamcore.enrich.runner import Enricher
from streamcore.enrich.values import Enrichment

_kept: dict[tuple[int, str], Enricher] = {}  # by process: a forked child has neither the loop nor the connections


def kept(spec: Enrichment) -> Enricher:
    """This process's enricher of that name. One that was made from another value is closed and replaced."""
    place = os.getpid(), spec.name
    found = _kept.get(place)
    if found is not None and found.spec != spec:
        found.close()
        found = None
    if found is None:
        found = _kept[place] = Enricher(spec)
    return found


def close_kept() -> None:
    """Close all enrichers of this process; done at its end too."""
    for place in [place for place in _kept if place[0] == os.getpid()]:
        _kept.pop(place).close()


atexit.register(close_kept)
