"""Helpers for tests on a real API server: waiting, impersonation, and a small app."""

from __future__ import annotations

import time
from collections.abc import Callable

from headgate_operator.runtime.api_client import ApiError, Json, Rest
from headgate_operator.runtime.metrics import Counters


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


class AsUser(Rest):
    """Every request in another's name."""

    def __init__(self, kubeconfig: str, user: str) -> None:
        super().__init__(kubeconfig, Counters())
        self._user = user

    def _headers(self, content: str) -> dict[str, str]:
        return super()._headers(content) | {"Impersonate-User": self._user}


def app_manifest(namespace: str, **spec: object) -> Json:
    """Return the manifest of a small app with short deadlines."""
    defaults: Json = {
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
    return {"apiVersion": "headgate.dev/v1alpha1", "kind": "StreamApp", "metadata": metadata, "spec": defaults | spec}
