"""A real server as a child process with its data in a folder: the common part of all local servers.

Promises: a running server of the same folder is used, whichever process started it; the server survives the terminal's
Ctrl-C (it has its own session), and the death of its parent process unless ``Lifetime`` binds it to the parent; a port
that another program uses raises an error. Each kind of server defines how it is launched, when it is ready and how it
is stopped.
"""

from __future__ import annotations

import abc
import enum
import random
import signal
import socket
import subprocess
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from headgate.console.messages import Print
from headgate.errors import HeadgateError
from headgate.local import cache, processes
from headgate.local.servers.files import ServerFiles, ServerProcess

HOST = "127.0.0.1"
_PORTS = range(20_000, 30_000)
# Stops the server when the pipe on its standard input closes, as it does when the parent process ends for any reason.
_WATCH = 'cat >/dev/null; kill -CONT "$1"; kill -"$2" "$1"'


class Lifetime(enum.StrEnum):
    """How long a server runs unless it is stopped."""

    DETACHED = "detached"  # until the machine stops
    WITH_PARENT = "with_parent"  # as long as the process that started it


class ServerSettings(Protocol):
    """The settings that every kind of server has."""

    @property
    def port(self) -> int: ...

    @property
    def lifetime(self) -> Lifetime: ...

    @property
    def start_timeout_ms(self) -> int: ...

    @property
    def stop_timeout_ms(self) -> int: ...


S = TypeVar("S", bound=ServerSettings)
F = TypeVar("F", bound=ServerFiles)


class EmbeddedServer(abc.ABC, Generic[S, F]):
    """A local server. For one thread; several processes may use the same folder."""

    #: The name of the server in messages, and the class of its errors.
    name: ClassVar[str]
    error: ClassVar[type[HeadgateError]]
    #: The advice in the error if the server runs on another port, and if another program uses the port.
    other_port_advice: ClassVar[str] = "use that port, or stop it first"
    taken_port_advice: ClassVar[str] = "end that program, or choose another port"
    #: The signal that stops the server in order.
    quit: ClassVar[signal.Signals] = signal.SIGTERM
    poll_seconds: ClassVar[float] = 0.02

    def __init__(self, settings: S, files: F, mark: str, print_message: Print) -> None:
        """``mark``: a text that only this server's command line contains."""
        self.settings = settings
        self.files = files
        self._mark = mark
        self._print_message = print_message
        self._port = settings.port
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def running(self) -> ServerProcess | None:
        """The server process of this folder, whichever process started it; None if none runs."""
        if self._process is not None:
            self._process.poll()  # reaps the child if it has ended
        server = self.files.read_run()
        return server if server and processes.is_running(server.pid, self._mark) else None

    def stop(self) -> None:
        """Stop the server in order; kill it after ``stop_timeout_ms``."""
        if server := self.running:
            processes.send(server.pid, signal.SIGCONT)
            processes.send(server.pid, self.quit)
            if self._wait_for_end(server.pid):
                self._on_clean_stop()
            else:
                self._print_message(f"{self.name}: not stopped after {self.settings.stop_timeout_ms} ms, killing it")
                self._kill(server.pid)
        self._clean_up()

    def kill(self) -> None:
        """Kill the server with all its processes, without an orderly stop."""
        if server := self.running:
            self._kill(server.pid)
        self._clean_up()

    def pause(self) -> None:
        """Freeze the server: connections stay open, requests get no response."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a frozen server."""
        self._signal(signal.SIGCONT)

    # --- for each kind ------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _launch(self) -> None:
        """Prepare the folder and start the server on the port of ``_take_port``, with ``_spawn``."""

    @abc.abstractmethod
    def _is_ready(self, process: subprocess.Popen[bytes]) -> bool:
        """Return whether the server accepts clients."""

    def _on_clean_stop(self) -> None:
        """Do what is left after an orderly stop."""

    def _kill(self, pid: int) -> None:
        processes.send(pid, signal.SIGKILL)
        self._wait_for_end(pid)

    def _processes(self, server: ServerProcess) -> tuple[int, ...]:
        """Return the ids of all processes of the server, which are frozen together."""
        return (server.pid,)

    # --- for all kinds -----------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Start the server unless it runs, and wait until it is ready."""
        with cache.exclusive(
            f"{self.name}-{sha256(str(self.files.folder).encode()).hexdigest()[:16]}", self._print_message
        ):
            if server := self.running:
                self._attach(server)
            else:
                self._launch()

    def _known_port(self) -> int:
        if not self._port:
            raise self.error(f"{self.name}: it has no address before the first start; call start() first")
        return self._port

    def _attach(self, server: ServerProcess) -> None:
        if self.settings.port not in (0, server.port):
            raise self.error(
                f"{self.name}: the server of {self.files.folder} runs on port {server.port}, not {self.settings.port}; "
                f"{self.other_port_advice}"
            )
        self._port = server.port

    def _take_port(self) -> int:
        self._port = self._port or free_port()
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, self._port))
            except OSError as error:
                raise self.error(
                    f"{self.name}: port {self._port} is used by another program ({error.strerror}); "
                    f"{self.taken_port_advice}"
                ) from error
        return self._port

    def _spawn(self, command: list[str], output: Path, mode: str = "wb", **more: Any) -> None:
        """Start the process and wait until it is ready. ``more``: arguments of ``subprocess.Popen``."""
        self._print_message(f"{self.name}: starting on {HOST}:{self._port}")
        with output.open(mode) as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, **more
            )
        self.files.write_run(ServerProcess(self._process.pid, self._port))
        if self.settings.lifetime is Lifetime.WITH_PARENT:
            watch = ["/bin/sh", "-c", _WATCH, "watch", str(self._process.pid), self.quit.name.removeprefix("SIG")]
            self._watch = subprocess.Popen(watch, stdin=subprocess.PIPE, start_new_session=True)
        try:
            self._await_ready(self._process)
        except BaseException:
            self.kill()
            raise

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + self.settings.start_timeout_ms / 1000
        while not self._is_ready(process):
            problem = ""
            if process.poll() is not None:
                problem = "ended while starting"
            elif time.monotonic() > end:
                problem = f"not ready after {self.settings.start_timeout_ms} ms"
            if problem:
                raise self.error(f"{self.name}: {problem}: {self.files.last_error()}; see {self.files.log}")
            time.sleep(self.poll_seconds)

    def _signal(self, number: signal.Signals) -> None:
        server = self.running
        if server is None:
            raise self.error(f"{self.name}: it does not run; call start() first")
        for pid in self._processes(server):
            processes.send(pid, number)

    def _wait_for_end(self, pid: int) -> bool:
        limit_ms = self.settings.stop_timeout_ms
        if self._process is None or self._process.pid != pid:
            return processes.wait_for_end(pid, self._mark, limit_ms)
        try:
            self._process.wait(limit_ms / 1000)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _clean_up(self) -> None:
        """Remove the run file, reap the child process and end its watch."""
        self.files.run.unlink(missing_ok=True)
        if self._process is not None:
            self._process.poll()
        self._process = None
        if self._watch is not None:
            self._watch.kill()
            self._watch.communicate()
            self._watch = None


def free_port(*taken: int) -> int:
    """Return a free port of 127.0.0.1 that is none of ``taken``.

    It is below those that systems give to outgoing connections, which would take it before the server does, or while
    the server does not run.
    """
    for port in random.SystemRandom().sample(_PORTS, 100):
        if port in taken:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise HeadgateError(f"no free port from {_PORTS.start} to {_PORTS.stop - 1}")
