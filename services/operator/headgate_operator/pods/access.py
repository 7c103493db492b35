"""Rights of a driver: it may create and delete pods in its namespace, for its executors, and patch its own pod.

The role names the driver pods that may be patched, so it is written again before each pod is created.
"""

from __future__ import annotations

from headgate_operator.pods.labels import Manifest, labels, owned_metadata
from headgate_operator.reconcile.observed import Desired

_RBAC = "rbac.authorization.k8s.io"
EXECUTOR_VERBS = ("create", "delete", "deletecollection", "get", "list", "watch")


def service_account_name(app: Desired) -> str:
    """Return the name of the driver's ServiceAccount: that of the spec, else the app's own."""
    return app.spec.driver.service_account or f"{app.name}-driver"


def service_account(app: Desired) -> Manifest | None:
    """Return the app's own ServiceAccount; None if the spec names another one, whose rights are granted elsewhere."""
    if app.spec.driver.service_account:
        return None
    metadata = owned_metadata(app, service_account_name(app), labels(app, "driver"))
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def access_manifests(app: Desired, pod_names: tuple[str, ...]) -> tuple[Manifest, ...]:
    """Return the Role and RoleBinding of the app's own ServiceAccount.

    ``pod_names``: the driver pods that may be patched.
    """
    if app.spec.driver.service_account:
        return ()
    name = service_account_name(app)
    metadata = owned_metadata(app, name, labels(app, "driver"))
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": list(EXECUTOR_VERBS)},
        {"apiGroups": [""], "resources": ["pods"], "resourceNames": list(pod_names), "verbs": ["patch"]},
    ]
    subject = {"kind": "ServiceAccount", "name": name, "namespace": app.namespace}
    return (
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
            "subjects": [subject],
        },
    )
