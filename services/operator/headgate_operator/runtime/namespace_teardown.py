"""Removes the operator's finalizers when its own namespace is being deleted.

The operator may be deleted before its apps. Then no process is left to remove their finalizers, and the deletion would
never end; so the operator removes them as its last action. That loses no data that could be kept: no pod can be created
in the namespace any more, so no savepoint either. Drivers end between two batches, as any deleted pod.
"""

from __future__ import annotations

import logging
from typing import Any  # JSON of other people's making

from headgate_operator.runtime.api_client import CONFLICT, ApiError, Rest, gone_is_fine
from headgate_operator.runtime.api_paths import path
from headgate_operator.runtime.parse import FINALIZER

_LOG = logging.getLogger(__name__)


def remove_finalizers_with_namespace(rest: Rest, namespace: str) -> None:
    """Remove our finalizer from everything in the namespace, if that is being deleted. No reconciliation may be under
    way.
    """
    if not rest.get(path("namespaces", name=namespace))["metadata"].get("deletionTimestamp"):
        return
    for kind in ("streamapps", "savepoints"):
        for raw in rest.get(path(kind, namespace))["items"]:
            if FINALIZER in raw["metadata"].get("finalizers", ()):
                _LOG.warning("%s %s/%s: goes with its namespace", kind, namespace, raw["metadata"]["name"])
                _remove_finalizers(rest, kind, raw)


def _remove_finalizers(rest: Rest, kind: str, raw: dict[str, Any]) -> None:
    meta = raw["metadata"]
    where = path(kind, meta["namespace"], meta["name"])
    while True:
        left = [name for name in meta["finalizers"] if name != FINALIZER]
        try:
            with gone_is_fine():
                rest.merge(where, {"metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": left}})
            return
        except ApiError as error:
            if error.status != CONFLICT:
                raise
        meta = rest.get(where)["metadata"]
