"""Parts of the manifests that drivers, executors and collectors share: volumes, mounts and security settings."""

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
    """Return the volumes of a pod: scratch space, the checkpoint's claim, the secret, and those of the spec.

    ``scratch``: the name of the scratch volume.
    """
    result: list[Manifest] = [{"name": scratch, "emptyDir": {}}]
    if spec.checkpoint.claim:
        result.append({"name": "checkpoint", "persistentVolumeClaim": {"claimName": spec.checkpoint.claim}})
    if spec.secret:
        result.append({"name": "secret", "secret": {"secretName": spec.secret, "defaultMode": 0o440}})
    return [*result, *pod.volumes]


def mounts(spec: StreamAppSpec, pod: PodSpec, scratch: str) -> list[Manifest]:
    """Return the mounts of ``volumes``. The claim is mounted at the checkpoint's root."""
    result: list[Manifest] = [{"name": scratch, "mountPath": SCRATCH}]
    if spec.checkpoint.claim:
        result.append({"name": "checkpoint", "mountPath": spec.checkpoint.root})
    if spec.secret:
        result.append({"name": "secret", "mountPath": SECRET_FOLDER, "readOnly": True})
    return [*result, *pod.volume_mounts]


def pod_spec(
    spec: StreamAppSpec, pod: PodSpec, container: Manifest, more: list[Manifest] | None = None,
    scratch: str = SCRATCH_VOLUME,
) -> Manifest:  # fmt: skip
    """Return the spec of a pod with one container; add the security settings, the volumes and their mounts.

    ``more``: further volumes, whose mounts ``container`` has already. ``scratch``: the name of the scratch volume.
    """
    completed = container | {
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [*container.get("volumeMounts", ()), *mounts(spec, pod, scratch)],
    }
    result: Manifest = {
        "securityContext": POD_SECURITY,
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "containers": [completed],
        "volumes": [*(more or ()), *volumes(spec, pod, scratch)],
    }
    return result | _optional_entries(spec, pod)


def _optional_entries(spec: StreamAppSpec, pod: PodSpec) -> dict[str, Any]:
    entries = {
        "nodeSelector": pod.node_selector,
        "tolerations": list(pod.tolerations),
        "priorityClassName": pod.priority_class_name,
        "imagePullSecrets": [{"name": name} for name in spec.image_pull_secrets],
    }
    return {name: entry for name, entry in entries.items() if entry}


def shared_volumes(app: Desired, release: Release) -> list[Manifest]:
    """Return the volumes that driver and executors read: Spark's secret, and the files of the spec."""
    return [*spark_volumes(app, release.spec), *files_volumes(app, release.spec)]


def shared_mounts(spec: StreamAppSpec) -> list[Manifest]:
    """Return the mounts of ``shared_volumes``."""
    return [*spark_mounts(spec), *files_mounts(spec)]


def executor_template(app: Desired, release: Release) -> Manifest:
    """Return the pod template of the executors. Spark adds name, image, arguments, resources, owner and ports."""
    spec, pod = release.spec, release.spec.executor
    executor_labels = labels(app, "executor", pod.labels)
    del executor_labels["app.kubernetes.io/managed-by"]  # Spark creates and deletes executors
    metadata = {"labels": executor_labels, "annotations": dict(pod.annotations)}
    container: Manifest = {"name": "executor", "env": list(pod.env), "volumeMounts": shared_mounts(spec)}
    template = pod_spec(spec, pod, container, shared_volumes(app, release), EXECUTOR_SCRATCH_VOLUME)
    template |= {"automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template}
