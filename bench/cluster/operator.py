"""Measures the Kubernetes operator with many apps: ``python -m bench.cluster.operator 200``.

It uses the API server of ``HEADGATE_KUBECONFIG`` and prints one JSON object: milliseconds from an edit of an app to the
status of its new generation, as a client sees it; resident memory of the operator's process; API calls per app and
minute, and CPU-seconds, while nothing changes.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
import uuid
from contextlib import redirect_stdout, suppress

from headgate_operator.runtime.api_client import ApiError, Json, Rest
from headgate_operator.runtime.api_paths import path
from headgate_operator.runtime.helm_hooks import replace_crds
from headgate_operator.runtime.manager import Manager, Settings
from headgate_operator.runtime.metrics import Counters

_QUIET_S = 30.0
_EDITS = 50


def _app(name: str, namespace: str) -> Json:
    spec = {
        "service": "rules",
        "image": "headgate:1",
        "state": "suspended",
        "config": {
            "kafka": {"bootstrap": "kafka:9092"},
            "streams": [{"schema_file": "shop.yaml", "topic": "shop"}] * 5,
        },
        "checkpoint": {"root": "/checkpoints"},
    }
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "headgate.dev/v1alpha1", "kind": "StreamApp", "metadata": metadata, "spec": spec}


def _time_edit(rest: Rest, app_path: str, number: int) -> float:
    """Edit an app, and return the milliseconds until its status has the new generation."""
    generation = rest.merge(app_path, {"spec": {"savepoints": {"keep": number % 9 + 1}}})["metadata"]["generation"]
    began = time.monotonic()
    while (rest.get(app_path).get("status") or {}).get("observedGeneration") != generation:
        time.sleep(0.005)
    return (time.monotonic() - began) * 1_000


def _serve_crds(rest: Rest) -> None:
    """Install this version's custom resource definitions, and wait until the API server serves them."""
    with redirect_stdout(sys.stderr):
        replace_crds(rest)
    for plural in ("streamapps", "savepoints"):
        served = False
        while not served:
            with suppress(ApiError):
                served = "items" in rest.get(path(plural))
            time.sleep(0.1)


def main(apps: int) -> Json:
    """Measure the operator with ``apps`` apps. The apps are suspended, so no other process uses the CPU."""
    kubeconfig, namespace = os.environ["HEADGATE_KUBECONFIG"], f"bench-{uuid.uuid4().hex[:6]}"
    client, counters = Rest(kubeconfig, Counters()), Counters()
    _serve_crds(client)
    client.post(path("namespaces"), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    names = [f"app-{number}" for number in range(apps)]
    operator = Manager(Rest(kubeconfig, counters), counters, Settings(namespace))
    operator.start()
    for name in names:
        client.post(path("streamapps", namespace), _app(name, namespace))
    for name in names:
        while not client.get(path("streamapps", namespace, name)).get("status"):
            time.sleep(0.05)
    answered = [_time_edit(client, path("streamapps", namespace, names[n * apps // _EDITS]), n) for n in range(_EDITS)]
    before = sum(count for (name, _), count in counters.read().items() if name == "api_calls")
    cpu_before = time.process_time()
    time.sleep(_QUIET_S)
    calls = sum(count for (name, _), count in counters.read().items() if name == "api_calls") - before
    result = {
        "apps": apps,
        "answered_ms_median": round(statistics.median(answered), 1),
        "answered_ms_p90": round(statistics.quantiles(answered, n=10)[-1], 1),
        "resident_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "idle_calls_per_app_minute": round(calls / apps / _QUIET_S * 60, 3),
        "idle_cpu_s_per_minute": round((time.process_time() - cpu_before) / _QUIET_S * 60, 2),
    }
    operator.stop()
    for name in names:
        client.merge(path("streamapps", namespace, name), {"metadata": {"finalizers": None}})
    client.delete(path("namespaces", name=namespace), "")
    return result


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)))
