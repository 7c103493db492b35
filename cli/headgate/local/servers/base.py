"""A real server as a child process with its data in a folder: the common part of all local servers.

Promises: a server of the same folder that runs already is used, no matter which process started it; it survives the
terminal's Ctrl-C (it has its own session), and its parent's death only if configured so; a port that another program
holds is refused. Each kind of server defines how it is launched, when it is ready and how it is asked to end.
"""

from __future__ import annotations

import abc
import enum
import signal
import socket
import subprocess
import time
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from headgate.console.messages import Print
from headgate.errors import HeadgateError
from headgate.local import cache, processes
from headgate.local.servers.files import ServerFiles, ServerProcess

HOST = "127.0.0.1"
# Ends the server when the pipe on its standard input closes, which the death of the parent does, however it dies.
_WATCH = 'cat >/dev/null; kill -CONT "$1"; kill -"$2" "$1"'


class Lifetime(enum.StrEnum):
    """The lifetime of a server that is not stopped."""

    DETACHED = "detached"  # until the machine goes down
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
    """One server. The methods are not for several threads; several processes may use the same folder."""

    #: What messages call it, and the error that they are raised as.
    name: ClassVar[str]
    error: ClassVar[type[HeadgateError]]
    #: What to do when it runs on another port, and when its port is taken.
    other_port_advice: ClassVar[str] = "use that port, or stop it first"
    taken_port_advice: ClassVar[str] = "end that program, or choose another port"
    #: What asks it to end in order.
    quit: ClassVar[signal.Signals] = signal.SIGTERM
    poll_seconds: ClassVar[float] = 0.02

    def __init__(self, settings: S, files: F, mark: str, print_message: Print) -> None:
        """``mark``: a text of its command line that no other process has."""
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
        """The live process of this folder, started here or elsewhere."""
        if self._process is not None:
            self._process.poll()  # a child that ended stays a zombie until it is asked
        found = self.files.read_run()
        return found if found and processes.is_running(found.pid, self._mark) else None

    def stop(self) -> None:
        """End it in order; by force after ``stop_timeout_ms``."""
        if found := self.running:
            processes.send(found.pid, signal.SIGCONT)
            processes.send(found.pid, self.quit)
            if self._wait_for_end(found.pid):
                self._on_clean_stop()
            else:
                self._print_message(
                    f"{self.name}: still there after {self.settings.stop_timeout_ms} ms, ending it by force"
                )
                self._kill(found.pid)
        self._clean_up()

    def kill(self) -> None:
        """End it and all its processes at once, as a power cut would."""
        if found := self.running:
            self._kill(found.pid)
        self._clean_up()

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen one go on."""
        self._signal(signal.SIGCONT)

    # --- what differs -------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _launch(self) -> None:
        """Prepare the folder and ``_spawn`` it, on ``_take_port``."""

    @abc.abstractmethod
    def _is_ready(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether clients are served."""

    def _on_clean_stop(self) -> None:
        """Clean up after the server ended by itself."""

    def _kill(self, pid: int) -> None:
        processes.send(pid, signal.SIGKILL)
        self._wait_for_end(pid)

    def _processes(self, found: ServerProcess) -> tuple[int, ...]:
        """All that are frozen together."""
        return (found.pid,)

    # --- what is the same ---------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Start it unless it runs, and wait until it is ready."""
        with cache.exclusive(
            f"{self.name}-{sha256(str(self.files.folder).encode()).hexdigest()[:16]}", self._print_message
        ):
            if found := self.running:
                self._attach(found)
            else:
                self._launch()

    def _known_port(self) -> int:
        if not self._port:
            raise self.error(f"{self.name}: not started, so it has no address; call start() first")
        return self._port

    def _attach(self, found: ServerProcess) -> None:
        if self.settings.port not in (0, found.port):
            raise self.error(
                f"{self.name}: the one of {self.files.folder} runs on port {found.port}, not {self.settings.port}; "
                f"{self.other_port_advice}"
            )
        self._port = found.port

    def _take_port(self) -> int:
        self._port = self._port or free_port()
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, self._port))
            except OSError as error:
                raise self.error(
                    f"{self.name}: port {self._port} is taken by another program ({error.strerror}); "
                    f"{self.taken_port_advice}"
                ) from error
        return self._port

    def _spawn(self, command: list[str], output: Path, mode: str = "wb", **more: Any) -> None:
        """Start the process; ``more`` as of ``subprocess``."""
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
            what = ""
            if process.poll() is not None:
                what = "ended while starting"
            elif time.monotonic() > end:
                what = f"not ready after {self.settings.start_timeout_ms} ms"
            if what:
                raise self.error(f"{self.name}: {what}: {self.files.last_error()}; see {self.files.log}")
            time.sleep(self.poll_seconds)

    def _signal(self, number: signal.Signals) -> None:
        found = self.running
        if found is None:
            raise self.error(f"{self.name}: it does not run; call start() first")
        for pid in self._processes(found):
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
        """Clean up after an end, ours or not: the run file, the child to reap, its watch."""
        self.files.run.unlink(missing_ok=True)
        if self._process is not None:
            self._process.poll()
        self._process = None
        if self._watch is not None:
            self._watch.kill()
            self._watch.communicate()
            self._watch = None


def free_port() -> int:
    """Return a free port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
