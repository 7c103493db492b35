"""A ``StreamApp`` on the cluster: its status, the report of its driver, and upgrades."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.harness.cluster.kubectl import Namespace, wait_until

#: How old the lag in a report may be: the driver asks the broker for the ends of its topics every five seconds.
_LAG_AGE_MS = 7_000
#: Phases in which nothing is under way.
AT_REST = ("Stable", "RolledBack", "NeedsHuman", "Suspended")


@dataclass(frozen=True, slots=True)
class App:
    """One app, by its name."""

    namespace: Namespace
    name: str

    @property
    def status(self) -> dict[str, Any]:
        """Return the status of the resource."""
        return dict(self.namespace.get("streamapp", self.name).get("status") or {})

    @property
    def phase(self) -> str:
        """Return the phase."""
        return str(self.status.get("phase", ""))

    def drivers(self) -> list[dict[str, Any]]:
        """Return the driver pods that have not ended."""
        pods = self.namespace.items("pods", "-l", f"headgate.dev/app={self.name}")
        return [pod for pod in pods if pod["status"]["phase"] in ("Pending", "Running")]

    def executors(self) -> list[str]:
        """Return the names of the running executor pods."""
        marks = f"app.kubernetes.io/instance={self.name},app.kubernetes.io/component=executor"
        pods = self.namespace.items("pods", "-l", marks)
        return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]

    def report(self) -> dict[str, Any]:
        """Return the report of the running driver; empty while there is none."""
        texts = [pod["metadata"].get("annotations", {}).get("headgate.dev/status") for pod in self.drivers()]
        reports = [json.loads(text) for text in texts if text]
        return next((one for one in reports if one["phase"] == "running"), {})

    def change(self, spec: Mapping[str, object]) -> None:
        """Edit the spec."""
        self.namespace.patch("streamapp", self.name, {"spec": spec})

    def wait_until_seen(self, limit_s: float) -> None:
        """Wait until the operator has seen the newest spec and nothing is under way."""

        def seen() -> bool:
            app = self.namespace.get("streamapp", self.name)
            status = app.get("status") or {}
            return status.get("observedGeneration") == app["metadata"]["generation"] and status["phase"] in AT_REST

        wait_until(seen, limit_s, f"{self.name} is at rest", self.describe_failure)

    def wait_until_phase(self, phase: str, limit_s: float) -> float:
        """Wait until the app is in this phase; return the seconds."""
        return wait_until(lambda: self.phase == phase, limit_s, f"{self.name} is {phase}", self.describe_failure)

    def wait_until_upgraded(self, after: int, limit_s: float) -> str:
        """Wait for the end of an upgrade after this number; return its outcome."""

        def ended() -> bool:
            upgrade = self.status.get("upgrade") or {}
            return bool(upgrade.get("number", 0) > after and upgrade.get("outcome"))

        wait_until(ended, limit_s, f"the upgrade of {self.name} ends", self.describe_failure)
        return str(self.status["upgrade"]["outcome"])

    @property
    def upgrades(self) -> int:
        """Return the number of the last upgrade."""
        return int((self.status.get("upgrade") or {}).get("number", 0))

    def wait_until_idle(self, limit_s: float) -> None:
        """Wait until it runs and nothing waits, by a report whose lag was measured after this call."""
        since_ms = time.time() * 1_000 + _LAG_AGE_MS

        def idle() -> bool:
            report = self.report()
            return bool(report and report["committed"] and report["lag_rows"] == 0 and report["at_ms"] >= since_ms)

        wait_until(idle, limit_s, f"{self.name} has read all", self.describe_failure)

    def describe_failure(self) -> str:
        """Return status, pods, logs and events, for the message of a failure."""
        pods = self.namespace.kubectl("get", "pods", "-o", "wide")
        logs = [
            self.namespace.kubectl("logs", pod["metadata"]["name"], "--tail=15")
            for pod in self.namespace.items("pods", "-l", f"headgate.dev/app={self.name}")
            if pod["status"]["phase"] != "Pending"
        ]
        return "\n".join([json.dumps(self.status)[:3_000], pods, *logs, self.namespace.events()])
