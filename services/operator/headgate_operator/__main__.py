"""``python -m headgate_operator``: run until SIGTERM.

``docs/reference/environment.md`` has the environment variables.
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

from headgate_operator.runtime import health_server as serving
from headgate_operator.runtime import liveness
from headgate_operator.runtime.api_client import KUBECONFIG, ApiError, Rest
from headgate_operator.runtime.leader_election import LeaderElector
from headgate_operator.runtime.manager import Manager, Settings
from headgate_operator.runtime.metrics import Counters
from headgate_operator.runtime.namespace_teardown import remove_finalizers_with_namespace
from headgate_operator.runtime.otlp_traces import traces
from streamcore.codes import ExitCode
from streamcore.environment import EnvironmentVariable, Reader

_LOG = logging.getLogger("headgate_operator")
_POD_NAME = EnvironmentVariable(
    "POD_NAME", "Name of the operator's pod, for the lease of the leader.", Reader.OPERATOR, default="the host's name"
)
_POD_NAMESPACE = EnvironmentVariable(
    "POD_NAMESPACE", "Namespace of the operator's pod and of the lease.", Reader.OPERATOR, default="`default`"
)


class OperatorExit(ExitCode):
    """Exit codes of the operator."""

    STOPPED = (0, "The operator stops after SIGTERM or SIGINT.", "Nothing.")
    LEADERSHIP_LOST = (
        1,
        "Another replica leads, because this one could not renew its lease.",
        "Nothing: the pod restarts and waits. Look at the API server's latency if it happens often.",
    )


def main() -> int:
    """Run the operator with the arguments of the command line; return its exit code."""
    parser = argparse.ArgumentParser(prog="headgate-operator", description="Run StreamApps.")
    parser.add_argument("--namespace", default="", help="watch this namespace only")
    parser.add_argument("--port", type=int, default=0, help="port of /healthz and /metrics; 0: none")
    parser.add_argument("--workers", type=int, default=2, help="apps that are reconciled in parallel")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    counters = Counters()
    rest = Rest(os.environ.get(KUBECONFIG), counters)
    return run(rest, counters, Settings(arguments.namespace, arguments.workers), arguments.port)


def run(rest: Rest, counters: Counters, settings: Settings, port: int) -> int:
    """Wait for leadership, reconcile apps, and stop after SIGTERM or SIGINT. Return the exit code."""
    liveness.liveness_file().unlink(missing_ok=True)  # of an earlier process in the same pod
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    identity = f"{os.environ.get(_POD_NAME) or socket.gethostname()}-{os.getpid()}"
    namespace = os.environ.get(_POD_NAMESPACE, "default")
    leader = LeaderElector(rest, namespace, identity, _exit_without_leadership, on_wait=liveness.liveness_file().touch)
    threading.Thread(target=_run_after, args=(stop, leader.stop), daemon=True).start()
    upgrade_traces = traces(os.environ, counters)
    manager = Manager(rest, counters, settings, traces=upgrade_traces)
    if port:
        serving.serve(port, counters, manager.apps)
    if not leader.wait():
        return OperatorExit.STOPPED
    manager.start()
    _LOG.info("leads and works as %s", identity)
    stop.wait()
    manager.stop()
    _clean_up_namespace(rest, namespace)
    leader.release()
    upgrade_traces.close()  # after the release, so that the next leader does not wait for the endpoint
    return OperatorExit.STOPPED


def _clean_up_namespace(rest: Rest, namespace: str) -> None:
    try:
        remove_finalizers_with_namespace(rest, namespace)
    except ApiError as error:
        _LOG.warning("namespace %s: %s", namespace, error)


def _exit_without_leadership() -> None:
    # Without clean-up: another replica may lead already.
    os._exit(OperatorExit.LEADERSHIP_LOST)


def _run_after(stop: threading.Event, action: Callable[[], None]) -> None:
    stop.wait()
    action()


if __name__ == "__main__":
    sys.exit(main())
