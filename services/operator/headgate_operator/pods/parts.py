"""What driver, executors and collectors have in common: the same volumes at the same places, the same security."""

from __future__ import annotations

from typing import Any  # a manifest is made of anything

from headgate_operator.pods.image import CONTAINER_SECURITY, POD_SECURITY, SCRATCH, SECRET_FOLDER
from headgate_operator.pods.labels import Manifest, labels
from headgate_operator.reconcile.world import Desired
from headgate_operator.resources.release import Release
from headgate_operator.resources.spec import PodSpec, StreamAppSpec


def volumes(spec: StreamAppSpec, pod: PodSpec) -> list[Manifest]:
    """The checkpoint's claim, the secret, scratch that is no memory, and what the spec adds."""
    made: list[Manifest] = [{"name": "scratch", "emptyDir": {}}]
    if spec.checkpoint.claim:
        made.append({"name": "checkpoint", "persistentVolumeClaim": {"claimName": spec.checkpoint.claim}})
    if spec.secret:
        made.append({"name": "secret", "secret": {"secretName": spec.secret, "defaultMode": 0o440}})
    return [*made, *pod.volumes]


def mounts(spec: StreamAppSpec, pod: PodSpec) -> list[Manifest]:
    """Of ``volumes``. The claim is mounted at the checkpoint's root."""
    made: list[Manifest] = [{"name": "scratch", "mountPath": SCRATCH}]
    if spec.checkpoint.claim:
        made.append({"name": "checkpoint", "mountPath": spec.checkpoint.root})
    if spec.secret:
        made.append({"name": "secret", "mountPath": SECRET_FOLDER, "readOnly": True})
    return [*made, *pod.volume_mounts]


def pod_spec(spec: StreamAppSpec, pod: PodSpec, container: Manifest) -> Manifest:
    """Of a pod with one container, which is given the restricted profile, volumes and resources."""
    whole = container | {
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [*container.get("volumeMounts", ()), *mounts(spec, pod)],
    }
    made: Manifest = {
        "securityContext": POD_SECURITY,
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "containers": [whole],
        "volumes": volumes(spec, pod),
    }
    return made | _optional(spec, pod)


def _optional(spec: StreamAppSpec, pod: PodSpec) -> dict[str, Any]:
    said = {
        "nodeSelector": pod.node_selector,
        "tolerations": list(pod.tolerations),
        "priorityClassName": pod.priority_class_name,
        "imagePullSecrets": [{"name": name} for name in spec.image_pull_secrets],
    }
    return {name: entry for name, entry in said.items() if entry}


def executor_template(app: Desired, release: Release) -> Manifest:
    """What Spark fills in: name, image, arguments, resources, owner and ports are its own to say."""
    spec, pod = release.spec, release.spec.executor
    marks = labels(app, "executor", pod.labels)
    del marks["app.kubernetes.io/managed-by"]  # Spark makes and removes them
    metadata = {"labels": marks, "annotations": dict(pod.annotations)}
    container: Manifest = {"name": "executor", "env": list(pod.env)}
    made = pod_spec(spec, pod, container) | {"automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made}
