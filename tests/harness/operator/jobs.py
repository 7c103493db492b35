"""A fake pod of a Job, for an API server without nodes: a function does its work, and its status gets its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from headgate_operator.runtime.api_client import Json, Rest
from headgate_operator.runtime.api_paths import path
from tests.harness.operator.api_server import until
from tests.harness.operator.kubelet import NODE


@dataclass
class FakeJob:
    """The first pod of a Job with this component label. ``run_pod`` takes the pod and returns the exit code."""

    rest: Rest
    namespace: str
    component: str
    run_pod: Callable[[Json], int]
    within_s: float = 120.0
    pod: Json = field(default_factory=dict)
    failed: list[BaseException] = field(default_factory=list)

    def start(self) -> threading.Thread:
        """Start a thread that runs the pod; the caller joins it."""
        thread = threading.Thread(target=self._run, name=f"job {self.component}", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        try:
            until(self._find_pod, self.within_s)
            name = self.pod["metadata"]["name"]
            self._bind(name)
            code = self.run_pod(self.pod)
            self._end(name, code)
        except BaseException as error:
            self.failed.append(error)

    def _find_pod(self) -> bool:
        selector = f"app.kubernetes.io/component={self.component}"
        listed = self.rest.get(path("pods", self.namespace), labelSelector=selector)["items"]
        new = [pod for pod in listed if pod["status"]["phase"] == "Pending" and not pod["spec"].get("nodeName")]
        self.pod = new[0] if new else {}
        return bool(new)

    def _bind(self, name: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self.rest.post(path("pods", self.namespace, name, "binding"), binding)

    def _end(self, name: str, code: int) -> None:
        container = self.pod["spec"]["containers"][0]["name"]
        state = {"terminated": {"exitCode": code}}
        container_status = {
            "name": container,
            "state": state,
            "ready": False,
            "restartCount": 0,
            "image": "",
            "imageID": "",
        }
        phase = "Failed" if code else "Succeeded"
        body = {"status": {"phase": phase, "containerStatuses": [container_status]}}
        self.rest.merge(path("pods", self.namespace, name, "status"), body)
