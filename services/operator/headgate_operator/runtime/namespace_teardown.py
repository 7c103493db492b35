"""Removes the operator's finalizers when its own namespace is being deleted.

Kubernetes may delete the operator before its apps. Then no process is left to remove their finalizers, and the deletion
of the namespace would never end; so the operator removes them before it exits. That loses no data that could be kept:
no pod can be created in the namespace any more, so no savepoint either. Drivers end between two batches, as any deleted
pod.
"""

from __future__ import annotations

import logging
from typing import Any  # JSON of any content

from headgate_operator.runtime.api_client import CONFLICT, ApiError, Rest, gone_is_fine
from headgate_operator.runtime.api_paths import path
from headgate_operator.runtime.parse import FINALIZER

_LOG = logging.getLogger(__name__)


def remove_finalizers_with_namespace(rest: Rest, namespace: str) -> None:
    """Remove the operator's finalizer from all resources in the namespace, if the namespace is being deleted.

    No reconciliation may be in progress.
    """
    if not rest.get(path("namespaces", name=namespace))["metadata"].get("deletionTimestamp"):
        return
    for kind in ("streamapps", "savepoints"):
        for raw in rest.get(path(kind, namespace))["items"]:
            if FINALIZER in raw["metadata"].get("finalizers", ()):
                _LOG.warning(
                    "%s %s/%s: finalizer removed, because its namespace is being deleted",
                    kind,
                    namespace,
                    raw["metadata"]["name"],
                )
                _remove_finalizers(rest, kind, raw)


def _remove_finalizers(rest: Rest, kind: str, raw: dict[str, Any]) -> None:
    meta = raw["metadata"]
    object_path = path(kind, meta["namespace"], meta["name"])
    while True:
        left = [name for name in meta["finalizers"] if name != FINALIZER]
        try:
            with gone_is_fine():
                rest.merge(object_path, {"metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": left}})
            return
        except ApiError as error:
            if error.status != CONFLICT:
                raise
        meta = rest.get(object_path)["metadata"]
