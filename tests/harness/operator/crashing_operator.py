"""Operator processes that kill themselves after a number of writes.

``python -m tests.harness.operator.crashing_operator NAMESPACE`` reads lines ``run N``: replace the operator by one that
kills itself (SIGKILL) after its Nth write, or never if N is 0. An operator that died is replaced by one that does not.
Everything is imported once; operators are forks.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import threading
from typing import Any

from headgate_operator.runtime.api_client import Rest
from headgate_operator.runtime.manager import Manager, Settings
from headgate_operator.runtime.metrics import Counters


class CrashingRest(Rest):
    """Kills the process after a number of writes, without those of leases and events."""

    def __init__(self, kubeconfig: str | None, counters: Counters, crash_after: int) -> None:
        super().__init__(kubeconfig, counters)
        self._left, self._counting = crash_after, threading.Lock()

    def _send(self, method: str, path: str, *rest: Any) -> Any:
        made = super()._send(method, path, *rest)
        if method != "GET" and "/events" not in path and "/leases" not in path:
            with self._counting:
                self._left -= 1
                if self._left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        return made


def _start_operator(namespace: str, crash_after: int) -> int:
    child = os.fork()
    if child == 0:
        counters = Counters()
        rest = CrashingRest(os.environ["KUBECONFIG"], counters, crash_after)
        Manager(rest, counters, Settings(namespace, workers=1, resync_s=2.0)).start()
        threading.Event().wait()
    return child


def main(namespace: str) -> None:
    """Run operators until standard input ends."""
    child = _start_operator(namespace, 0)
    chosen = selectors.DefaultSelector()
    chosen.register(sys.stdin, selectors.EVENT_READ)
    while True:
        if chosen.select(timeout=0.02):
            line = sys.stdin.readline()
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            if not line:
                return
            child = _start_operator(namespace, int(line.split()[1]))
            print("started", flush=True)
        elif os.waitpid(child, os.WNOHANG)[0]:
            print("died", flush=True)
            child = _start_operator(namespace, 0)


if __name__ == "__main__":
    main(sys.argv[1])
