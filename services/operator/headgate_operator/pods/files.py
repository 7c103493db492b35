"""The files of a spec as a ConfigMap, which driver and executors mount. The service's settings name the files.

The ConfigMap is not that of the settings, because the settings contain the executor template, and the template names
the ConfigMap of the files.
"""

from __future__ import annotations

import json

from headgate_operator.pods.image import FILES_FOLDER
from headgate_operator.pods.labels import Manifest, content_name, labels, owned_metadata
from headgate_operator.reconcile.observed import Desired
from headgate_operator.resources.release import Release
from headgate_operator.resources.spec import StreamAppSpec

_VOLUME = "files"


def files_map(app: Desired, release: Release) -> Manifest | None:
    """Return the ConfigMap; None if the spec has no files."""
    spec = release.spec
    if not spec.files:
        return None
    metadata = owned_metadata(app, _name(app, spec), labels(app, "settings"))
    data = {_key(name): text for name, text in spec.files.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data, "immutable": True}


def files_volumes(app: Desired, spec: StreamAppSpec) -> list[Manifest]:
    """Return the volume with the files, each at its path; none if the spec has no files."""
    items = [{"key": _key(name), "path": name} for name in sorted(spec.files)]
    return [{"name": _VOLUME, "configMap": {"name": _name(app, spec), "items": items}}] if items else []


def files_mounts(spec: StreamAppSpec) -> list[Manifest]:
    """Return the mounts of ``files_volumes``."""
    return [{"name": _VOLUME, "mountPath": FILES_FOLDER, "readOnly": True}] if spec.files else []


def _name(app: Desired, spec: StreamAppSpec) -> str:
    return content_name(f"{app.stem}-files", json.dumps(spec.files, sort_keys=True))


def _key(name: str) -> str:
    """Return the file's name as a ConfigMap key: keys have no slash, and file names have no two dots in a row."""
    return name.replace("/", "..")
