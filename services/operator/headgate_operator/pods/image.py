"""The operator's knowledge of the image: users, paths, ports. One image for drivers, executors and the command."""

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
#: The volume there, of a driver, and of an executor: Spark knows the second by its name and adds no other.
SCRATCH_VOLUME = "scratch"
EXECUTOR_SCRATCH_VOLUME = "spark-local-dir-1"
DRIVER_PORT = 7078
BLOCKS_PORT = 7079
METRICS_PORT = 9464

#: What the "restricted" profile of pod security demands, and a read-only root file system.
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
