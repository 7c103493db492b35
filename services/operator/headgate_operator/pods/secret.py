"""The Secret by which Spark's driver and executors know each other: one an app, made once, read by pods only.

The operator may create Secrets and read none, so it cannot know the content of an existing one; it forgets its own.
The name has a part of the app's uid, so an app that is made anew never waits for the Secret of the one before.
"""

from __future__ import annotations

import base64

from headgate_operator.pods.image import SPARK_SECRET_FOLDER, SPARK_SECRET_KEY
from headgate_operator.pods.labels import Manifest, labels, owned_metadata
from headgate_operator.reconcile.observed import Desired
from headgate_operator.resources.spec import StreamAppSpec

_VOLUME = "spark"


def spark_secret_name(app: Desired) -> str:
    """Return the name of the Secret of this app; a later app of the same name gets another one."""
    return f"{app.stem}-spark"


def spark_secret(app: Desired, text: str) -> Manifest:
    """Return the Secret. ``text``: random, at least 32 characters. The caller keeps this manifest private."""
    data = {SPARK_SECRET_KEY: base64.b64encode(text.encode()).decode()}
    metadata = owned_metadata(app, spark_secret_name(app), labels(app, "driver"))
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data} | {
        "immutable": True
    }


def spark_volumes(app: Desired, spec: StreamAppSpec) -> list[Manifest]:
    """Return the volumes of the Secret; none without executors, because then no process has to authenticate."""
    made = {"name": _VOLUME, "secret": {"secretName": spark_secret_name(app), "defaultMode": 0o440}}
    return [made] if spec.executors else []


def spark_mounts(spec: StreamAppSpec) -> list[Manifest]:
    """Return the mounts of ``spark_volumes``."""
    return [{"name": _VOLUME, "mountPath": SPARK_SECRET_FOLDER, "readOnly": True}] if spec.executors else []
