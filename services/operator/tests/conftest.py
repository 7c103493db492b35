"""An API server for tests that want a real one: ``HEADGATE_KUBECONFIG`` names it. It needs no nodes."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from headgate_operator.shell.counters import Counters
from headgate_operator.shell.paths import path
from headgate_operator.shell.rest import ApiError, Json, Rest
from tests.harness.operator.kubelet import Kubelet

_CRDS = Path(__file__).parents[3] / "charts/headgate/files/crds"
_CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(name="kubeconfig", scope="session")
def _kubeconfig() -> str:
    named = os.environ.get("HEADGATE_KUBECONFIG", "")
    if not named:
        pytest.skip("HEADGATE_KUBECONFIG names no cluster: an API server with controllers is enough")
    return named


@pytest.fixture(name="rest", scope="session")
def _rest(kubeconfig: str) -> Rest:
    rest = Rest(kubeconfig, Counters())
    for file in sorted(_CRDS.glob("*.yaml")):
        crd = yaml.safe_load(file.read_text())
        rest.apply(f"{_CRD_PATH}/{crd['metadata']['name']}", crd)
    for plural in ("streamapps", "savepoints"):
        until(lambda plural=plural: rest.get(path(plural)), 20.0)  # type: ignore[misc]
    return rest


def until(condition: Callable[[], object], within_s: float) -> None:
    """Wait for it; an API error is a no."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            if condition():
                return
        except ApiError as error:
            if time.monotonic() > deadline:
                raise AssertionError(str(error)) from error
        assert time.monotonic() < deadline, "it did not come to be in time"
        time.sleep(0.05)


@pytest.fixture(name="namespace")
def _namespace(rest: Rest) -> Iterator[str]:
    name = f"t-{uuid.uuid4().hex[:8]}"
    rest.post(path("namespaces"), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    for plural in ("streamapps", "savepoints"):
        for raw in rest.get(path(plural, name))["items"]:
            rest.merge(path(plural, name, raw["metadata"]["name"]), {"metadata": {"finalizers": None}})
    rest.delete(path("namespaces", name=name), "")
    for raw in rest.get(path("pods", name))["items"]:  # their kubelet has ended before
        with suppress(ApiError):
            rest._call("DELETE", path("pods", name, raw["metadata"]["name"]), {"gracePeriodSeconds": 0})


@pytest.fixture(name="kubelet")
def _kubelet(rest: Rest, namespace: str) -> Iterator[Kubelet]:
    kubelet = Kubelet(rest, namespace)
    kubelet.start()
    yield kubelet
    kubelet.stop.set()


def app_manifest(namespace: str, **spec: object) -> Json:
    """A small app with short deadlines."""
    said: Json = {
        "service": "rules",
        "image": "sim:1",
        "config": {"level": 0},
        "checkpoint": {"root": "/checkpoints"},
        "upgrade": {
            "prepareDeadline": "60s",
            "stopDeadline": "30s",
            "startDeadline": "60s",
            "proof": {"batches": 8, "within": "60s"},
        },
        "savepoints": {"keep": 3},
        "deletionDeadline": "60s",
        "driver": {"terminationGrace": "5s"},
    }
    metadata = {"name": "rules", "namespace": namespace}
    return {"apiVersion": "headgate.dev/v1alpha1", "kind": "StreamApp", "metadata": metadata, "spec": said | spec}
