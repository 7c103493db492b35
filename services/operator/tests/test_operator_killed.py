"""On a real API server: the operator is killed after each of its writes, and every upgrade succeeds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate_operator.runtime.api_client import Json, Rest
from headgate_operator.runtime.api_paths import path
from tests.harness.operator.api_server import app_manifest, until
from tests.harness.operator.kubelet import Kubelet

_ROOT = Path(__file__).parents[3]
#: After how many of the first writes of an upgrade the operator is killed, each in a run of its own.
_KILLS = int(os.environ.get("HEADGATE_OPERATOR_KILLS", "4"))


class Operators:
    """The operator processes of ``crashing_operator``."""

    def __init__(self, namespace: str, kubeconfig: str) -> None:
        command = [sys.executable, "-m", "tests.harness.operator.crashing_operator", namespace]
        environment = os.environ | {"KUBECONFIG": kubeconfig}
        self._process = subprocess.Popen(
            command, cwd=_ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def restart(self, crash_after: int) -> None:
        """Replace the operator by one that crashes after a number of writes."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"run {crash_after}\n")
        self._process.stdin.flush()

    def stop(self) -> int:
        """End the operators; return how many crashed."""
        output, _ = self._process.communicate(timeout=30)
        return output.count("died")


@pytest.fixture(name="operators")
def _operators(namespace: str, kubeconfig: str) -> Iterator[Operators]:
    operators = Operators(namespace, kubeconfig)
    yield operators
    if operators._process.poll() is None:
        operators._process.communicate(timeout=30)


def _status(rest: Rest, namespace: str) -> Json:
    status: Json = rest.get(path("streamapps", namespace, "rules")).get("status", {})
    return status


def _is_stable(rest: Rest, namespace: str, version: str) -> bool:
    status = _status(rest, namespace)
    return status.get("phase") == "Stable" and status.get("stable", {}).get("version") == version


@pytest.mark.timeout(0)
def test_an_upgrade_succeeds_though_the_operator_is_killed_after_any_of_its_writes(
    rest: Rest, namespace: str, kubelet: Kubelet, operators: Operators
) -> None:
    rest.post(path("streamapps", namespace), app_manifest(namespace))
    until(lambda: _is_stable(rest, namespace, "1"), 120.0)
    runs = 0
    for number in range(1, _KILLS + 1):
        operators.restart(number)
        version = str(number + 1)
        rest.merge(path("streamapps", namespace, "rules"), {"spec": {"image": f"sim:{version}"}})
        until(lambda version=version: _is_stable(rest, namespace, version), 120.0)  # type: ignore[misc]
        upgrade = _status(rest, namespace)["upgrade"]
        assert (upgrade["outcome"], upgrade["number"]) == ("Succeeded", number + 1)
        runs = number
    crashes = operators.stop()
    print(f"{runs} upgrades, {crashes} crashes, {len(kubelet.store.outputs)} positions")
    assert crashes >= min(runs, 4)
    assert kubelet.promoted_beside == []
    assert set(kubelet.store.outputs) == {1}
