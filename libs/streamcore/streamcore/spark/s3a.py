"""Spark's properties for a checkpoint in a bucket, from the names in the environment that other clients go by.

Spark writes its logs and its state by Hadoop's client (``s3a``), whose jars are not among Spark's own: they are in the
image, and in the lock ``s3``. A log's file is there once the last request for it was made, as a file manager of Spark's
promises that aborts what it cannot end; there is no rename. Keys are found by the client itself, in each process, in
the same order as AWS' other clients do; none is in a setting. Importing this module costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamcore.storage.location import ENDPOINTS, REGIONS

_S3A: Final = "spark.hadoop.fs.s3a"
_MANAGER: Final = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
_KEYS: Final = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"


def options(environment: Mapping[str, str]) -> dict[str, str]:
    """Spark's properties. A request is given up after half a minute, and tried six times at most."""
    found = {
        "spark.sql.streaming.checkpointFileManagerClass": _MANAGER,
        f"{_S3A}.aws.credentials.provider": _KEYS,
        f"{_S3A}.connection.establish.timeout": "15s",  # less is not taken
        f"{_S3A}.connection.timeout": "30s",
        f"{_S3A}.attempts.maximum": "6",
        f"{_S3A}.retry.limit": "6",
        f"{_S3A}.audit.enabled": "false",
    }
    if region := _first(REGIONS, environment):
        found[f"{_S3A}.endpoint.region"] = region
    if endpoint := _first(ENDPOINTS, environment):
        # Not Amazon's: what has an address of its own has no name a bucket.
        found |= {f"{_S3A}.endpoint": endpoint, f"{_S3A}.path.style.access": "true"}
        found[f"{_S3A}.connection.ssl.enabled"] = str(not endpoint.startswith("http://")).lower()
    return found


def _first(names: tuple[str, ...], environment: Mapping[str, str]) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")
