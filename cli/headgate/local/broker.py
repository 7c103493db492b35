"""A real Kafka for one machine: a single KRaft node as a child process, with its data in a folder.

Promises: what ``start`` returns accepts clients; a broker of the same folder that runs already is used, whoever
started it; it survives the terminal's Ctrl-C (it has its own session); the disk it takes is bounded. Refuses a port
that another program holds. It knows nothing about topics.
"""

from __future__ import annotations

import enum
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from headgate.errors import BrokerError
from headgate.local import cache, jars, processes
from headgate.local import java as java_runtime
from headgate.local.broker_files import BrokerFiles, Running
from headgate.local.java import Java
from headgate.talk import Say, to_stderr

HOST = "127.0.0.1"
DEFAULT_PORT = 19092
_READY = b"Kafka Server started"
_POLL_SECONDS = 0.02
# Ends the broker when the pipe on its standard input closes, which the death of the parent does, however it dies.
_WATCH = 'cat >/dev/null; kill -CONT "$1"; kill "$1"'


class Lifetime(enum.StrEnum):
    """How long a broker lives when nobody stops it."""

    DETACHED = "detached"  # until the machine goes down
    WITH_PARENT = "with_parent"  # as long as the process that started it


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """``port`` 0: a free one, kept over restarts of the same object. ``partition_bytes`` bounds each partition on disk.
    ``extra``: lines for Kafka's server.properties, which win over ours."""

    folder: Path
    port: int = 0
    heap_mb: int = 512
    lifetime: Lifetime = Lifetime.DETACHED
    partition_bytes: int = 1_073_741_824
    start_timeout_ms: int = 120_000
    stop_timeout_ms: int = 30_000
    extra: tuple[tuple[str, str], ...] = ()


def default_folder() -> Path:
    """Where the broker of ``headgate up`` keeps its data."""
    return cache.root() / "broker"


