"""Is the loop alive? A key of its own goes through the same queue and the same workers, and asks the API server for the
same kind of thing that turns do. When it has come around, a file is touched; the liveness probe looks at its age.

A hung worker, a queue that nobody takes from, an API server that answers nobody: all leave the file to grow old.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from headgate_operator.shell.cache import APPS, Key
from headgate_operator.shell.paths import path
from headgate_operator.shell.rest import Rest

CANARY: Key = ("", "")
EVERY_S = 15.0
STALE_S = 90.0


def file() -> Path:
    """Where it is."""
    return Path(os.environ.get("HEADGATE_CANARY", "/tmp/headgate-operator-canary"))  # noqa: S108 - the pod's own


def sing(rest: Rest, namespace: str) -> None:
    """One round, in the namespace that is watched, or in all."""
    rest.get(path(APPS, namespace), limit="1")
    file().touch()


def main() -> int:
    """``python -m headgate_operator.shell.canary``: exit code 0 when the loop is alive."""
    try:
        age_s = time.time() - file().stat().st_mtime
    except OSError as error:
        sys.stderr.write(f"no round yet: {error}\n")
        return 1
    return 0 if age_s < STALE_S else 1


if __name__ == "__main__":
    sys.exit(main())
