"""The settings of a release as a ConfigMap: ``config`` of the spec, and the paths that the operator sets.

Each content has its own immutable ConfigMap, so a pod always finds the settings that it was created for. Settings
contain no secrets; they name files.
"""

from __future__ import annotations

import json
import math
from typing import Any  # a service's settings are made of anything

from headgate_operator.pods.image import EXECUTOR_TEMPLATE, METRICS_PORT, SCRATCH, SPARK_SECRET_FOLDER, SPARK_SECRET_KEY
from headgate_operator.pods.labels import Manifest, content_name, labels, owned_metadata
from headgate_operator.pods.parts import executor_template
from headgate_operator.reconcile.observed import Desired
from headgate_operator.resources.release import Release
from headgate_operator.resources.spec import StreamAppSpec

_MIB = {"Ki": 1 / 1024, "Mi": 1, "Gi": 1024, "Ti": 1024 * 1024, "k": 1e3 / 2**20, "M": 1e6 / 2**20, "G": 1e9 / 2**20}
#: The share of an executor's memory that is the JVM's heap; the rest is for Python and RocksDB.
_HEAP_SHARE = 0.25
_DEFAULT_EXECUTOR_MEMORY = "2Gi"
#: Defaults of ``telemetry``; the entries of the spec take precedence.
_TELEMETRY: dict[str, Any] = {"prometheus_port": METRICS_PORT, "logs": "json"}


def settings_name(app: Desired, release: Release) -> str:
    """Return the name of the ConfigMap, which depends on its content: a newer operator may write other content."""
    return content_name(app.stem, json.dumps(_data(app, release)))


def settings_map(app: Desired, release: Release) -> Manifest:
    """Return the ConfigMap with ``settings.yaml`` (JSON is YAML) and ``executor.yaml``."""
    metadata = owned_metadata(app, settings_name(app, release), labels(app, "settings"))
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return manifest | {"data": _data(app, release), "immutable": True}


def _data(app: Desired, release: Release) -> dict[str, str]:
    data = {"settings.yaml": json.dumps(settings(app.name, release.spec), indent=1, sort_keys=True)}
    if release.spec.executors:
        data["executor.yaml"] = json.dumps(executor_template(app, release), indent=1)
    return data


def settings(app_name: str, spec: StreamAppSpec) -> dict[str, Any]:
    """Return the settings document of the service: ``config`` of the spec, with the entries that the operator sets."""
    root = spec.checkpoint.root.rstrip("/")
    document: dict[str, Any] = {"app": app_name, "telemetry": _TELEMETRY, **spec.config}
    if isinstance(document["telemetry"], dict):
        document["telemetry"] = _TELEMETRY | document["telemetry"]
    document |= {"checkpoint": f"{root}/{app_name}", "local_dir": SCRATCH, "parallelism": spec.shuffle_partitions}
    if spec.checkpoint.savepoints:
        document["savepoints"] = spec.checkpoint.savepoints
    if spec.executors:
        document["executors"] = _executors(spec)
    return document


def _executors(spec: StreamAppSpec) -> dict[str, Any]:
    resources = spec.executor.resources
    requests, limits = _mapping(resources, "requests"), _mapping(resources, "limits")
    memory_mib = _mib(str(limits.get("memory") or requests.get("memory") or _DEFAULT_EXECUTOR_MEMORY))
    heap_mib = max(384, int(memory_mib * _HEAP_SHARE))
    return {
        "count": spec.executors,
        "cores": math.ceil(spec.shuffle_partitions / spec.executors),
        "memory": f"{heap_mib}m",
        "overhead": f"{max(384, memory_mib - heap_mib)}m",
        "cpu": str(requests.get("cpu") or "1"),
        "template": EXECUTOR_TEMPLATE,
        "secret_file": f"{SPARK_SECRET_FOLDER}/{SPARK_SECRET_KEY}",
    }


def _mapping(resources: dict[str, Any], name: str) -> dict[str, Any]:
    entry = resources.get(name)
    return entry if isinstance(entry, dict) else {}


def _mib(quantity: str) -> int:
    """Return MiB of a quantity: ``2Gi`` gives 2048; a plain number is bytes."""
    unit = next((unit for unit in _MIB if quantity.endswith(unit)), "")
    number = float(quantity.removesuffix(unit)) if unit else float(quantity) / 2**20
    return int(number * _MIB.get(unit, 1))
