"""Measures a start from outside: when JVM, session, workers and the first cut are there.

The *session* is there when the driver reports ``running``; from then to ``workers`` it plans the first cut and starts
the query.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from tests.harness.apps.rules_app import AppUnderTest
from tests.harness.servers import processes

_POLL_S = 0.05
_LIMIT_S = 240.0
PARTS = ("jvm", "session", "workers", "cut")


class StartTimes(threading.Thread):
    """Watches the start that has just begun. ``seconds``: since then, by part; a part is missing if the start ended."""

    def __init__(self, app: AppUnderTest) -> None:
        super().__init__(daemon=True)
        self._app = app
        self._pid = app.pid
        self._number = app.starts
        self._began = time.monotonic()
        self._before = _written_ns(app)
        self.seconds: dict[str, float] = {}
        self.start()

    def run(self) -> None:
        """See ``threading.Thread``."""
        while "cut" not in self.seconds and self._app.starts == self._number and self._now() < _LIMIT_S:
            if not processes.members(self._pid):
                return
            self._note("jvm", bool(processes.jvms(self._pid)))
            self._note("session", "jvm" in self.seconds and self._is_running())
            self._note("workers", bool(processes.python_workers(self._pid)))
            self._note("cut", any(cut.start == self._number for cut in self._app.reported_cuts[-1:]))
            time.sleep(_POLL_S)

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _note(self, part: str, is_there: bool) -> None:
        if is_there:
            self.seconds.setdefault(part, round(self._now(), 2))

    def _is_running(self) -> bool:
        """Return whether the driver has reported ``running`` since the start."""
        file = Path(self._app.checkpoint, "status.json")
        try:
            if file.stat().st_mtime_ns == self._before:
                return False
            return bool(json.loads(file.read_text()).get("phase") == "running")
        except (OSError, ValueError):
            return False


def _written_ns(app: AppUnderTest) -> int:
    """Return when the status beside the checkpoint was written, 0 if there is none."""
    file = Path(app.checkpoint, "status.json")
    return file.stat().st_mtime_ns if file.exists() else 0
