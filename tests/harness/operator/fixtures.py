"""An API server for tests that want a real one: ``HEADGATE_KUBECONFIG`` names it. It needs no nodes."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from headgate_operator.runtime.api_client import ApiError, Rest
from headgate_operator.runtime.api_paths import path
from headgate_operator.runtime.metrics import Counters
from tests.harness.operator.api_server import until
from tests.harness.operator.kubelet import Kubelet

_CRDS = Path(__file__).parents[3] / "charts/headgate/crds"
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


@pytest.fixture(name="namespace")
def _namespace(rest: Rest) -> Iterator[str]:
    name = f"t-{uuid.uuid4().hex[:8]}"
    rest.post(path("namespaces"), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    for plural in ("streamapps", "savepoints"):
        for raw in rest.get(path(plural, name))["items"]:
            rest.merge(path(plural, name, raw["metadata"]["name"]), {"metadata": {"finalizers": None}})
    with suppress(ApiError):
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
