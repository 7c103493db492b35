"""A pod that removes unneeded data: a short life, no rights at the API server, the checkpoint's volume."""

from __future__ import annotations

from headgate_operator.pods.labels import COLLECTS, Manifest, labels, owned_metadata
from headgate_operator.pods.parts import pod_spec
from headgate_operator.reconcile.actions import CreateCollector
from headgate_operator.reconcile.observed import Desired

_RESOURCES = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}


def collector_pod(app: Desired, action: CreateCollector) -> Manifest:
    """Return a pod that removes ``action.savepoints``, or all that the app stored."""
    spec = action.release.spec
    container: Manifest = {
        "name": "collector",
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "args": ["headgate", "savepoint", *_arguments(app, action)],
        "env": list(spec.driver.env),
        "resources": _RESOURCES,
    }
    made = pod_spec(spec, spec.driver, container) | {"automountServiceAccountToken": False}
    metadata = owned_metadata(app, action.name, labels(app, "collector", {COLLECTS: app.name}))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made}


def _arguments(app: Desired, action: CreateCollector) -> list[str]:
    """Return the arguments. A missing savepoint counts as removed: one that failed has left nothing, or a part."""
    spec = action.release.spec
    where = ["--savepoints", spec.savepoints_root, "--app", app.name]
    if action.everything:
        return ["purge", *where, "--checkpoint", f"{spec.checkpoint.root.rstrip('/')}/{app.name}"]
    return ["delete", *where, "--missing-ok", *action.savepoints]
