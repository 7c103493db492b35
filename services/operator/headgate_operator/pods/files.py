"""The files of a spec, which its settings name: a ConfigMap for each content, mounted in driver and executors.

Of its own beside the settings': executors mount it too, and the settings hold the executors' template, which names it.
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
    """Return the ConfigMap; None when the spec has no files."""
    spec = release.spec
    if not spec.files:
        return None
    metadata = owned_metadata(app, _name(app, spec), labels(app, "settings"))
    data = {_key(name): text for name, text in spec.files.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data, "immutable": True}


def files_volumes(app: Desired, spec: StreamAppSpec) -> list[Manifest]:
    """Return the volumes, each file at its own path."""
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
