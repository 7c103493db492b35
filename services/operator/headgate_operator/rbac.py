"""The rights that the operator needs. ``python -m headgate_operator.rbac`` prints them as roles.

In Kubernetes no account can grant rights that it does not have, so the operator also has the rights that it grants to
drivers.
"""

from __future__ import annotations

import sys
from typing import Any  # JSON of any content

import yaml

from headgate_operator.resources import GROUP

Rule = dict[str, Any]


def _rule(group: str, resources: list[str], verbs: list[str]) -> Rule:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


#: Rights in the namespaces of apps.
RULES: tuple[Rule, ...] = (
    _rule(GROUP, ["streamapps"], ["get", "list", "watch", "patch"]),  # patch: the finalizer
    _rule(GROUP, ["streamapps/status"], ["update"]),
    _rule(GROUP, ["savepoints"], ["get", "list", "watch", "create", "patch", "delete"]),
    _rule(GROUP, ["savepoints/status"], ["patch"]),
    # The operator needs deletecollection only to grant it to drivers, which delete their executors with it.
    _rule("", ["pods"], ["get", "list", "watch", "create", "patch", "delete", "deletecollection"]),
    _rule("", ["configmaps", "services", "serviceaccounts"], ["create", "patch"]),
    _rule("", ["secrets"], ["create"]),  # Spark's secret, one per app; the operator cannot read it
    _rule("", ["events"], ["create"]),
    _rule("rbac.authorization.k8s.io", ["roles", "rolebindings"], ["create", "patch", "get"]),
)

#: Rights in the operator's own namespace: its lease for leader election, and reading whether the namespace is being
#: deleted.
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
    """Return the roles as YAML, as the chart contains them (``files/roles.yaml``)."""
    return "---\n".join(yaml.safe_dump(role, sort_keys=False) for role in roles())


if __name__ == "__main__":
    sys.stdout.write(render())
