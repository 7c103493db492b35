"""The liveness check of the reconcile loop.

A reserved key, ``LOOP_KEY``, goes through the queue and the workers like the key of an app; its reconciliation reads
from the API server and touches a file. The liveness probe (``health_server``) checks the age of the file. So the probe
fails if a worker hangs, no worker takes keys from the queue, or the API server does not answer. An operator that waits
for leadership touches the file after each attempt that finds another leader.
"""

from __future__ import annotations

import os
from pathlib import Path

from headgate_operator.runtime.api_client import Rest
from headgate_operator.runtime.api_paths import path
from headgate_operator.runtime.informer_cache import APPS, Key
from streamcore.environment import EnvironmentVariable, Reader

LOOP_KEY: Key = ("", "")
#: Interval of the check, and age of the file from which the probe fails, in seconds.
EVERY_S = 15.0
STALE_S = 90.0
_DEFAULT_FILE = "/tmp/headgate-operator-liveness"  # noqa: S108 - the pod's own
_FILE = EnvironmentVariable(
    "HEADGATE_LIVENESS_FILE",
    "File that the reconcile loop touches; the liveness probe checks its age.",
    Reader.OPERATOR,
    default=f"`{_DEFAULT_FILE}`",
)


def liveness_file() -> Path:
    """Return the path of the file that each check touches."""
    return Path(os.environ.get(_FILE, _DEFAULT_FILE))


def check_loop(rest: Rest, namespace: str) -> None:
    """Read from the API server, in the watched namespace or (empty) in all, and touch the file."""
    rest.get(path(APPS, namespace), limit="1")
    liveness_file().touch()


def is_alive(now_s: float) -> bool:
    """Return true if the file was touched in the last ``STALE_S`` seconds. ``now_s``: seconds since 1970."""
    try:
        return now_s - liveness_file().stat().st_mtime < STALE_S
    except OSError:
        return False
