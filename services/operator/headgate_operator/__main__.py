"""``python -m headgate_operator``: run until SIGTERM. Exit code 1 when another one leads.

Environment: ``POD_NAME``, ``POD_NAMESPACE``; ``KUBECONFIG`` outside of a cluster.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable

from headgate_operator.shell.counters import Counters
from headgate_operator.shell.leading import Leader
from headgate_operator.shell.rest import Rest
from headgate_operator.shell.running import Operator, Settings

_LOG = logging.getLogger("headgate_operator")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="headgate-operator", description="Run StreamApps.")
    parser.add_argument("--namespace", default="", help="watch this namespace only")
    parser.add_argument("--workers", type=int, default=2, help="apps that are looked at side by side")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    counters = Counters()
    rest = Rest(os.environ.get("KUBECONFIG"), counters)
    return run(rest, counters, Settings(arguments.namespace, arguments.workers))


def run(rest: Rest, counters: Counters, settings: Settings) -> int:
    """Lead, work, stop when told to."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    me = f"{os.environ.get('POD_NAME') or socket.gethostname()}-{os.getpid()}"
    leader = Leader(rest, os.environ.get("POD_NAMESPACE", "default"), me, lambda: os._exit(1))
    threading.Thread(target=_when_stopped, args=(stop, leader.stop), daemon=True).start()
    if not leader.wait():
        return 0
    operator = Operator(rest, counters, settings)
    operator.start()
    _LOG.info("leads and works as %s", me)
    stop.wait()
    operator.stop()
    leader.release()
    return 0


def _when_stopped(stop: threading.Event, do: Callable[[], None]) -> None:
    stop.wait()
    do()


if __name__ == "__main__":
    sys.exit(main())
