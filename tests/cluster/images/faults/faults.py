"""The rules app with a fault, for trials of upgrades: takes the place of ``headgate_rules.__main__`` in an image."""

from __future__ import annotations

import os
import runpy
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from streamcore.service.lifecycle import ServiceProcess

#: Within the time of the proof, which takes at least 12 s.
_RUNS_S = 8.0


def none() -> None:
    """Make no change: another image with the same program."""


def never_ready() -> None:
    """Hang before the process is a standby."""
    time.sleep(86_400)


def ends_at_once() -> None:
    """Crash before the process is a standby."""
    os._exit(3)


def ends_later() -> None:
    """Crash after some committed batches."""
    _when_running(lambda: os._exit(3))


def stalls_later() -> None:
    """Suspend the JVM after some committed batches; the process stays alive and reports it."""

    def stop_java() -> None:
        for pid in _java():
            os.kill(pid, signal.SIGSTOP)

    _when_running(stop_java)


def never_runs() -> None:
    """Report that the app runs, and commit nothing."""
    from streamcore.spark.runner import Runner

    def run(_: Runner) -> None:
        time.sleep(86_400)

    Runner.run = run  # type: ignore[method-assign, assignment]


def _when_running(strike: Callable[[], object]) -> None:
    real = ServiceProcess._run_app

    def run(self: Any, *arguments: Any) -> None:
        threading.Timer(_RUNS_S, strike).start()
        real(self, *arguments)

    ServiceProcess._run_app = run  # type: ignore[method-assign, assignment]


def _java() -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/comm", encoding="ascii") as file:
                if file.read().strip() == "java":
                    found.append(int(name))
        except OSError:
            continue
    return found


FAULTS = {one.__name__: one for one in (none, never_ready, ends_at_once, ends_later, stalls_later, never_runs)}

if __name__ == "__main__":
    FAULTS.get(os.environ["HEADGATE_FAULT"], none)()
    runpy.run_module("headgate_rules.sound", run_name="__main__")
