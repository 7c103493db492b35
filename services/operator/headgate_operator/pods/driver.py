"""The manifest of a driver pod. Every driver starts as a standby; the operator promotes it later, by a command."""

from __future__ import annotations

from headgate_operator.pods.access import service_account_name
from headgate_operator.pods.image import (
    BLOCKS_PORT,
    DRIVER_PORT,
    METRICS_PORT,
    SETTINGS_FILE,
    SETTINGS_FOLDER,
)
from headgate_operator.pods.labels import REVISION, Manifest, driver_selector, labels, owned_metadata
from headgate_operator.pods.parts import pod_spec, shared_mounts, shared_volumes
from headgate_operator.pods.settings import settings_name
from headgate_operator.reconcile.observed import Desired
from headgate_operator.resources.release import Release

CONTAINER = "driver"


def driver_pod(app: Desired, release: Release, name: str, savepoint: str = "") -> Manifest:
    """Return the manifest of a driver pod of the release.

    ``savepoint``: the savepoint that the standby checks its compatibility with; empty for none.
    """
    spec = release.spec
    settings_volume = {"name": "settings", "configMap": {"name": settings_name(app, release)}}
    pod = pod_spec(spec, spec.driver, _container(release, savepoint), [settings_volume, *shared_volumes(app, release)])
    termination_grace_ms = spec.driver.termination_grace
    pod |= {
        "serviceAccountName": service_account_name(app),
        "terminationGracePeriodSeconds": max(1, termination_grace_ms // 1_000),
        "hostname": name,
        "subdomain": app.name,
    }
    selector_labels = driver_selector(app.name) | {REVISION: release.revision}
    metadata = owned_metadata(app, name, spec.driver.labels | labels(app, "driver", selector_labels))
    metadata["annotations"] = dict(spec.driver.annotations)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}


def _container(release: Release, savepoint: str) -> Manifest:
    """Return the driver's container: the service's process, which waits as a standby."""
    spec = release.spec
    standby = ["--standby", *(["--restore-from", savepoint] if savepoint else [])]
    return {
        "name": CONTAINER,
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "args": ["python", "-m", *spec.process, "--settings", SETTINGS_FILE, *standby],
        "env": [*_environment(release), *spec.driver.env],
        "resources": dict(spec.driver.resources),
        "ports": [
            {"name": "driver", "containerPort": DRIVER_PORT},
            {"name": "blocks", "containerPort": BLOCKS_PORT},
            {"name": "metrics", "containerPort": METRICS_PORT},
        ],
        "volumeMounts": [
            {"name": "settings", "mountPath": SETTINGS_FOLDER, "readOnly": True},
            *shared_mounts(spec),
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _environment(release: Release) -> list[Manifest]:
    """Return the environment variables that the operator sets; `docs/kubernetes.md` describes them."""
    fields = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP"}
    environment = {
        # The driver reads commands from annotations of its pod and reports its status there, instead of in files.
        "HEADGATE_CONTROL_CHANNEL": "pod",
        "HEADGATE_IMAGE": release.spec.image,
        "HEADGATE_VERSION": release.version,
        "HEADGATE_SAVEPOINTS": release.spec.savepoints_root,
    }
    return [
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
        *({"name": name, "value": value} for name, value in environment.items()),
    ]
