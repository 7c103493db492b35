"""A real PostgreSQL for one machine, as a child process, with its data in a folder.

Promises: what ``start`` returns accepts clients with the password in ``password_file``; a server of the same folder
that runs already is used, whoever started it; it survives the terminal's Ctrl-C; what it confirmed is on the disk.
Refuses a port that another program holds. It listens on 127.0.0.1 only, has one user and one database, and knows no
tables.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from headgate.errors import DatabaseError
from headgate.local import cache, postgres_binaries, processes
from headgate.local.broker import HOST, Lifetime
from headgate.local.broker_files import Running, read_run, write_run
from headgate.local.postgres_binaries import Binaries
from headgate.local.postgres_files import DATABASE, USER, PostgresFiles, environment, reachable, unprivileged
from headgate.talk import Say, to_stderr

_POLL_SECONDS = 0.02
# Ends the server when the pipe on its standard input closes, which the death of the parent does, however it dies.
# An interrupt is its quick stop in order: a plain end would wait for every client to leave.
_WATCH = 'cat >/dev/null; kill -CONT "$1"; kill -INT "$1"'


@dataclass(frozen=True, slots=True)
class EmbeddedSettings:
    """``port`` 0: a free one, kept over restarts of the same object. ``extra``: settings of postgresql.conf, which win
    over ours."""

    folder: Path
    port: int = 0
    lifetime: Lifetime = Lifetime.DETACHED
    start_timeout_ms: int = 120_000
    stop_timeout_ms: int = 30_000
    extra: tuple[tuple[str, str], ...] = ()


def default_folder() -> Path:
    """Where ``make run`` keeps its database."""
    return cache.root() / "postgres-data"


class EmbeddedPostgres:
    """One server. The methods are not for several threads; several processes may use the same folder."""

    user = USER
    database = DATABASE
    host = HOST

    def __init__(self, settings: EmbeddedSettings, binaries: Binaries | None = None, say: Say = to_stderr) -> None:
        self.settings = settings
        self.files = PostgresFiles(settings.folder.absolute(), unprivileged())
        self._say = say
        self._binaries = binaries
        self._port = settings.port
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> EmbeddedPostgres:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """Known from the first start on, also while the server is down."""
        if not self._port:
            raise DatabaseError("postgres: not started, so it has no port; call start() first")
        return self._port

    @property
    def password_file(self) -> Path:
        """Holds the password of ``user``; readable by who started the server first."""
        return self.files.password

    @property
    def running(self) -> Running | None:
        """The live process of this folder, started here or elsewhere."""
        if self._process is not None:
            self._process.poll()  # a child that ended stays a zombie until it is asked
        found = read_run(self.files.run)
        return found if found and processes.is_running(found.pid, str(self.files.data)) else None

    def start(self) -> int:
        """Start it unless it runs, wait until it is ready, and return the port.

        ``DatabaseError`` when the port is taken, when it runs on another port, or when it does not come up;
        ``SetupError`` when this machine has no PostgreSQL and none can be fetched.
        """
        with cache.exclusive(f"postgres-{sha256(str(self.files.folder).encode()).hexdigest()[:16]}", self._say):
            if found := self.running:
                self._attach(found)
            else:
                self._launch()
        return self.port

    def stop(self) -> None:
        """End it in order; by force after ``stop_timeout_ms``."""
        if found := self.running:
            processes.send(found.pid, signal.SIGCONT)
            processes.send(found.pid, signal.SIGINT)
            if not self._ended(found.pid):
                self._say(f"postgres: still there after {self.settings.stop_timeout_ms} ms, ending it by force")
                self._kill(found.pid)
        self._forget()

    def kill(self) -> None:
        """End it and all its processes at once, as a power cut would."""
        if found := self.running:
            self._kill(found.pid)
        self._forget()

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing is answered."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen one go on."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        found = self.running
        if found is None:
            raise DatabaseError("postgres: it does not run; call start() first")
        for pid in (found.pid, *processes.children(found.pid)):
            processes.send(pid, number)

    def delete(self) -> None:
        """Delete all that it kept; it must not run."""
        if self.running:
            raise DatabaseError("postgres: it runs; stop it before its data is deleted")
        for folder in {self.files.home, self.files.folder}:
            shutil.rmtree(folder, ignore_errors=True)

    def _kill(self, pid: int) -> None:
        """The first process and then its children, which would else finish what they are at."""
        children = processes.children(pid)
        processes.send(pid, signal.SIGKILL)
        for child in children:
            processes.send(child, signal.SIGKILL)
        self._ended(pid)
        for child in children:
            processes.wait_for_end(child, "postgres", self.settings.stop_timeout_ms)

    def _attach(self, found: Running) -> None:
        if self.settings.port not in (0, found.port):
            raise DatabaseError(
                f"postgres: the one of {self.files.folder} runs on port {found.port}, not {self.settings.port}; "
                "use that port, or stop it"
            )
        self._port = found.port

    def _launch(self) -> None:
        binaries = self._binaries = self._binaries or postgres_binaries.ensure(self.binaries_root, self._say)
        self._port = self._port or free_port()
        refuse_taken(self._port)
        if not self.files.data.exists():
            self._say(f"postgres: preparing its folder {self.files.home}")
        self.files.prepare(binaries)
        self.files.configure(self._port, self.settings.extra)
        self._say(f"postgres: starting on {HOST}:{self._port}")
        self._spawn([str(binaries.postgres), "-D", str(self.files.data)])

    @property
    def binaries_root(self) -> Path:
        """Where programs are fetched to: the cache, or a folder beside it that the server's account can reach."""
        if self.files.account is None or reachable(cache.root()):
            return cache.root()
        root = Path(tempfile.gettempdir()) / "headgate-root-cache"
        root.mkdir(mode=0o755, exist_ok=True)
        if root.is_symlink() or root.stat().st_uid != 0:
            raise DatabaseError(f"postgres: {root} belongs to somebody else; delete it")
        return root

    def _spawn(self, command: list[str]) -> None:
        with self.files.log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd=self.files.home,
                env=environment(),
                **self.files.identity,
            )
        write_run(self.files.run, Running(self._process.pid, self.port))
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
        while not self.files.ready_as(process.pid):
            if process.poll() is not None:
                raise DatabaseError(f"postgres: ended while starting: {self.files.complaint()}; see {self.files.log}")
            if time.monotonic() > end:
                raise DatabaseError(
                    f"postgres: not ready after {self.settings.start_timeout_ms} ms: {self.files.complaint()}; "
                    f"see {self.files.log}"
                )
            time.sleep(_POLL_SECONDS)

    def _ended(self, pid: int) -> bool:
        if self._process is None or self._process.pid != pid:
            return processes.wait_for_end(pid, str(self.files.data), self.settings.stop_timeout_ms)
        try:
            self._process.wait(self.settings.stop_timeout_ms / 1000)
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


def free_port() -> int:
    """A port of 127.0.0.1 that nobody holds right now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def refuse_taken(port: int) -> None:
    """``DatabaseError`` when another program holds it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise DatabaseError(
                f"postgres: port {port} is taken by another program ({error.strerror}); end it or choose another port"
            ) from error
