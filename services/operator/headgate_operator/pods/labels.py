"""Names and labels: deterministic, so that an object that is created twice is found the second time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any  # a manifest is made of anything

from headgate_operator.reconcile.observed import Desired
from headgate_operator.resources import API_VERSION

Manifest = dict[str, Any]

#: On driver pods: the app that they belong to. Executors do not have it.
APP = "headgate.dev/app"
#: On pods that remove data: the app that it was of.
COLLECTS = "headgate.dev/collects"
REVISION = "headgate.dev/revision"
_PART_OF = {"app.kubernetes.io/part-of": "headgate", "app.kubernetes.io/managed-by": "headgate-operator"}


def labels(app: Desired, component: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the labels that tools group by, and ``more``. Objects made by others from our template: no managed-by."""
    named = {"app.kubernetes.io/name": app.spec.service, "app.kubernetes.io/instance": app.name}
    return {**_PART_OF, **named, "app.kubernetes.io/component": component, **(more or {})}


def driver_selector(app_name: str) -> dict[str, str]:
    """Return the selector of an app's drivers, of every life of the app."""
    return {APP: app_name}


def content_name(stem: str, content: str) -> str:
    """Name an immutable object by its content: the same content has the same name."""
    return f"{stem}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"


def owned_metadata(app: Desired, name: str, labelled: Mapping[str, str]) -> Manifest:
    """Return the metadata of an object that Kubernetes deletes with the app."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": "StreamApp",
        "name": app.name,
        "uid": app.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {"name": name, "namespace": app.namespace, "labels": dict(labelled), "ownerReferences": [owner]}
