"""A real Kafka for one machine: a single KRaft node as a child process, with its data in a folder.

Promises: the broker that ``start`` returns accepts clients; a running broker of the same folder is used, whichever
process started it; the broker survives the terminal's Ctrl-C (it has its own session); its disk space is bounded; a
port that another program uses raises an error.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from headgate.console.messages import Print, to_stderr
from headgate.errors import BrokerError
from headgate.local import cache, jars
from headgate.local import java as java_runtime
from headgate.local.java import Java
from headgate.local.servers.base import HOST, EmbeddedServer, Lifetime, free_port
from headgate.local.servers.kafka_files import BrokerFiles

DEFAULT_PORT = 19092
_READY = b"Kafka Server started"


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """``port`` 0: a free one, kept for later starts of this object. ``partition_bytes`` bounds each partition on disk.
    ``extra``: lines for Kafka's server.properties, which override the defaults of ``kafka_files``. ``short_lived``: see
    ``java.SHORT_LIVED``."""

    folder: Path
    port: int = 0
    heap_mb: int = 512
    lifetime: Lifetime = Lifetime.DETACHED
    partition_bytes: int = 1_073_741_824
    start_timeout_ms: int = 120_000
    stop_timeout_ms: int = 30_000
    extra: tuple[tuple[str, str], ...] = ()
    short_lived: bool = False


def default_folder() -> Path:
    """Where the broker of ``headgate up`` keeps its data."""
    return cache.root() / "broker"


class EmbeddedBroker(EmbeddedServer[BrokerSettings, BrokerFiles]):
    """A local Kafka broker."""

    name = "broker"
    error = BrokerError
    other_port_advice = "use that port, or end it with `headgate broker stop`"
    taken_port_advice = "end that program, or choose another port: with --port, or in kafka.bootstrap of the settings"

    def __init__(self, settings: BrokerSettings, java: Java | None = None, print_message: Print = to_stderr) -> None:
        files = BrokerFiles(settings.folder.absolute())
        super().__init__(settings, files, str(files.server), print_message)
        self._java = java
        self._log_before = 0

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients; known after the first start, also while the broker does not run."""
        return f"{HOST}:{self._known_port()}"

    def start(self) -> str:
        """Start the broker unless it runs, wait until it is ready, and return its address for clients.

        Raises ``BrokerError`` if another program uses the port, or the broker runs on another port or does not start.
        """
        self._start()
        return self.bootstrap

    def _on_clean_stop(self) -> None:
        if self.files.classes.exists():
            self.files.classes.replace(self._class_archive())

    def _launch(self) -> None:
        self._java = self._java or java_runtime.ensure(self._print_message)
        library = jars.ensure(jars.JarSet.KAFKA, self._java, self._print_message)
        port = self._take_port()
        extra = "\n".join(f"{name}={value}" for name, value in self.settings.extra)
        self.files.write_settings(port, free_port(port), self.settings.partition_bytes, extra)
        java = [str(self._java.executable), "-cp", os.pathsep.join(map(str, sorted(library.glob("*.jar"))))]
        if not self.files.formatted_marker.exists():
            self._print_message(f"broker: preparing its folder {self.files.folder}")
        self.files.format([*java, *java_runtime.SHORT_LIVED, *self._archived_classes()])
        self._log_before = self.files.log.stat().st_size if self.files.log.exists() else 0
        self._spawn([*java, *self._jvm_options(self._java), "kafka.Kafka", str(self.files.server)], self.files.output)

    def _is_ready(self, process: subprocess.Popen[bytes]) -> bool:  # noqa: ARG002 - its log is read
        if not self.files.log.exists():
            return False
        with self.files.log.open("rb") as log:
            # A log that has been rolled since is read from its beginning.
            log.seek(self._log_before if self.files.log.stat().st_size >= self._log_before else 0)
            return _READY in log.read()

    def _jvm_options(self, java: Java) -> list[str]:
        """Return the JVM's options: G1 with short pauses, because benchmarks measure latency with this broker, and an
        archive of classes, which halves the time of the start; the JVM writes it at its end if there is none."""
        long_lived = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
        options = [f"-Xmx{self.settings.heap_mb}m"]
        options += java_runtime.SHORT_LIVED if self.settings.short_lived else long_lived
        options.append(f"-Dlog4j2.configurationFile={self.files.logging}")
        if found := self._archived_classes():
            return [*options, *found]
        return [*options, f"-XX:ArchiveClassesAtExit={self.files.classes}"] if java.shares_classes else options

    def _archived_classes(self) -> list[str]:
        """Return the JVM's options for the archive of classes; none before the first stop of a broker."""
        archive = self._class_archive()
        return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"] if archive.exists() else []

    def _class_archive(self) -> Path:
        """Return the archive of Kafka's classes for this Java and these jars; a JVM rejects any other."""
        java = self._java or java_runtime.ensure(self._print_message)
        name = sha256(f"{java.home}|{java.build}|{jars.folder(jars.JarSet.KAFKA)}".encode()).hexdigest()[:16]
        folder = cache.root() / "classes"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"kafka-{name}.jsa"
