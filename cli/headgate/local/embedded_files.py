"""The files that every local server has in its folder: its log, and a note of which process it is.

Refuses to know what the server is; each kind adds its own settings and folders.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Running:
    """A server that was started: its process and its port."""

    pid: int
    port: int


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """Where everything of one server is. ``folder`` is its own and may be deleted while it does not run."""

    folder: Path

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.folder / "server.log"

    @property
    def run(self) -> Path:
        """Process and port of the latest start."""
        return self.folder / "running.json"

    def read_run(self) -> Running | None:
        """The latest start, which may have ended since."""
        try:
            found = json.loads(self.run.read_text(encoding="utf-8"))
            return Running(int(found["pid"]), int(found["port"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write_run(self, running: Running) -> None:
        """Note a start, at once or not at all."""
        part = self.run.with_suffix(".part")
        part.write_text(json.dumps({"pid": running.pid, "port": running.port}), encoding="utf-8")
        part.replace(self.run)

    def complaint(self) -> str:
        """What it said of its end, for an error message."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class JavaServerFiles(ServerFiles):
    """Of a server in a JVM. Its log is at most three files of 10 MB."""

    @property
    def output(self) -> Path:
        """What the JVM itself printed in the latest start."""
        return self.folder / "output.log"

    def complaint(self) -> str:
        """The most telling line of the logs."""
        lines: list[str] = []
        for path in (self.output, self.log):
            if path.exists():
                lines += path.read_text(encoding="utf-8", errors="replace").splitlines()[-200:]
        return telling(lines)


def telling(lines: list[str]) -> str:
    """Java tells the cause as ``SomeException: text``, the deepest one last."""
    causes = [line for line in lines if "Exception: " in line or "Error: " in line]
    return (causes or [line for line in lines if "ERROR" in line] or lines or ["it said nothing"])[-1].strip()[:300]
