"""The chart as a release in a namespace of its own, with the images of this run."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.harness.cluster.images import IMAGE, KAFKA_IMAGE
from tests.harness.cluster.kubectl import Namespace, run, wait_until
from tests.harness.cluster.toolbox import Toolbox
from tests.harness.cluster.upgrades import print_result

CHART = Path(__file__).parents[3] / "charts" / "headgate"
RELEASE = "headgate"
#: ``s3://bucket/prefix``: all memory of the apps lies there, and this process' AWS variables go into a Secret.
BUCKET = os.environ.get("HEADGATE_CLUSTER_BUCKET", "")
_SECRET = "bucket"
_AWS = {name: value for name, value in os.environ.items() if BUCKET and name.startswith("AWS_")}
_ENV = [{"name": name, "valueFrom": {"secretKeyRef": {"name": _SECRET, "key": name}}} for name in sorted(_AWS)]
_REQUESTS = {"cpu": "50m", "memory": "512Mi"}
#: Small, for a machine with two cores; the load is the test's.
DRIVER: Mapping[str, object] = {"resources": {"requests": _REQUESTS, "limits": {"memory": "3Gi"}}}
_EXECUTORS = {"resources": {"requests": {"cpu": "50m"}, "limits": {"memory": "2Gi"}}}


def small_pods(**spec: object) -> dict[str, object]:
    """Return the values of an app whose pods request few resources."""
    return {"driver": DRIVER, "executor": _EXECUTORS, **spec}


class Release:
    """A release, and the toolbox in it."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.toolbox = Toolbox(namespace, IMAGE, "headgate-kafka:9092")

    def install(self, apps: Mapping[str, object]) -> None:
        """Install the chart with these apps."""
        image, _, tag = IMAGE.rpartition(":")
        kafka, _, kafka_tag = KAFKA_IMAGE.rpartition(":")
        values: dict[str, object] = {
            "image": {"repository": image, "tag": tag},
            "kafka": {"image": {"repository": kafka, "tag": kafka_tag}},
            "apps": apps,
        }
        if BUCKET:
            values["checkpoints"] = {"root": f"{BUCKET}/{self.namespace.name}"}
            values["appDefaults"] = {"driver": {"env": _ENV}, "executor": {"env": _ENV}}
            meta = {"name": _SECRET}
            self.namespace.apply({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": _AWS})
        self._helm("install", values, "--wait")

    def change(self, values: Mapping[str, object]) -> None:
        """Upgrade the release with further values."""
        self._helm("upgrade", values, "--reuse-values")

    def _helm(self, verb: str, values: Mapping[str, object], *options: str) -> None:
        arguments = [verb, RELEASE, str(CHART), *options, "--timeout", "5m", "-f", "-"]
        run("helm", "-n", self.namespace.name, *arguments, given=json.dumps(values), limit_s=330)


@contextlib.contextmanager
def new_namespace(limit_s: float) -> Iterator[Namespace]:
    """Create a namespace with the restricted profile; delete it at the end, unless HEADGATE_CLUSTER_KEEP=1."""
    namespace = Namespace(f"headgate-{uuid.uuid4().hex[:6]}")
    run("kubectl", "create", "namespace", namespace.name)
    run("kubectl", "label", "namespace", namespace.name, "pod-security.kubernetes.io/enforce=restricted")
    try:
        yield namespace
    finally:
        if not os.environ.get("HEADGATE_CLUSTER_KEEP"):
            run("kubectl", "delete", "namespace", namespace.name, "--wait=false")
            took = wait_until(lambda: not _there(namespace), limit_s, "the namespace goes")
            print_result("namespace deleted", seconds=round(took, 1))


def _there(namespace: Namespace) -> bool:
    return bool(run("kubectl", "get", "namespace", namespace.name, "--ignore-not-found", "-o", "name").strip())
