"""The files of a local OpenSearch node: its settings, its modules, its log. Starting it is ``opensearch``'s job.

The settings serve development: one node on loopback, no security plugin, no index made by accident with a wrong
mapping but by its template, and no index that turns read-only because the machine's disk is nearly full. The translog
is synchronised with every request, as on any other node.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from headgate.local.broker_files import Running

#: The modules that a node needs beside the server's own jars, by the name of their jar: the class that is the module.
MODULES = {
    "transport-netty4-client": "org.opensearch.transport.Netty4ModulePlugin",  # HTTP itself
    "reindex-client": "org.opensearch.index.reindex.ReindexModulePlugin",
    "mapper-extras-client": "org.opensearch.index.mapper.MapperExtrasModulePlugin",  # scaled_float and others
}
_SERVER = """\
cluster.name: headgate
node.name: node-1
discovery.type: single-node
network.host: 127.0.0.1
http.port: {port}
transport.port: {transport_port}
cluster.routing.allocation.disk.threshold_enabled: false
{extra}
"""
_LOGGING = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c{{1}}: %m%n
appender.file.policy.type = SizeBasedTriggeringPolicy
appender.file.policy.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""
_DESCRIPTOR = """\
description=module of the server
version={version}
name={name}
classname={classname}
java.version=21
opensearch.version={version}
"""


@dataclass(frozen=True, slots=True)
class OpenSearchFiles:
    """Where everything of one node is. ``folder`` is its own and may be deleted while it does not run."""

    folder: Path

    @property
    def config(self) -> Path:
        """The settings' folder; the path also marks the process as ours."""
        return self.folder / "config"

    @property
    def log(self) -> Path:
        """The node's log, at most three files of 10 MB."""
        return self.folder / "server.log"

    @property
    def output(self) -> Path:
        """What the JVM itself printed in the latest start."""
        return self.folder / "output.log"

    @property
    def run(self) -> Path:
        """Process and port of the latest start."""
        return self.folder / "running.json"

    def write_settings(self, port: int, transport_port: int, extra: str) -> None:
        """Write both settings files, and make the folders that a node expects."""
        for name in ("config", "data", "logs", "plugins"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        text = _SERVER.format(port=port, transport_port=transport_port, extra=extra)
        (self.config / "opensearch.yml").write_text(text, encoding="utf-8")
        (self.config / "log4j2.properties").write_text(_LOGGING.format(log=self.log), encoding="utf-8")

    def write_modules(self, library: Path) -> None:
        """A folder for each module, as the server wants it: the jar and a descriptor."""
        shutil.rmtree(self.folder / "modules", ignore_errors=True)
        for jar_name, classname in MODULES.items():
            (jar,) = library.glob(f"{jar_name}-*.jar")
            name = jar_name.removesuffix("-client")
            version = jar.stem.removeprefix(f"{jar_name}-")
            folder = self.folder / "modules" / name
            folder.mkdir(parents=True)
            shutil.copy(jar, folder)
            descriptor = _DESCRIPTOR.format(version=version, name=name, classname=classname)
            (folder / "plugin-descriptor.properties").write_text(descriptor, encoding="utf-8")

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
        """The most telling line of the logs, for an error message."""
        lines: list[str] = []
        for path in (self.output, self.log):
            if path.exists():
                lines += path.read_text(encoding="utf-8", errors="replace").splitlines()[-200:]
        causes = [line for line in lines if "Exception: " in line or "Error: " in line]
        return (causes or [line for line in lines if "ERROR" in line] or lines or ["it said nothing"])[-1].strip()[:300]
