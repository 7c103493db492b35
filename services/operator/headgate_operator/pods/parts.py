"""Parts that driver, executors and collectors share: the same volumes at the same places, the same security."""

from __future__ import annotations

from typing import Any  # a manifest is made of anything

from headgate_operator.pods.files import files_mounts, files_volumes
from headgate_operator.pods.image import (
    CONTAINER_SECURITY,
    EXECUTOR_SCRATCH_VOLUME,
    POD_SECURITY,
    SCRATCH,
    SCRATCH_VOLUME,
    SECRET_FOLDER,
)
from headgate_operator.pods.labels import Manifest, labels
from headgate_operator.pods.secret import spark_mounts, spark_volumes
from headgate_operator.reconcile.observed import Desired
from headgate_operator.resources.release import Release
from headgate_operator.resources.spec import PodSpec, StreamAppSpec


def volumes(spec: StreamAppSpec, pod: PodSpec, scratch: str) -> list[Manifest]:
    """Return the checkpoint's claim, the secret, scratch space on disk, and the volumes that the spec adds."""
    made: list[Manifest] = [{"name": scratch, "emptyDir": {}}]
    if spec.checkpoint.claim:
        made.append({"name": "checkpoint", "persistentVolumeClaim": {"claimName": spec.checkpoint.claim}})
    if spec.secret:
        made.append({"name": "secret", "secret": {"secretName": spec.secret, "defaultMode": 0o440}})
    return [*made, *pod.volumes]


def mounts(spec: StreamAppSpec, pod: PodSpec, scratch: str) -> list[Manifest]:
    """Return the mounts of ``volumes``. The claim is mounted at the checkpoint's root."""
    made: list[Manifest] = [{"name": scratch, "mountPath": SCRATCH}]
    if spec.checkpoint.claim:
        made.append({"name": "checkpoint", "mountPath": spec.checkpoint.root})
    if spec.secret:
        made.append({"name": "secret", "mountPath": SECRET_FOLDER, "readOnly": True})
    return [*made, *pod.volume_mounts]


def pod_spec(
    spec: StreamAppSpec, pod: PodSpec, container: Manifest, more: list[Manifest] | None = None,
    scratch: str = SCRATCH_VOLUME,
) -> Manifest:  # fmt: skip
    """Return the spec of a pod with one container, which gets the restricted profile and the volumes.

    ``more``: volumes that the container mounts already.
    """
    whole = container | {
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [*container.get("volumeMounts", ()), *mounts(spec, pod, scratch)],
    }
    made: Manifest = {
        "securityContext": POD_SECURITY,
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "containers": [whole],
        "volumes": [*(more or ()), *volumes(spec, pod, scratch)],
    }
    return made | _optional(spec, pod)


def _optional(spec: StreamAppSpec, pod: PodSpec) -> dict[str, Any]:
    entries = {
        "nodeSelector": pod.node_selector,
        "tolerations": list(pod.tolerations),
        "priorityClassName": pod.priority_class_name,
        "imagePullSecrets": [{"name": name} for name in spec.image_pull_secrets],
    }
    return {name: entry for name, entry in entries.items() if entry}


def shared_volumes(app: Desired, release: Release) -> list[Manifest]:
    """Return the volumes that driver and executors both read: Spark's secret, and the spec's files."""
    return [*spark_volumes(app, release.spec), *files_volumes(app, release.spec)]


def shared_mounts(spec: StreamAppSpec) -> list[Manifest]:
    """Return the mounts of ``shared_volumes``."""
    return [*spark_mounts(spec), *files_mounts(spec)]


def executor_template(app: Desired, release: Release) -> Manifest:
    """Return the template that Spark completes: Spark sets name, image, arguments, resources, owner and ports."""
    spec, pod = release.spec, release.spec.executor
    marks = labels(app, "executor", pod.labels)
    del marks["app.kubernetes.io/managed-by"]  # Spark makes and removes them
    metadata = {"labels": marks, "annotations": dict(pod.annotations)}
    container: Manifest = {"name": "executor", "env": list(pod.env), "volumeMounts": shared_mounts(spec)}
    made = pod_spec(spec, pod, container, shared_volumes(app, release), EXECUTOR_SCRATCH_VOLUME)
    made |= {"automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made}
