"""Paths of the API server."""

from __future__ import annotations

from headgate_operator.resources import API_VERSION

_GROUPS = {
    "streamapps": f"/apis/{API_VERSION}",
    "savepoints": f"/apis/{API_VERSION}",
    "roles": "/apis/rbac.authorization.k8s.io/v1",
    "rolebindings": "/apis/rbac.authorization.k8s.io/v1",
    "leases": "/apis/coordination.k8s.io/v1",
}


def path(plural: str, namespace: str = "", name: str = "", part: str = "") -> str:
    """Return the path of a kind, of one object, or of its subresource; without a namespace, of all namespaces."""
    whole = _GROUPS.get(plural, "/api/v1")
    if namespace:
        whole += f"/namespaces/{namespace}"
    return "/".join([whole, plural, *([name] if name else []), *([part] if part else [])])
