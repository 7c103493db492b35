"""The enrichers of a worker process, shared by its tasks.

A worker runs many short tasks, each with its own copy of the enrichment. Open connections and the cache make lookups
cheap and must outlive a task, so there is one enricher per name of an enrichment.
"""

from __future__ import annotations

import atexit
import os

from streamcore.enrich.enricher import Enricher
from streamcore.enrich.spec import Enrichment

_enrichers: dict[
    tuple[int, str], Enricher
] = {}  # by process id: a forked child has neither the event loop nor the connections


def shared_enricher(spec: Enrichment) -> Enricher:
    """Return this process's enricher of that name; close and replace one that was created from an unequal ``spec``."""
    pool_key = os.getpid(), spec.name
    enricher = _enrichers.get(pool_key)
    if enricher is not None and enricher.spec != spec:
        enricher.close()
        enricher = None
    if enricher is None:
        enricher = _enrichers[pool_key] = Enricher(spec)
    return enricher


def close_shared_enrichers() -> None:
    """Close all enrichers of this process. Also called when the process exits."""
    for pool_key in [pool_key for pool_key in _enrichers if pool_key[0] == os.getpid()]:
        _enrichers.pop(pool_key).close()


atexit.register(close_shared_enrichers)
