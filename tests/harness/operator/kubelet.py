"""A kubelet of one node that runs no container: it binds pods, writes their status as a kubelet does, and plays
their drivers.

For an API server without nodes. Drivers are those of the simulation; a pod's image names what is wrong with it.
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

NODE = "played"
_MANAGED = "app.kubernetes.io/managed-by=headgate-operator"


@dataclass
class Played:
    """A pod and its process."""

    driver: Driver | None
    report: str = ""
    ended: bool = False


@dataclass
class Kubelet:
    """One thread. ``store``: the root that the drivers share. ``beside``: pods that were promoted beside another
    one.
    """

    rest: Rest
    namespace: str
    store: Store = field(default_factory=Store)
    images: dict[str, Image] = field(default_factory=dict)
    pods: dict[str, Played] = field(default_factory=dict)
    beside: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    deaf: bool = False
    error: str = ""

    def start(self) -> None:
        """The node, then the thread."""
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        with suppress(ApiError):
            self.rest.post(path("nodes"), node)
        threading.Thread(target=self._run, name="kubelet", daemon=True).start()
        threading.Thread(target=self._beat, name="node", daemon=True).start()

    def _beat(self) -> None:
        while not self.stop.is_set():
            now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            with suppress(ApiError):
                condition = {
                    "type": "Ready",
                    "status": "True",
                    "reason": "Played",
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
                        self._play(raw)
            except ApiError as error:
                self.error = str(error)
            self.stop.wait(0.03)

    def _play(self, raw: Json) -> None:
        meta, name = raw["metadata"], raw["metadata"]["name"]
        if not raw["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            self.rest.post(path("pods", self.namespace, name, "binding"), binding)
            return
        played = self.pods.get(meta["uid"])
        if played is None:
            played = self.pods[meta["uid"]] = Played(self._driver(raw))
            self._status(name, "Running", {"running": {"startedAt": meta["creationTimestamp"]}})
        self._live(raw, played)
        if meta.get("deletionTimestamp"):
            self._leave(raw, played)

    def _driver(self, raw: Json) -> Driver | None:
        container = raw["spec"]["containers"][0]
        if container["name"] != "driver":
            return None
        image = self.images.get(container["image"]) or Image(container["image"])
        return Driver(raw["metadata"]["uid"], image, self.store, random.Random(raw["metadata"]["name"]))

    def _live(self, raw: Json, played: Played) -> None:
        name, driver = raw["metadata"]["name"], played.driver
        if driver is None:
            if not played.ended:
                played.ended = True
                self._status(name, "Succeeded", {"terminated": {"exitCode": 0}})
            return
        if played.ended:
            return
        marks = raw["metadata"].get("annotations") or {}
        if marks.get(COMMAND_ANNOTATION):
            driver.ask(marks[COMMAND_ANNOTATION])
        before = driver.phase
        now_ms = time.time_ns() // 1_000_000
        driver.tick(now_ms)
        if before == "standby" and driver.phase == "running":
            self._check_alone(driver)
        report = driver.report(0)
        if report != played.report:
            played.report = report
            self.rest.merge(
                path("pods", self.namespace, name),
                {"metadata": {"annotations": {STATUS_ANNOTATION: driver.report(now_ms)}}},
            )
        if driver.ended:
            played.ended = True
            phase = "Succeeded" if driver.code == 0 else "Failed"
            self._status(name, phase, {"terminated": {"exitCode": driver.code}})

    def _check_alone(self, driver: Driver) -> None:
        running = [p.driver for p in self.pods.values() if p.driver is not None and p.driver is not driver]
        if any(other.phase == "running" and not other.ended for other in running):
            self.beside.append(driver.uid)

    def _leave(self, raw: Json, played: Played) -> None:
        name = raw["metadata"]["name"]
        if self.deaf:
            return
        if played.driver is not None and not played.ended:
            played.driver.kill()
            if self.store.owner == played.driver.uid:
                self.store.owner = ""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": raw["metadata"]["uid"]}}
        self.rest._call("DELETE", path("pods", self.namespace, name), body)

    def _status(self, name: str, phase: str, state: Json) -> None:
        container = {"name": "driver", "state": state, "ready": False, "restartCount": 0, "image": "", "imageID": ""}
        body = {"status": {"phase": phase, "containerStatuses": [container]}}
        self.rest.merge(path("pods", self.namespace, name, "status"), body)
