"""A real OpenSearch for one machine: a single node as a child process, with its data in a folder.

Promises: the node that ``start`` returns answers requests; a running node of the same folder is used, whichever process
started it; the node survives the terminal's Ctrl-C (it has its own session). It listens on loopback only and has no
security plugin: for development and tests.

The node is the server's main class with jars of Maven Central. OpenSearch refuses to run as root, but containers and
build machines often are root. It detects root through the native part of JNA, so that part is not loaded; without it
the node cannot lock its memory either, which its settings do not request.
"""

from __future__ import annotations

import os
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from headgate.console.messages import Print, to_stderr
from headgate.errors import OpenSearchError
from headgate.local import cache, jars
from headgate.local import java as java_runtime
from headgate.local.java import Java
from headgate.local.servers.base import HOST, EmbeddedServer, Lifetime, free_port
from headgate.local.servers.opensearch_files import MODULES, OpenSearchFiles

DEFAULT_PORT = 19200
#: The oldest Java version that OpenSearch 3 supports.
JAVA_AT_LEAST = 21
_MAIN = "org.opensearch.bootstrap.OpenSearch"
_HEALTH = "/_cluster/health?wait_for_status=yellow&timeout=1s"


@dataclass(frozen=True, slots=True)
class OpenSearchNodeSettings:
    """``port`` 0: a free one, kept for later starts of this object. ``extra``: lines for opensearch.yml.
    The first ``stop`` on a machine takes longer than later ones, because the JVM writes its archive of classes."""

    folder: Path
    port: int = 0
    heap_mb: int = 512
    lifetime: Lifetime = Lifetime.DETACHED
    start_timeout_ms: int = 180_000
    stop_timeout_ms: int = 60_000
    extra: tuple[tuple[str, str], ...] = ()
    short_lived: bool = False


def default_folder() -> Path:
    """Return the data folder of a local run."""
    return cache.root() / "opensearch"


class EmbeddedOpenSearch(EmbeddedServer[OpenSearchNodeSettings, OpenSearchFiles]):
    """A local OpenSearch node."""

    name = "opensearch"
    error = OpenSearchError
    poll_seconds = 0.1

    def __init__(
        self, settings: OpenSearchNodeSettings, java: Java | None = None, print_message: Print = to_stderr
    ) -> None:
        files = OpenSearchFiles(settings.folder.absolute())
        super().__init__(settings, files, f"-Dopensearch.path.conf={files.config}", print_message)
        self._java = java

    @property
    def url(self) -> str:
        """The URL for clients; known after the first start, also while the node does not run."""
        return f"http://{HOST}:{self._known_port()}"

    def start(self) -> str:
        """Start the node unless it runs, wait until it responds, and return its URL. Raises ``OpenSearchError`` if it
        fails."""
        self._start()
        return self.url

    def _launch(self) -> None:
        java = self._java or java_runtime.at_least(JAVA_AT_LEAST, self._print_message)
        library = jars.ensure(jars.JarSet.OPENSEARCH, java, self._print_message)
        port = self._take_port()
        extra = "\n".join(f"{name}: {value}" for name, value in self.settings.extra)
        self.files.write_settings(port, free_port(port), extra)
        self.files.write_modules(library)
        command = [str(java.executable), *self._options(java), "-cp", _class_path(library), _MAIN]
        self._spawn(command, self.files.output)

    def _is_ready(self, process: subprocess.Popen[bytes]) -> bool:  # noqa: ARG002 - the node is asked
        return _is_healthy(self.url)

    def _options(self, java: Java) -> list[str]:
        home, heap = self.files.folder, self.settings.heap_mb
        options = [f"-Xms{heap}m", f"-Xmx{heap}m", "--enable-native-access=ALL-UNNAMED"]
        options += java_runtime.SHORT_LIVED if self.settings.short_lived else ("-XX:+UseG1GC",)
        options += ["-Djna.nosys=true", "-Djna.nounpack=true"]  # see the module's docstring
        options += [f"-Dopensearch.path.home={home}", self._mark]
        if java.shares_classes:
            archive = f"{java.home}|{java.build}|{jars.folder(jars.JarSet.OPENSEARCH)}"
            name = sha256(archive.encode()).hexdigest()[:16]
            folder = cache.root() / "classes"
            folder.mkdir(parents=True, exist_ok=True)
            options += ["-XX:+AutoCreateSharedArchive", f"-XX:SharedArchiveFile={folder}/opensearch-{name}.jsa"]
            options.append("-Xlog:cds=off")
        return options


def _class_path(library: Path) -> str:
    """Return the class path: all jars but those of modules, because each module has its own class loader."""
    server_jars = [jar for jar in sorted(library.glob("*.jar")) if not jar.name.startswith(tuple(MODULES))]
    return os.pathsep.join(map(str, server_jars))


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url + _HEALTH, timeout=3) as answer:  # noqa: S310 - our own loopback address
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