class EmbeddedBroker:
    """One broker. The methods are not for several threads; several processes may use the same folder."""

    def __init__(self, settings: BrokerSettings, java: Java | None = None, say: Say = to_stderr) -> None:
        self.settings = settings
        self.files = BrokerFiles(settings.folder.absolute())
        self._say = say
        self._java = java
        self._port = settings.port
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> EmbeddedBroker:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients; known from the first start on, also while the broker is down."""
        if not self._port:
            raise BrokerError("broker: not started, so it has no address; call start() first")
        return f"{HOST}:{self._port}"

    @property
    def running(self) -> Running | None:
        """The live process of this folder, started here or elsewhere."""
        if self._process is not None:
            self._process.poll()  # a child that ended stays a zombie until it is asked
        found = self.files.read_run()
        return found if found and processes.is_running(found.pid, str(self.files.server)) else None

    def start(self) -> str:
        """Start it unless it runs, wait until it is ready, and return the address for clients.

        ``BrokerError`` when the port is taken, when it runs on another port, or when it does not come up.
        """
        with cache.exclusive(f"broker-{sha256(str(self.files.folder).encode()).hexdigest()[:16]}", self._say):
            if found := self.running:
                self._attach(found)
            else:
                self._launch()
        return self.bootstrap

    def stop(self) -> None:
        """End it in order (no recovery at the next start); by force after ``stop_timeout_ms``."""
        if found := self.running:
            processes.send(found.pid, signal.SIGCONT)
            processes.send(found.pid, signal.SIGTERM)
            if not self._ended(found.pid, self.settings.stop_timeout_ms):
                self._say(f"broker: still there after {self.settings.stop_timeout_ms} ms, ending it by force")
                processes.send(found.pid, signal.SIGKILL)
                self._ended(found.pid, self.settings.stop_timeout_ms)
            elif self.files.classes.exists():
                self.files.classes.replace(self._class_archive())
        self._forget()

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        if found := self.running:
            processes.send(found.pid, signal.SIGKILL)
            self._ended(found.pid, self.settings.stop_timeout_ms)
        self._forget()

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen one go on."""
        self._signal(signal.SIGCONT)

    def _attach(self, found: Running) -> None:
        if self.settings.port not in (0, found.port):
            raise BrokerError(
                f"broker: the one of {self.files.folder} runs on port {found.port}, not {self.settings.port}; "
                f"use that port, or end it with `headgate broker stop`"
            )
        self._port = found.port

    def _launch(self) -> None:
        self._java = self._java or java_runtime.ensure(self._say)
        library = jars.ensure(jars.JarSet.KAFKA, self._java, self._say)
        self._port = self._port or _free_port()
        _refuse_taken(self._port)
        extra = "\n".join(f"{name}={value}" for name, value in self.settings.extra)
        self.files.write_settings(self._port, _free_port(), self.settings.partition_bytes, extra)
        java = [str(self._java.executable), "-cp", os.pathsep.join(map(str, sorted(library.glob("*.jar"))))]
        if not self.files.formatted.exists():
            self._say(f"broker: preparing its folder {self.files.folder}")
        self.files.format([*java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
        self._say(f"broker: starting on {HOST}:{self._port}")
        self._spawn([*java, *self._jvm_options(self._java), "kafka.Kafka", str(self.files.server)])

    def _spawn(self, command: list[str]) -> None:
        log_before = self.files.log.stat().st_size if self.files.log.exists() else 0
        with self.files.output.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self.files.write_run(Running(self._process.pid, self._port))
        if self.settings.lifetime is Lifetime.WITH_PARENT:
            watch = ["/bin/sh", "-c", _WATCH, "watch", str(self._process.pid)]
            self._watch = subprocess.Popen(watch, stdin=subprocess.PIPE, start_new_session=True)
        try:
            self._await_ready(self._process, log_before)
        except BaseException:
            self.kill()
            raise

    def _await_ready(self, process: subprocess.Popen[bytes], log_before: int) -> None:
        end = time.monotonic() + self.settings.start_timeout_ms / 1000
        while not self._says_ready(log_before):
            if process.poll() is not None:
                raise BrokerError(f"broker: ended while starting: {self.files.complaint()}; see {self.files.log}")
            if time.monotonic() > end:
                raise BrokerError(
                    f"broker: not ready after {self.settings.start_timeout_ms} ms: {self.files.complaint()}; "
                    f"see {self.files.log}"
                )
            time.sleep(_POLL_SECONDS)

    def _says_ready(self, log_before: int) -> bool:
        if not self.files.log.exists():
            return False
        with self.files.log.open("rb") as log:
            # A log that was rolled since begins anew.
            log.seek(log_before if self.files.log.stat().st_size >= log_before else 0)
            return _READY in log.read()

    def _jvm_options(self, java: Java) -> list[str]:
        """G1 with short pauses, for latency is measured against this broker; shared classes halve the start."""
        options = [f"-Xmx{self.settings.heap_mb}m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        options.append(f"-Dlog4j2.configurationFile={self.files.logging}")
        archive = self._class_archive()
        if archive.exists():
            return [*options, f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"]
        return [*options, f"-XX:ArchiveClassesAtExit={self.files.classes}"] if java.shares_classes else options

    def _class_archive(self) -> Path:
        """The archive of Kafka's classes for this Java and these jars; a JVM refuses any other."""
        java = self._java or java_runtime.ensure(self._say)
        name = sha256(f"{java.home}|{java.build}|{jars.folder(jars.JarSet.KAFKA)}".encode()).hexdigest()[:16]
        folder = cache.root() / "classes"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"kafka-{name}.jsa"

    def _signal(self, number: signal.Signals) -> None:
        found = self.running
        if found is None:
            raise BrokerError("broker: it does not run; call start() first")
        processes.send(found.pid, number)

    def _ended(self, pid: int, timeout_ms: int) -> bool:
        if self._process is None or self._process.pid != pid:
            return processes.wait_for_end(pid, str(self.files.server), timeout_ms)
        try:
            self._process.wait(timeout_ms / 1000)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _forget(self) -> None:
        """Clean up after an end, ours or not: the run file, the child to reap, its watch."""
        self.files.run.unlink(missing_ok=True)
        if self._process is not None:
            self._process.poll()
        self._process = None
        if self._watch is not None:
            self._watch.kill()
            self._watch.communicate()
            self._watch = None


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
            raise BrokerError(
                f"broker: port {port} is taken by another program ({error.strerror}); "
                "end that program, or choose another port with --port"
            ) from error
