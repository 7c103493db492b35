"""A real REST catalogue of Iceberg tables: the server of Iceberg's own tests. Its tables are in SQLite, in a folder.

``catalog.db`` has the layout of an SQL catalogue, so ``iceberg_files`` reads it; files are in ``warehouse``.
"""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from headgate.console.messages import to_stderr
from headgate.errors import HeadgateError
from headgate.local import jars
from headgate.local import java as java_runtime
from headgate.local.servers.base import HOST, EmbeddedServer, Lifetime
from headgate.local.servers.files import JavaServerFiles

_CLASS = "org.apache.iceberg.rest.RESTCatalogServer"


class CatalogServerError(HeadgateError):
    """The catalogue cannot be started."""


@dataclass(frozen=True, slots=True)
class CatalogServerSettings:
    """``port`` 0: a free one."""

    folder: Path
    port: int = 0
    heap_mb: int = 128
    lifetime: Lifetime = Lifetime.WITH_PARENT
    start_timeout_ms: int = 180_000
    stop_timeout_ms: int = 20_000


class IcebergCatalogServer(EmbeddedServer[CatalogServerSettings, JavaServerFiles]):
    """A local REST catalogue."""

    name = "iceberg-catalog"
    error = CatalogServerError
    poll_seconds = 0.1

    def __init__(self, settings: CatalogServerSettings) -> None:
        files = JavaServerFiles(settings.folder.absolute())
        super().__init__(settings, files, f"-Dheadgate.iceberg={files.folder}", to_stderr)

    @property
    def options(self) -> dict[str, str]:
        """The properties with which pyiceberg reaches the catalogue."""
        return {"type": "rest", "uri": f"http://{HOST}:{self._known_port()}"}

    def start(self) -> None:
        """Start the catalogue and wait until it responds."""
        self._start()

    def _launch(self) -> None:
        java = java_runtime.ensure(self._print_message)
        hadoop = Path(pyspark.__file__).parent / "jars"
        path = [str(jars.ensure(jars.JarSet.ICEBERG, java, self._print_message) / "*")]
        path += [str(file) for file in hadoop.glob("hadoop-client-*.jar")]
        folder, port = self.files.folder, self._take_port()
        folder.mkdir(parents=True, exist_ok=True)
        catalog = {"CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db", "CATALOG_WAREHOUSE": f"file://{folder}/warehouse"}
        catalog["CATALOG_REST_PORT"] = str(port)
        options = [f"-Xmx{self.settings.heap_mb}m", *java_runtime.SHORT_LIVED, self._mark]
        # The server takes its settings from the environment alone.
        settings = ["/usr/bin/env", *(f"{name}={value}" for name, value in catalog.items())]
        self._spawn([*settings, str(java.executable), *options, "-cp", ":".join(path), _CLASS], self.files.output)

    def _is_ready(self, process: subprocess.Popen[bytes]) -> bool:
        try:
            with urllib.request.urlopen(f"{self.options['uri']}/v1/config", timeout=3) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


@contextmanager
def running_catalog(folder: Path) -> Iterator[IcebergCatalogServer]:
    """Run a catalogue in a folder."""
    server = IcebergCatalogServer(CatalogServerSettings(folder))
    try:
        server.start()
        yield server
    finally:
        server.stop()
