"""The files that every local server has in its folder: its log, and the run file with its process id and port.

Does not know the kind of server; each kind adds its own settings and folders.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

_LOG4J = """\
status=error
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName={log}
appender.file.filePattern={log}.%i
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d %p %c{{1}}: %m%n
appender.file.policy.type=SizeBasedTriggeringPolicy
appender.file.policy.size=10MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=2
rootLogger.level=info
rootLogger.appenderRef.file.ref=file
"""


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """The process id and port of a started server."""

    pid: int
    port: int


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """The paths of one server. ``folder`` belongs to it alone, and may be deleted while the server does not run."""

    folder: Path

    @property
    def log(self) -> Path:
        """The log of the server."""
        return self.folder / "server.log"

    @property
    def run(self) -> Path:
        """The run file: process id and port of the latest start."""
        return self.folder / "running.json"

    def read_run(self) -> ServerProcess | None:
        """Read the run file; None if there is none. The process may have ended since."""
        try:
            entries = json.loads(self.run.read_text(encoding="utf-8"))
            return ServerProcess(int(entries["pid"]), int(entries["port"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write_run(self, running: ServerProcess) -> None:
        """Write the run file atomically."""
        part = self.run.with_suffix(".part")
        part.write_text(json.dumps({"pid": running.pid, "port": running.port}), encoding="utf-8")
        part.replace(self.run)

    def last_error(self) -> str:
        """Return the server's last error, for a message."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class JavaServerFiles(ServerFiles):
    """The files of a server in a JVM. Its log is at most three files of 10 MB."""

    @property
    def output(self) -> Path:
        """The output of the JVM itself in the latest start."""
        return self.folder / "output.log"

    @property
    def logging(self) -> Path:
        """Log4j's settings."""
        return self.folder / "log4j2.properties"

    def write_logging(self) -> None:
        """Write Log4j's settings, with a rolling log file."""
        self.logging.write_text(_LOG4J.format(log=self.log), encoding="utf-8")

    def last_error(self) -> str:
        """Return the most relevant line of the logs."""
        lines: list[str] = []
        for path in (self.output, self.log):
            if path.exists():
                lines += path.read_text(encoding="utf-8", errors="replace").splitlines()[-200:]
        return most_relevant_line(lines)


def most_relevant_line(lines: list[str]) -> str:
    """Return the last line that names a Java exception, which is the deepest cause; else the last error, else the last
    line."""
    causes = [line for line in lines if "Exception: " in line or "Error: " in line]
    return (causes or [line for line in lines if "ERROR" in line] or lines or ["it printed nothing"])[-1].strip()[:300]
