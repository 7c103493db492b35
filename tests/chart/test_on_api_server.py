"""The chart on a real API server without nodes: installed, upgraded and uninstalled, with its own rights.

The operator and the hooks do what their pods would, in the names of the service accounts that the chart gives them.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import yaml

from headgate_operator.runtime.api_client import ApiError, Json, Rest
from headgate_operator.runtime.api_paths import path
from headgate_operator.runtime.helm_hooks import main as chores
from headgate_operator.runtime.helm_hooks import remove_apps
from headgate_operator.runtime.manager import Manager, Settings
from headgate_operator.runtime.metrics import Counters
from tests.harness.operator.api_server import AsUser, until
from tests.harness.operator.fixtures import _kubeconfig, _kubelet
from tests.harness.operator.jobs import FakeJob
from tests.harness.operator.kubelet import Kubelet
from tests.harness.servers.chart import CHART, program

__all__ = ["_kubeconfig", "_kubelet"]
_WITHIN_S = 120.0
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_OLD_COLUMN = {"name": "Old", "type": "string", "jsonPath": ".x"}
_SPEC: Json = {
    "upgrade": {"prepareDeadline": "60s", "stopDeadline": "30s", "proof": {"batches": 4, "within": "60s"}},
    "driver": {"terminationGrace": "5s"},
    "executors": 2,
}
_VALUES: Json = {"appDefaults": _SPEC, "image": {"tag": "1"}, "networkPolicy": {"enabled": True}}


@pytest.fixture(name="rest", scope="module")
def _rest(kubeconfig: str) -> Rest:
    return Rest(kubeconfig, Counters())


@pytest.fixture(name="namespace")
def _namespace(rest: Rest) -> Iterator[str]:
    """A namespace that admits only pods of the restricted profile."""
    name = f"c-{uuid.uuid4().hex[:8]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    rest.post(
        path("namespaces"), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    )
    yield name
    with suppress(ApiError):
        rest.delete(path("namespaces", name=name), "")


class Release:
    """The release ``demo`` in a namespace."""

    def __init__(self, kubeconfig: str, namespace: str) -> None:
        self._environment = os.environ | {"KUBECONFIG": kubeconfig}
        self.namespace, self.kubeconfig = namespace, kubeconfig

    def helm(self, *arguments: str, values: Json | None = None) -> str:
        """Run a command of Helm, which must succeed; return its output."""
        completed = subprocess.run(
            [program("helm"), *arguments, "-n", self.namespace, *(["-f", "-"] if values else [])],
            input=yaml.safe_dump(values) if values else "",
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=250,
        )
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    @contextmanager
    def hook(self, rest: Rest, component: str) -> Iterator[None]:
        """Run the pod of this hook within the context."""
        job = FakeJob(rest, self.namespace, component, self._run_as_pod)
        playing = job.start()
        yield
        playing.join(_WITHIN_S)
        assert job.pod, "the hook's pod never came"
        assert job.failed == []

    def _run_as_pod(self, pod: Json) -> int:
        args = pod["spec"]["containers"][0]["args"]
        assert args[:3] == ["python", "-m", "headgate_operator.runtime.helm_hooks"]
        user = f"system:serviceaccount:{self.namespace}:{pod['spec']['serviceAccountName']}"
        return chores(args[3:], AsUser(self.kubeconfig, user))


@pytest.fixture(name="release")
def _release(kubeconfig: str, namespace: str) -> Release:
    return Release(kubeconfig, namespace)


@pytest.fixture(name="operator")
def _operator(rest: Rest, kubeconfig: str, release: Release) -> Iterator[Manager]:
    with release.hook(rest, "crds"):
        release.helm("install", "demo", str(CHART), values=_VALUES)
    user = f"system:serviceaccount:{release.namespace}:demo-headgate-operator"
    operator = Manager(AsUser(kubeconfig, user), Counters(), Settings(release.namespace, resync_s=2.0))
    operator.start()
    yield operator
    operator.stop()


def _status(rest: Rest, namespace: str) -> Json:
    status: Json = rest.get(path("streamapps", namespace, "rules")).get("status", {})
    return status


def _is_stable(rest: Rest, namespace: str, version: str) -> bool:
    status = _status(rest, namespace)
    return bool(status.get("phase") == "Stable" and status.get("version") == version)


@pytest.mark.cluster
def test_a_release_can_be_installed_upgraded_and_uninstalled(
    rest: Rest, release: Release, kubelet: Kubelet, operator: Manager
) -> None:
    namespace = release.namespace
    until(lambda: _is_stable(rest, namespace, "1"), _WITHIN_S)
    (driver,) = rest.get(path("pods", namespace), labelSelector="headgate.dev/app=rules")["items"]
    assert driver["spec"]["containers"][0]["image"] == "headgate:1"

    crd = rest.get(f"{_CRDS}/streamapps.headgate.dev")
    crd["spec"]["versions"][0]["additionalPrinterColumns"].append(_OLD_COLUMN)
    rest.put(f"{_CRDS}/streamapps.headgate.dev", crd)
    with release.hook(rest, "crds"):
        release.helm("upgrade", "demo", str(CHART), values=_VALUES | {"image": {"tag": "2"}})
    columns = rest.get(f"{_CRDS}/streamapps.headgate.dev")["spec"]["versions"][0]["additionalPrinterColumns"]
    assert _OLD_COLUMN["name"] not in {column["name"] for column in columns}
    until(lambda: _is_stable(rest, namespace, "2"), _WITHIN_S)
    assert _status(rest, namespace)["upgrade"]["fromVersion"] == "1"

    with release.hook(rest, "uninstall"):
        release.helm("uninstall", "demo")
    operator.stop()
    assert rest.get(path("streamapps", namespace))["items"] == []
    assert [claim["metadata"]["name"] for claim in rest.get(path("persistentvolumeclaims", namespace))["items"]] == [
        "data-demo-headgate-kafka-0",
        "demo-headgate-checkpoints",
    ]
    assert rest.get(path("savepoints", namespace))["items"], "what can be restored stays"
    rest.delete(path("namespaces", name=namespace), "")
    until(lambda: not rest.get(path("savepoints", namespace))["items"], _WITHIN_S)
    assert kubelet.promoted_beside == []


@pytest.mark.cluster
def test_an_uninstall_without_its_hook_leaves_apps_with_their_finalizers(
    rest: Rest, release: Release, kubelet: Kubelet, operator: Manager
) -> None:
    del kubelet
    namespace = release.namespace
    until(lambda: _is_stable(rest, namespace, "1"), _WITHIN_S)
    operator.stop()  # as its Deployment goes in the same moment
    release.helm("uninstall", "demo", "--no-hooks")
    app = rest.get(path("streamapps", namespace, "rules"))["metadata"]
    assert app["deletionTimestamp"]
    assert app["finalizers"]
    assert remove_apps(rest, namespace, ["rules"], 1.0) == ("rules",)
    rest.merge(path("streamapps", namespace, "rules"), {"metadata": {"finalizers": None}})
    assert remove_apps(rest, namespace, ["rules"], 30.0) == ()


@pytest.mark.cluster
def test_a_namespace_with_the_restricted_profile_admits_every_pod_of_the_chart(
    rest: Rest, release: Release, operator: Manager
) -> None:
    del operator
    namespace = release.namespace
    wanted = {"operator", "kafka", "topics", "toolbox", "driver"}

    def components() -> set[str]:
        pods = rest.get(path("pods", namespace))["items"]
        return {pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in pods}

    until(lambda: components() >= wanted, _WITHIN_S)


@pytest.mark.cluster
def test_the_api_server_accepts_the_chart_with_every_option_on(rest: Rest, release: Release) -> None:
    with release.hook(rest, "crds"):
        release.helm("install", "demo", str(CHART), values=_VALUES)  # makes the CRDs
    others = {name: {"enabled": True} for name in ("etl", "sessions", "search")}
    files = {"rules": {"files": {"streams/orders.yaml": "name: orders\n"}}}
    values = _VALUES | {"apps": others | files, "operator": {"replicas": 2, "allNamespaces": True}}
    manifests = release.helm("upgrade", "demo", str(CHART), "--dry-run=server", values=values)
    assert manifests.count("kind: StreamApp") == 4
