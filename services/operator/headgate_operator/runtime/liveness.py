"""Is the loop alive? A key of its own goes through the same queue and the same workers, and asks the API server for the
same kind of thing that turns do. When it has come around, a file is touched; the liveness probe (``serving``) looks at
its age.

A hung worker, a queue that no worker takes from, an API server that does not answer: all leave the file to grow old.
An operator that waits to lead touches the file whenever the API server has confirmed that it must wait.
"""

from __future__ import annotations

import os
from pathlib import Path

from headgate_operator.runtime.api_client import Rest
from headgate_operator.runtime.api_paths import path
from headgate_operator.runtime.informer_cache import APPS, Key

CANARY: Key = ("", "")
EVERY_S = 15.0
STALE_S = 90.0


def file() -> Path:
    """Where it is."""
    return Path(os.environ.get("HEADGATE_CANARY", "/tmp/headgate-operator-canary"))  # noqa: S108 - the pod's own


def check_loop(rest: Rest, namespace: str) -> None:
    """One round, in the namespace that is watched, or in all."""
    rest.get(path(APPS, namespace), limit="1")
    file().touch()


def is_alive(now_s: float) -> bool:
    """Was it touched lately? ``now_s``: seconds since 1970."""
    try:
        return now_s - file().stat().st_mtime < STALE_S
    except OSError:
        return False
