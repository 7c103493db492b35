"""Completes the deletion of savepoints whose app is deleted: their resource is removed, and their data stays.

The data stays because only the image of the app can remove it. The deletion must complete, even in a namespace that is
being deleted, where no pod can be created any more.
"""

from __future__ import annotations

import logging

from headgate_operator.runtime.api_client import Rest, gone_is_fine
from headgate_operator.runtime.api_paths import path
from headgate_operator.runtime.informer_cache import SAVEPOINTS, Cache, Key

_LOG = logging.getLogger(__name__)


def release_orphans(rest: Rest, cache: Cache, app: Key) -> None:
    """Remove the operator's finalizer from those savepoints of a deleted app that are being deleted."""
    for raw in cache.of(SAVEPOINTS, app):
        meta = raw["metadata"]
        if not meta.get("deletionTimestamp") or not meta.get("finalizers"):
            continue
        release_savepoint(rest, meta["namespace"], meta["name"])
        location = (raw.get("status") or {}).get("location", "its folder")
        _LOG.warning(
            "savepoint %s/%s: its app is gone; the data stays at %s", meta["namespace"], meta["name"], location
        )


def release_savepoint(rest: Rest, namespace: str, name: str) -> None:
    """Remove the finalizers of a savepoint, if it exists."""
    with gone_is_fine():
        rest.merge(path(SAVEPOINTS, namespace, name), {"metadata": {"finalizers": None}})
