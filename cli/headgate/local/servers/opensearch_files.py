"""The files of a local OpenSearch node: its settings, its modules, its log. ``opensearch`` starts the node.

The settings serve development: one node on loopback, no security plugin, no index made by accident with a wrong
mapping but by its template, and no index that turns read-only because the machine's disk is nearly full. The translog
is synchronised with every request, as on any other node.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from headgate.local.servers.files import JavaServerFiles

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
_DESCRIPTOR = """\
description=module of the server
version={version}
name={name}
classname={classname}
java.version=21
opensearch.version={version}
"""


@dataclass(frozen=True, slots=True)
class OpenSearchFiles(JavaServerFiles):
    """Where everything of one node is."""

    @property
    def config(self) -> Path:
        """The settings' folder; the path also marks the process as ours."""
        return self.folder / "config"

    @property
    def logging(self) -> Path:
        """Log4j's settings, where the server looks for them."""
        return self.config / "log4j2.properties"

    def write_settings(self, port: int, transport_port: int, extra: str) -> None:
        """Write both settings files, and make the folders that a node expects."""
        for name in ("config", "data", "logs", "plugins"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        text = _SERVER.format(port=port, transport_port=transport_port, extra=extra)
        (self.config / "opensearch.yml").write_text(text, encoding="utf-8")
        self.write_logging()

    def write_modules(self, library: Path) -> None:
        """Write a folder for each module, as the server requires: the jar and a descriptor."""
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
