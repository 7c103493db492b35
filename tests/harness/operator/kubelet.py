"""A fake kubelet of one node: it binds pods, reports their status, and simulates their drivers.

For an API server without nodes. Drivers are those of the simulation; the image of a pod names its fault.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from headgate_operator.runtime.api_client import ApiError, Json, Rest
from headgate_operator.runtime.api_paths import path
from streamcore.control.commands import COMMAND_ANNOTATION
from streamcore.control.status import STATUS_ANNOTATION
from tests.harness.operator.driver import Driver, Image
from tests.harness.operator.store import Store

NODE = "fake"
_MANAGED = "app.kubernetes.io/managed-by=headgate-operator"


@dataclass
class PodProcess:
    """The process of a pod."""

    driver: Driver | None
    report: str = ""
    ended: bool = False


@dataclass
class Kubelet:
    """``store``: the checkpoint root of the drivers. ``promoted_beside``: pods promoted while another ran."""

    rest: Rest
    namespace: str
    store: Store = field(default_factory=Store)
    images: dict[str, Image] = field(default_factory=dict)
    pods: dict[str, PodProcess] = field(default_factory=dict)
    promoted_beside: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    ignores_deletion: bool = False
    error: str = ""

    def start(self) -> None:
        """Create the node, and start the threads."""
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        with suppress(ApiError):
            self.rest.post(path("nodes"), node)
        threading.Thread(target=self._run, name="kubelet", daemon=True).start()
        threading.Thread(target=self._report_node, name="node", daemon=True).start()

    def _report_node(self) -> None:
        while not self.stop.is_set():
            now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            with suppress(ApiError):
                condition = {
                    "type": "Ready",
                    "status": "True",
                    "reason": "Fake",
                    "message": "",
                    "lastHeartbeatTime": now,
                }
                self.rest.merge(path("nodes", name=NODE, part="status"), {"status": {"conditions": [condition]}})
            self.stop.wait(5.0)

    def _run(self) -> None:
        while not self.stop.is_set():
            try:
                for raw in self.rest.get(path("pods", self.namespace), labelSelector=_MANAGED)["items"]:
                    with suppress(ApiError):
                        self._sync(raw)
            except ApiError as error:
                self.error = str(error)
            self.stop.wait(0.03)

    def _sync(self, raw: Json) -> None:
        meta, name = raw["metadata"], raw["metadata"]["name"]
        if not raw["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            self.rest.post(path("pods", self.namespace, name, "binding"), binding)
            return
        process = self.pods.get(meta["uid"])
        if process is None:
            process = self.pods[meta["uid"]] = PodProcess(self._new_driver(raw))
            self._write_status(name, "Running", {"running": {"startedAt": meta["creationTimestamp"]}})
        self._tick(raw, process)
        if meta.get("deletionTimestamp"):
            self._delete(raw, process)

    def _new_driver(self, raw: Json) -> Driver | None:
        container = raw["spec"]["containers"][0]
        if container["name"] != "driver":
            return None
        image = self.images.get(container["image"]) or Image(container["image"])
        return Driver(raw["metadata"]["uid"], image, self.store, random.Random(raw["metadata"]["name"]))

    def _tick(self, raw: Json, process: PodProcess) -> None:
        name, driver = raw["metadata"]["name"], process.driver
        if driver is None:
            if not process.ended:
                process.ended = True
                self._write_status(name, "Succeeded", {"terminated": {"exitCode": 0}})
            return
        if process.ended:
            return
        annotations = raw["metadata"].get("annotations") or {}
        if annotations.get(COMMAND_ANNOTATION):
            driver.receive_request(annotations[COMMAND_ANNOTATION])
        before = driver.phase
        now_ms = time.time_ns() // 1_000_000
        driver.tick(now_ms)
        if before == "standby" and driver.phase == "running":
            self._check_alone(driver)
        report = driver.report(0)
        if report != process.report:
            process.report = report
            self.rest.merge(
                path("pods", self.namespace, name),
                {"metadata": {"annotations": {STATUS_ANNOTATION: driver.report(now_ms)}}},
            )
        if driver.ended:
            process.ended = True
            phase = "Succeeded" if driver.code == 0 else "Failed"
            self._write_status(name, phase, {"terminated": {"exitCode": driver.code}})

    def _check_alone(self, driver: Driver) -> None:
        running = [p.driver for p in self.pods.values() if p.driver is not None and p.driver is not driver]
        if any(other.phase == "running" and not other.ended for other in running):
            self.promoted_beside.append(driver.uid)

    def _delete(self, raw: Json, process: PodProcess) -> None:
        name = raw["metadata"]["name"]
        if self.ignores_deletion:
            return
        if process.driver is not None and not process.ended:
            process.driver.kill()
            if self.store.owner == process.driver.uid:
                self.store.owner = ""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": raw["metadata"]["uid"]}}
        self.rest._call("DELETE", path("pods", self.namespace, name), body)

    def _write_status(self, name: str, phase: str, state: Json) -> None:
        container = {"name": "driver", "state": state, "ready": False, "restartCount": 0, "image": "", "imageID": ""}
        body = {"status": {"phase": phase, "containerStatuses": [container]}}
        self.rest.merge(path("pods", self.namespace, name, "status"), body)
