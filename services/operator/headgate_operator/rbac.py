"""The rights that the operator needs, each with its reason. ``python -m headgate_operator.rbac`` prints them as roles.

Kubernetes lets no account grant rights that it does not have: so the operator has the rights that drivers receive.
"""

from __future__ import annotations

import sys
from typing import Any  # a manifest is made of anything

import yaml

from headgate_operator.resources import GROUP

Rule = dict[str, Any]


def _rule(group: str, resources: list[str], verbs: list[str]) -> Rule:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


#: Where apps are: in each watched namespace, or in all.
RULES: tuple[Rule, ...] = (
    _rule(GROUP, ["streamapps"], ["get", "list", "watch", "patch"]),  # patch: the finalizer
    _rule(GROUP, ["streamapps/status"], ["update"]),
    _rule(GROUP, ["savepoints"], ["get", "list", "watch", "create", "patch", "delete"]),
    _rule(GROUP, ["savepoints/status"], ["patch"]),
    # deletecollection: not for itself, drivers are given it for their executors.
    _rule("", ["pods"], ["get", "list", "watch", "create", "patch", "delete", "deletecollection"]),
    _rule("", ["configmaps", "services", "serviceaccounts"], ["create", "patch"]),
    _rule("", ["secrets"], ["create"]),  # Spark's, one an app. Nobody reads one but the kubelet.
    _rule("", ["events"], ["create"]),
    _rule("rbac.authorization.k8s.io", ["roles", "rolebindings"], ["create", "patch", "get"]),
)

#: In the operator's own namespace: who leads, and whether the namespace, and no other, is being deleted.
OWN_RULES: tuple[Rule, ...] = (
    _rule("coordination.k8s.io", ["leases"], ["get", "create", "update"]),
    _rule("", ["namespaces"], ["get"]),
)

NAME = "headgate-operator"


def roles() -> tuple[dict[str, Any], ...]:
    """Return a ClusterRole for apps, and a Role for the operator's own namespace."""
    kind = "rbac.authorization.k8s.io/v1"
    return (
        {"apiVersion": kind, "kind": "ClusterRole", "metadata": {"name": NAME}, "rules": list(RULES)},
        {"apiVersion": kind, "kind": "Role", "metadata": {"name": NAME}, "rules": list(OWN_RULES)},
    )


def render() -> str:
    """Return the text of the file in the repository."""
    return "---\n".join(yaml.safe_dump(role, sort_keys=False) for role in roles())


if __name__ == "__main__":
    sys.stdout.write(render())
