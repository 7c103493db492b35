"""The files that every local server has in its folder: its log, and a note that identifies its process.

Does not know the kind of server; each kind adds its own settings and folders.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server that was started: its process and its port."""

    pid: int
    port: int


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """Where everything of one server is. ``folder`` is its own and may be deleted while it does not run."""

    folder: Path

    @property
    def log(self) -> Path:
        """The log of the server."""
        return self.folder / "server.log"

    @property
    def run(self) -> Path:
        """Process and port of the latest start."""
        return self.folder / "running.json"

    def read_run(self) -> ServerProcess | None:
        """Read the latest start, which may have ended since."""
        try:
            found = json.loads(self.run.read_text(encoding="utf-8"))
            return ServerProcess(int(found["pid"]), int(found["port"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write_run(self, running: ServerProcess) -> None:
        """Note a start, at once or not at all."""
        part = self.run.with_suffix(".part")
        part.write_text(json.dumps({"pid": running.pid, "port": running.port}), encoding="utf-8")
        part.replace(self.run)

    def last_error(self) -> str:
        """Return the server's last error, for a message."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class JavaServerFiles(ServerFiles):
    """Of a server in a JVM. Its log is at most three files of 10 MB."""

    @property
    def output(self) -> Path:
        """The output of the JVM itself in the latest start."""
        return self.folder / "output.log"

    def last_error(self) -> str:
        """Return the most relevant line of the logs."""
        lines: list[str] = []
        for path in (self.output, self.log):
            if path.exists():
                lines += path.read_text(encoding="utf-8", errors="replace").splitlines()[-200:]
        return most_relevant_line(lines)


def most_relevant_line(lines: list[str]) -> str:
    """Return the cause that Java logs as ``SomeException: text``, the deepest one last."""
    causes = [line for line in lines if "Exception: " in line or "Error: " in line]
    return (causes or [line for line in lines if "ERROR" in line] or lines or ["it printed nothing"])[-1].strip()[:300]
