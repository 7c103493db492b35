"""The liveness check of the reconcile loop.

A key of its own goes through the same queue and the same workers as the apps, and sends the API server a request of the
same kind. Each round touches a file; the liveness probe (``health_server``) checks the file's age. A hung worker, a
queue without a worker and an API server that does not answer all let the file grow old. An operator that waits for the
leader's lease touches the file whenever the API server confirms that it must wait.
"""

from __future__ import annotations

import os
from pathlib import Path

from headgate_operator.runtime.api_client import Rest
from headgate_operator.runtime.api_paths import path
from headgate_operator.runtime.informer_cache import APPS, Key

LOOP_KEY: Key = ("", "")
EVERY_S = 15.0
STALE_S = 90.0


def liveness_file() -> Path:
    """Return the path of the file."""
    return Path(os.environ.get("HEADGATE_LIVENESS_FILE", "/tmp/headgate-operator-liveness"))  # noqa: S108 - the pod's own


def check_loop(rest: Rest, namespace: str) -> None:
    """Run one round, in the watched namespace or in all."""
    rest.get(path(APPS, namespace), limit="1")
    liveness_file().touch()


def is_alive(now_s: float) -> bool:
    """Return true when the file was touched lately. ``now_s``: seconds since 1970."""
    try:
        return now_s - liveness_file().stat().st_mtime < STALE_S
    except OSError:
        return False
