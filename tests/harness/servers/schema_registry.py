"""A real schema registry for tests: Apicurio, whose API is that of Confluent's registry, with its data in a folder.

It acknowledges a schema when it is in its database on the disk, so one that is killed has all of them after a start.
"""

from __future__ import annotations

import json
import subprocess
import tarfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from headgate.console.messages import Print, to_stderr
from headgate.errors import HeadgateError
from headgate.local import cache, jars
from headgate.local import java as java_runtime
from headgate.local.servers.base import HOST, EmbeddedServer, Lifetime, free_port
from headgate.local.servers.files import JavaServerFiles

#: The Java version that the server is compiled for.
JAVA_AT_LEAST = 21
_PATH = "/apis/ccompat/v7"
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryServerError(HeadgateError):
    """The registry cannot be started."""


@dataclass(frozen=True, slots=True)
class RegistryServerSettings:
    """``port`` 0: a free one, kept for later starts of this object."""

    folder: Path
    port: int = 0
    heap_mb: int = 256
    lifetime: Lifetime = Lifetime.WITH_PARENT
    start_timeout_ms: int = 180_000
    stop_timeout_ms: int = 20_000


class EmbeddedRegistry(EmbeddedServer[RegistryServerSettings, JavaServerFiles]):
    """A local schema registry."""

    name = "registry"
    error = RegistryServerError
    poll_seconds = 0.1

    def __init__(self, settings: RegistryServerSettings, print_message: Print = to_stderr) -> None:
        files = JavaServerFiles(settings.folder.absolute())
        super().__init__(settings, files, f"-Dheadgate.registry={files.folder}", print_message)

    @property
    def url(self) -> str:
        """The URL for clients; known after the first start, also while the registry does not run."""
        return f"http://{HOST}:{self._known_port()}{_PATH}"

    def start(self) -> str:
        """Start the registry unless it runs, wait until it responds, and return its URL."""
        self._start()
        return self.url

    def register(
        self, subject: str, schema: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        """Register a schema as the next version of a subject; return its id."""
        document = {"schema": schema, "schemaType": kind, "references": references or []}
        request = urllib.request.Request(
            f"{self.url}/subjects/{subject}/versions",
            json.dumps(document).encode(),
            {"Content-Type": _CONTENT_TYPE},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(json.load(answer)["id"])

    def _launch(self) -> None:
        java = java_runtime.at_least(JAVA_AT_LEAST, self._print_message)
        archive = jars.ensure(jars.JarSet.REGISTRY, java, self._print_message)
        program = _unpacked(archive, self._print_message)
        self.files.folder.mkdir(parents=True, exist_ok=True)
        port, values = self._take_port(), {}
        values["quarkus.http.host"] = values["quarkus.management.host"] = HOST
        values |= {"quarkus.http.port": str(port), "quarkus.management.port": str(free_port(port))}
        values |= {"apicurio.storage.kind": "sql", "apicurio.storage.sql.kind": "h2"}
        values["apicurio.datasource.url"] = f"jdbc:h2:file:{self.files.folder}/registry;WRITE_DELAY=0"
        options = [f"-Xmx{self.settings.heap_mb}m", *java_runtime.SHORT_LIVED, self._mark]
        options += [f"-D{name}={value}" for name, value in values.items()]
        command = [str(java.executable), *options, "-jar", str(program / "quarkus-run.jar")]
        self._spawn(command, self.files.output)

    def _is_ready(self, process: subprocess.Popen[bytes]) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=3) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


def _unpacked(archive: Path, print_message: Print) -> Path:
    """Return the folder of the unpacked program; unpack it once for this machine."""
    name = sha256(str(archive).encode()).hexdigest()[:16]

    def build(part: Path) -> None:
        (packed,) = archive.glob("*.tar.gz")
        with tarfile.open(packed) as file:
            file.extractall(part, filter="data")

    return cache.publish(cache.root() / "jars" / f"registry-program-{name}", build, print_message)
