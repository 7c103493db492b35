"""The chart as Helm renders it. A test that needs ``helm`` or another program that is not on the PATH is skipped."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any  # manifests are made of anything

import pytest
import yaml

from streamcore.yaml_loader import SAFE_LOADER

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts/headgate"
Manifest = dict[str, Any]
_KUBE = ("--kube-version", "1.34.4")


def program(name: str) -> str:
    """Return the path of the program."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not on the PATH: the chart cannot be checked with it")
    return found


def run(name: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program with these arguments."""
    return subprocess.run(
        [program(name), *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=300
    )


def helm(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of Helm."""
    return run("helm", *arguments, stdin=stdin)


def template(values: Mapping[str, Any] | None = None, *, release: str = "demo", namespace: str = "shop") -> str:
    """Render all manifests with hooks and tests; ``ValueError`` with the message of Helm."""
    completed = helm(
        "template", release, str(CHART), "-n", namespace, *_KUBE, "-f", "-", stdin=yaml.safe_dump(dict(values or {}))
    )
    if completed.returncode:
        raise ValueError(completed.stderr)
    return completed.stdout


def render_manifests(values: Mapping[str, Any] | None = None, *, release: str = "demo") -> list[Manifest]:
    """Return the manifests as objects."""
    return [one for one in yaml.load_all(template(values, release=release), Loader=SAFE_LOADER) if one]


def select_kind(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    """Return the manifests of a kind by name."""
    return {one["metadata"]["name"]: one for one in manifests if one["kind"] == kind}


def pod_specs(manifests: list[Manifest]) -> dict[str, Manifest]:
    """Return the pod specs of all workloads by kind and name."""
    found = {}
    for one in manifests:
        spec = one.get("spec", {})
        pod = spec if one["kind"] == "Pod" else spec.get("template", {}).get("spec")
        if pod is not None:
            found[f"{one['kind']}/{one['metadata']['name']}"] = pod
    return found


#: A console with a login, and its Secret.
CONSOLE: Manifest = {
    "enabled": True,
    "access": {
        "public_address": "https://rules.example.org",
        "login": {
            "issuer": "https://id.example.org",
            "client_id": "headgate-console",
            "client_secret_file": "/etc/headgate/console-secret/client",
        },
        "grants": [{"role": "viewer", "groups": ["*"]}],
    },
    "secret": "console-files",
    "signingKey": "console.key",
    "files": {"orders.yaml": "name: orders\n"},
    "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "cert"},
}
#: Everything switched on at once.
EVERYTHING: Manifest = {
    "operator": {"replicas": 2, "allNamespaces": True},
    "apps": {
        "rules": {"files": {"streams/orders.yaml": "name: orders\n"}, "executors": 2},
        "etl": {"enabled": True},
        "sessions": {"enabled": True},
        "search": {"enabled": True},
    },
    "console": CONSOLE,
    "networkPolicy": {"enabled": True},
    "monitoring": {"podMonitor": {"enabled": True}, "rules": {"enabled": True}, "dashboard": {"enabled": True}},
}
#: As where there are servers of one's own.
OWN_SERVERS: Manifest = {
    "kafka": {
        "enabled": False,
        "bootstrap": "k1.example:9093,k2.example:9093",
        "settings": {
            "security": "SASL_SSL",
            "username": "headgate",
            "password_file": "/etc/headgate/secret/kafka",
            "ca_file": "/etc/headgate/secret/ca.pem",
        },
    },
    "image": {"repository": "registry.example:5000/headgate", "digest": f"sha256:{'a' * 64}", "pullSecrets": ["pull"]},
    "checkpoints": {"root": "s3://bucket/headgate"},
    "appDefaults": {"secret": "headgate-logins"},
    "toolbox": {"enabled": False},
}
ONLY_APPS: Manifest = {"operator": {"enabled": False}, "checkpoints": {"claim": "shared"}}
CASES: Mapping[str, Manifest] = {
    "defaults": {},
    "everything": EVERYTHING,
    "own-servers": OWN_SERVERS,
    "only-apps": ONLY_APPS,
}
