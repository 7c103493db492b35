"""Names and labels of objects. Names are deterministic, so that creating an object again finds the existing one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any  # a manifest is made of anything

from headgate_operator.reconcile.observed import Desired
from headgate_operator.resources import API_VERSION

Manifest = dict[str, Any]

#: Label of driver pods, not of executors: the app.
APP = "headgate.dev/app"
#: Label of collectors: the app.
COLLECTS = "headgate.dev/collects"
#: Label of driver pods: the revision of their release.
REVISION = "headgate.dev/revision"
_PART_OF = {"app.kubernetes.io/part-of": "headgate", "app.kubernetes.io/managed-by": "headgate-operator"}


def labels(app: Desired, component: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the recommended labels of Kubernetes, and ``more``. ``component``: such as ``driver`` or ``collector``."""
    app_labels = {"app.kubernetes.io/name": app.spec.service, "app.kubernetes.io/instance": app.name}
    return {**_PART_OF, **app_labels, "app.kubernetes.io/component": component, **(more or {})}


def driver_selector(app_name: str) -> dict[str, str]:
    """Return the label selector of the driver pods of an app, including those of an earlier app with this name."""
    return {APP: app_name}


def content_name(stem: str, content: str) -> str:
    """Return a name for an immutable object with this content: equal contents have equal names."""
    return f"{stem}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"


def owned_metadata(app: Desired, name: str, object_labels: Mapping[str, str]) -> Manifest:
    """Return the metadata of an object that Kubernetes deletes with the app."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": "StreamApp",
        "name": app.name,
        "uid": app.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {"name": name, "namespace": app.namespace, "labels": dict(object_labels), "ownerReferences": [owner]}
