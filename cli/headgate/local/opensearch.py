"""A real OpenSearch for one machine: a single node as a child process, with its data in a folder.

Promises: what ``start`` returns answers requests; a node of the same folder that runs already is used, whoever
started it; it survives the terminal's Ctrl-C (it has its own session). It listens on loopback only and has no security
plugin: for development and tests. It knows nothing about indexes.

The node is the server's own main class over jars of Maven Central. It refuses to run as root when it can see that,
and it sees through JNA's native part; we leave that part unloaded (the node then cannot lock memory either, which it
is not asked to), for containers and build machines are often root.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from headgate.errors import OpenSearchError
from headgate.local import cache, jars, processes
from headgate.local import java as java_runtime
from headgate.local.broker import Lifetime
from headgate.local.broker_files import Running
from headgate.local.java import Java
from headgate.local.opensearch_files import MODULES, OpenSearchFiles
from headgate.talk import Say, to_stderr

HOST = "127.0.0.1"
DEFAULT_PORT = 19200
#: Of Java, for OpenSearch 3.
JAVA_AT_LEAST = 21
_MAIN = "org.opensearch.bootstrap.OpenSearch"
_HEALTH = "/_cluster/health?wait_for_status=yellow&timeout=1s"
_POLL_SECONDS = 0.1
_WATCH = 'cat >/dev/null; kill -CONT "$1"; kill "$1"'


@dataclass(frozen=True, slots=True)
class OpenSearchNodeSettings:
    """``port`` 0: a free one, kept over restarts of the same object. ``extra``: lines for opensearch.yml.
    The first ``stop`` on a machine takes longer than later ones: the JVM writes its archive of classes."""

    folder: Path
    port: int = 0
    heap_mb: int = 512
    lifetime: Lifetime = Lifetime.DETACHED
    start_timeout_ms: int = 180_000
    stop_timeout_ms: int = 60_000
    extra: tuple[tuple[str, str], ...] = ()


def default_folder() -> Path:
    """Where the node of a local run keeps its data."""
    return cache.root() / "opensearch"


class EmbeddedOpenSearch:
    """One node. The methods are not for several threads; several processes may use the same folder."""

    def __init__(self, settings: OpenSearchNodeSettings, java: Java | None = None, say: Say = to_stderr) -> None:
        self.settings = settings
        self.files = OpenSearchFiles(settings.folder.absolute())
        self._java = java
        self._say = say
        self._port = settings.port
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> EmbeddedOpenSearch:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """For clients; known from the first start on, also while the node is down."""
        if not self._port:
            raise OpenSearchError("opensearch: not started, so it has no address; call start() first")
        return f"http://{HOST}:{self._port}"

    @property
    def running(self) -> Running | None:
        """The live process of this folder, started here or elsewhere."""
        if self._process is not None:
            self._process.poll()  # a child that ended stays a zombie until it is asked
        found = self.files.read_run()
        return found if found and processes.is_running(found.pid, self._mark) else None

    def start(self) -> str:
        """Start it unless it runs, wait until it answers, and return its URL. ``OpenSearchError`` when it does not."""
        with cache.exclusive(f"opensearch-{sha256(self._mark.encode()).hexdigest()[:16]}", self._say):
            if (found := self.running) is not None:
                self._attach(found)
            else:
                self._launch()
        return self.url

    def stop(self) -> None:
        """End it in order; by force after ``stop_timeout_ms``."""
        if found := self.running:
            processes.send(found.pid, signal.SIGCONT)
            processes.send(found.pid, signal.SIGTERM)
            if not self._ended(found.pid):
                self._say(f"opensearch: still there after {self.settings.stop_timeout_ms} ms, ending it by force")
                processes.send(found.pid, signal.SIGKILL)
                self._ended(found.pid)
        self._forget()

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        if found := self.running:
            processes.send(found.pid, signal.SIGKILL)
            self._ended(found.pid)
        self._forget()

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen one go on."""
        self._signal(signal.SIGCONT)

    @property
    def _mark(self) -> str:
        return f"-Dopensearch.path.conf={self.files.config}"

    def _attach(self, found: Running) -> None:
        if self.settings.port not in (0, found.port):
            raise OpenSearchError(
                f"opensearch: the one of {self.files.folder} runs on port {found.port}, not {self.settings.port}; "
                "use that port, or stop it first"
            )
        self._port = found.port

    def _launch(self) -> None:
        java = self._java or java_runtime.at_least(JAVA_AT_LEAST, self._say)
        library = jars.ensure(jars.JarSet.OPENSEARCH, java, self._say)
        self._port = self._port or _free_port()
        _refuse_taken(self._port)
        extra = "\n".join(f"{name}: {value}" for name, value in self.settings.extra)
        self.files.write_settings(self._port, _free_port(), extra)
        self.files.write_modules(library)
        self._say(f"opensearch: starting on {HOST}:{self._port}")
        self._spawn([str(java.executable), *self._options(java), "-cp", _class_path(library), _MAIN])

    def _options(self, java: Java) -> list[str]:
        home, heap = self.files.folder, self.settings.heap_mb
        options = [f"-Xms{heap}m", f"-Xmx{heap}m", "-XX:+UseG1GC", "--enable-native-access=ALL-UNNAMED"]
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

    def _spawn(self, command: list[str]) -> None:
        with self.files.output.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self.files.write_run(Running(self._process.pid, self._port))
        if self.settings.lifetime is Lifetime.WITH_PARENT:
            watch = ["/bin/sh", "-c", _WATCH, "watch", str(self._process.pid)]
            self._watch = subprocess.Popen(watch, stdin=subprocess.PIPE, start_new_session=True)
        try:
            self._await_ready(self._process)
        except BaseException:
            self.kill()
            raise

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + self.settings.start_timeout_ms / 1000
        while not _answers(self.url):
            if process.poll() is not None:
                raise OpenSearchError(
                    f"opensearch: ended while starting: {self.files.complaint()}; see {self.files.log}"
                )
            if time.monotonic() > end:
                waited = self.settings.start_timeout_ms
                raise OpenSearchError(
                    f"opensearch: not ready after {waited} ms: {self.files.complaint()}; see {self.files.log}"
                )
            time.sleep(_POLL_SECONDS)

    def _signal(self, number: signal.Signals) -> None:
        found = self.running
        if found is None:
            raise OpenSearchError("opensearch: it does not run; call start() first")
        processes.send(found.pid, number)

    def _ended(self, pid: int) -> bool:
        limit_ms = self.settings.stop_timeout_ms
        if self._process is None or self._process.pid != pid:
            return processes.wait_for_end(pid, self._mark, limit_ms)
        try:
            self._process.wait(limit_ms / 1000)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _forget(self) -> None:
        self.files.run.unlink(missing_ok=True)
        if self._process is not None:
            self._process.poll()
        self._process = None
        if self._watch is not None:
            self._watch.kill()
            self._watch.communicate()
            self._watch = None


def _class_path(library: Path) -> str:
    """Every jar but those of the modules, which have a class loader each."""
    found = [jar for jar in sorted(library.glob("*.jar")) if not jar.name.startswith(tuple(MODULES))]
    return os.pathsep.join(map(str, found))


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url + _HEALTH, timeout=3) as answer:  # noqa: S310 - our own loopback address
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise OpenSearchError(
                f"opensearch: port {port} is taken by another program ({error.strerror}); "
                "end that program, or choose another port"
            ) from error
