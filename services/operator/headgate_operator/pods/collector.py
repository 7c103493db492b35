"""The manifest of a collector: a pod that removes the data of savepoints. It has no rights at the API server."""

from __future__ import annotations

from headgate_operator.pods.labels import COLLECTS, Manifest, labels, owned_metadata
from headgate_operator.pods.parts import pod_spec
from headgate_operator.reconcile.actions import CreateCollector
from headgate_operator.reconcile.observed import Desired

_RESOURCES = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}


def collector_pod(app: Desired, action: CreateCollector) -> Manifest:
    """Return a collector that removes the data of ``action.savepoints``, or all data of the app."""
    spec = action.release.spec
    container: Manifest = {
        "name": "collector",
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "args": ["headgate", "savepoint", *_arguments(app, action)],
        "env": list(spec.driver.env),
        "resources": _RESOURCES,
    }
    pod = pod_spec(spec, spec.driver, container) | {"automountServiceAccountToken": False}
    metadata = owned_metadata(app, action.name, labels(app, "collector", {COLLECTS: app.name}))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}


def _arguments(app: Desired, action: CreateCollector) -> list[str]:
    """Return the arguments of ``headgate savepoint``.

    A missing savepoint is no error: a failed one may have no data.
    """
    spec = action.release.spec
    location = ["--savepoints", spec.savepoints_root, "--app", app.name]
    if action.everything:
        return ["purge", *location, "--checkpoint", f"{spec.checkpoint.root.rstrip('/')}/{app.name}"]
    return ["delete", *location, "--missing-ok", *action.savepoints]
