"""The settings of a release as a ConfigMap: the app's config, and the places that the operator has chosen.

One for each content, and immutable: a pod that starts later finds the settings it was made for. No secret is in it;
settings name files.
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
#: Of an executor's memory: what is not the JVM's is for Python and RocksDB.
_HEAP_SHARE = 0.25
_EXECUTOR_MEMORY = "2Gi"
#: Unless the app says otherwise, entry by entry.
_TELEMETRY: dict[str, Any] = {"prometheus_port": METRICS_PORT, "logs": "json"}


def settings_name(app: Desired, release: Release) -> str:
    """Name the ConfigMap by its content, so that an operator that writes other content makes another one."""
    return content_name(app.stem, json.dumps(_data(app, release)))


def settings_map(app: Desired, release: Release) -> Manifest:
    """Return the ConfigMap with ``settings.yaml`` (JSON is YAML) and ``executor.yaml``."""
    metadata = owned_metadata(app, settings_name(app, release), labels(app, "settings"))
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return made | {"data": _data(app, release), "immutable": True}


def _data(app: Desired, release: Release) -> dict[str, str]:
    data = {"settings.yaml": json.dumps(settings(app.name, release.spec), indent=1, sort_keys=True)}
    if release.spec.executors:
        data["executor.yaml"] = json.dumps(executor_template(app, release), indent=1)
    return data


def settings(app_name: str, spec: StreamAppSpec) -> dict[str, Any]:
    """Return the document that the service reads. The operator sets the paths, whatever ``config`` holds."""
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
    pending = spec.executor.resources
    requests, limits = _part(pending, "requests"), _part(pending, "limits")
    memory_mib = _mib(str(limits.get("memory") or requests.get("memory") or _EXECUTOR_MEMORY))
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


def _part(resources: dict[str, Any], name: str) -> dict[str, Any]:
    part = resources.get(name)
    return part if isinstance(part, dict) else {}


def _mib(quantity: str) -> int:
    """Return MiB of a quantity: ``2Gi`` gives 2048; a plain number is bytes."""
    unit = next((unit for unit in _MIB if quantity.endswith(unit)), "")
    number = float(quantity.removesuffix(unit)) if unit else float(quantity) / 2**20
    return int(number * _MIB.get(unit, 1))
