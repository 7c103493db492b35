"""Runs ``kubectl`` and ``helm``, and waits for conditions."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

KUBECONFIG = os.environ.get("KUBECONFIG", "")
_POLL_S = 0.5


def run(*command: str, given: str = "", limit_s: float = 120.0) -> str:
    """Run a command; return its standard output. ``RuntimeError`` with its output if it fails."""
    completed = subprocess.run(command, input=given, capture_output=True, text=True, timeout=limit_s, check=False)
    if completed.returncode:
        raise RuntimeError(
            f"{' '.join(command)}: exit code {completed.returncode}: {completed.stderr.strip() or completed.stdout}"
        )
    return completed.stdout


def wait_until(
    condition: Callable[[], bool], limit_s: float, what: str, describe: Callable[[], str] = lambda: ""
) -> float:
    """Wait for a condition; return the seconds. ``TimeoutError`` with the result of ``describe``."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > limit_s:
            raise TimeoutError(f"{what}: not within {limit_s:.0f} s. {describe()}")
        time.sleep(_POLL_S)
    return time.monotonic() - began


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace of the cluster."""

    name: str

    def kubectl(self, *arguments: str, given: str = "", limit_s: float = 120.0) -> str:
        """Run the command in the namespace; return its output."""
        return run("kubectl", "-n", self.name, *arguments, given=given, limit_s=limit_s)

    def helm(self, *arguments: str, limit_s: float = 600.0) -> str:
        """Run the command in the namespace; return its output."""
        return run("helm", "-n", self.name, *arguments, limit_s=limit_s)

    def get(self, *what: str) -> dict[str, Any]:
        """Return an object, or a list of objects."""
        found = json.loads(self.kubectl("get", *what, "-o", "json"))
        assert isinstance(found, dict)
        return found

    def find(self, *what: str) -> dict[str, Any] | None:
        """Return an object; None if it does not exist."""
        text = self.kubectl("get", *what, "-o", "json", "--ignore-not-found")
        return json.loads(text) if text.strip() else None

    def items(self, *what: str) -> list[dict[str, Any]]:
        """Return the objects of a list."""
        return list(self.get(*what)["items"])

    def apply(self, manifest: Mapping[str, object]) -> None:
        """Apply a manifest."""
        self.kubectl("apply", "-f", "-", given=json.dumps(manifest))

    def patch(self, what: str, name: str, change: Mapping[str, object]) -> None:
        """Merge a change."""
        self.kubectl("patch", what, name, "--type=merge", "-p", json.dumps(change))

    def events(self) -> str:
        """Return the latest events."""
        return self.kubectl("get", "events", "--sort-by=.lastTimestamp")[-4_000:]
