"""The Secret with which Spark's driver and executors authenticate each other: one per app, created once.

The operator has the right to create Secrets, and not to read them; it does not keep the content of the one that it
creates. The name contains a part of the app's uid, so a later app of the same name gets another Secret.
"""

from __future__ import annotations

import base64

from headgate_operator.pods.image import SPARK_SECRET_FOLDER, SPARK_SECRET_KEY
from headgate_operator.pods.labels import Manifest, labels, owned_metadata
from headgate_operator.reconcile.observed import Desired
from headgate_operator.resources.spec import StreamAppSpec

_VOLUME = "spark"


def spark_secret_name(app: Desired) -> str:
    """Return the name of the app's Secret."""
    return f"{app.stem}-spark"


def spark_secret(app: Desired, text: str) -> Manifest:
    """Return the Secret.

    ``text``: the secret, at least 32 random characters. The caller must not log or keep the result.
    """
    data = {SPARK_SECRET_KEY: base64.b64encode(text.encode()).decode()}
    metadata = owned_metadata(app, spark_secret_name(app), labels(app, "driver"))
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data} | {
        "immutable": True
    }


def spark_volumes(app: Desired, spec: StreamAppSpec) -> list[Manifest]:
    """Return the volumes of the Secret; none without executors, because then no process has to authenticate."""
    volume = {"name": _VOLUME, "secret": {"secretName": spark_secret_name(app), "defaultMode": 0o440}}
    return [volume] if spec.executors else []


def spark_mounts(spec: StreamAppSpec) -> list[Manifest]:
    """Return the mounts of ``spark_volumes``."""
    return [{"name": _VOLUME, "mountPath": SPARK_SECRET_FOLDER, "readOnly": True}] if spec.executors else []
