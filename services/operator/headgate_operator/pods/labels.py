"""Names and labels: deterministic, so that whatever is made twice is found the second time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any  # a manifest is made of anything

from headgate_operator.reconcile.world import Desired
from headgate_operator.resources import API_VERSION

Manifest = dict[str, Any]

#: On driver pods: the app that they belong to. Executors do not have it.
APP = "headgate.dev/app"
#: On pods that remove data: the app that it was of.
COLLECTS = "headgate.dev/collects"
REVISION = "headgate.dev/revision"
_PART_OF = {"app.kubernetes.io/part-of": "headgate", "app.kubernetes.io/managed-by": "headgate-operator"}


def labels(app: Desired, component: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Those that tools group by, and ``more``. What others make by a template of ours is not managed by us."""
    named = {"app.kubernetes.io/name": app.spec.service, "app.kubernetes.io/instance": app.name}
    return {**_PART_OF, **named, "app.kubernetes.io/component": component, **(more or {})}


def driver_selector(app_name: str) -> dict[str, str]:
    """Finds an app's drivers, of whichever life of it."""
    return {APP: app_name}


def content_name(stem: str, content: str) -> str:
    """Of something immutable: what holds the same has the same name."""
    return f"{stem}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"


def owned(app: Desired, name: str, labelled: Mapping[str, str]) -> Manifest:
    """Metadata of something that goes with the app."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": "StreamApp",
        "name": app.name,
        "uid": app.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {"name": name, "namespace": app.namespace, "labels": dict(labelled), "ownerReferences": [owner]}
