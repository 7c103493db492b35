"""Users, paths and ports of the image. Drivers, executors and collectors run the same image."""

from __future__ import annotations

from typing import Any  # a manifest is made of anything

USER = 10001
SETTINGS_FOLDER = "/etc/headgate"
SETTINGS_FILE = f"{SETTINGS_FOLDER}/settings.yaml"
EXECUTOR_TEMPLATE = f"{SETTINGS_FOLDER}/executor.yaml"
SECRET_FOLDER = "/etc/headgate/secret"  # noqa: S105 - a folder, no secret
SPARK_SECRET_FOLDER = "/etc/headgate/spark"  # noqa: S105 - a folder, no secret
SPARK_SECRET_KEY = "secret"  # noqa: S105 - the name of a file in it
FILES_FOLDER = "/etc/headgate/files"
SCRATCH = "/tmp"  # noqa: S108 - an emptyDir of the pod's own
#: The volume that is mounted at ``SCRATCH``. Spark recognises the executor's volume by this name, and adds no other.
SCRATCH_VOLUME = "scratch"
EXECUTOR_SCRATCH_VOLUME = "spark-local-dir-1"
DRIVER_PORT = 7078
BLOCKS_PORT = 7079
METRICS_PORT = 9464

#: Required by the profile "restricted" of the Pod Security Standards; the read-only root file system is in addition.
POD_SECURITY: dict[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "fsGroup": USER,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
