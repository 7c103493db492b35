"""One operator leads; when it ends, the next one leads; operators do not compare clocks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

from headgate.local.servers.base import free_port
from headgate_operator.runtime.api_client import Rest
from headgate_operator.runtime.api_paths import path
from headgate_operator.runtime.leader_election import LEASE, LeaderElector
from tests.harness.operator.api_server import until

_ROOT = Path(__file__).parents[4]


def _holder(rest: Rest, namespace: str) -> str:
    return str(rest.get(path("leases", namespace, LEASE))["spec"]["holderIdentity"])


def test_the_second_operator_leads_when_the_first_stops_renewing(rest: Rest, namespace: str) -> None:
    lost: list[str] = []
    first = LeaderElector(rest, namespace, "first", lambda: lost.append("first"), stale_s=2.0)
    second = LeaderElector(rest, namespace, "second", lambda: lost.append("second"), stale_s=2.0)
    assert first.wait()
    waits = threading.Event()
    second._on_wait = waits.set
    waiting = threading.Thread(target=second.wait, daemon=True)
    waiting.start()
    time.sleep(3.0)
    assert waiting.is_alive(), "the first one lives"
    assert waits.is_set(), "and the second says that it is well"
    assert _holder(rest, namespace) == "first"
    first.stop()
    waiting.join(30.0)
    assert _holder(rest, namespace) == "second"
    assert lost == []
    second.release()


def test_another_operator_leads_as_soon_as_the_leader_releases_the_lease(rest: Rest, namespace: str) -> None:
    first = LeaderElector(rest, namespace, "first", lambda: None, stale_s=60.0)
    assert first.wait()
    first.release()
    second = LeaderElector(rest, namespace, "second", lambda: None, stale_s=60.0)
    assert second.wait()
    assert _holder(rest, namespace) == "second"
    second.release()


def test_a_replaced_leader_learns_that_it_lost_the_lease(rest: Rest, namespace: str) -> None:
    lost = threading.Event()
    first = LeaderElector(rest, namespace, "first", lost.set, stale_s=1.0)
    assert first.wait()
    rest.merge(path("leases", namespace, LEASE), {"spec": {"holderIdentity": "other"}})
    assert lost.wait(30.0)


def test_the_process_leads_answers_probes_and_releases_the_lease_at_sigterm(
    rest: Rest, namespace: str, kubeconfig: str, tmp_path: Path
) -> None:
    liveness, port = tmp_path / "liveness", free_port()
    environment = os.environ | {
        "KUBECONFIG": kubeconfig,
        "POD_NAMESPACE": namespace,
        "HEADGATE_LIVENESS_FILE": str(liveness),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "headgate_operator", "--namespace", namespace, "--port", str(port)],
        cwd=_ROOT,
        env=environment,
    )
    try:
        until(liveness.exists, 120.0)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as response:
            assert response.status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60.0) == 0
        assert _holder(rest, namespace) == ""
    finally:
        process.kill()
        process.wait()
