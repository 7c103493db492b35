"""A real PostgreSQL for one machine, as a child process, with its data in a folder.

Promises: the server that ``start`` returns accepts clients with the password in ``password_file``; a running server of
the same folder is used, whichever process started it; the server survives the terminal's Ctrl-C; committed writes are
on the disk; a port that another program uses raises an error. The server listens on 127.0.0.1 only, and has one user
and one database.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.console.messages import Print, to_stderr
from headgate.errors import DatabaseError
from headgate.local import cache, processes
from headgate.local.servers import postgres_binaries
from headgate.local.servers.base import HOST, EmbeddedServer, Lifetime
from headgate.local.servers.files import ServerProcess
from headgate.local.servers.postgres_binaries import Binaries
from headgate.local.servers.postgres_files import (
    DATABASE,
    USER,
    PostgresFiles,
    environment,
    reachable,
    unprivileged_account,
)

#: The port of the server of ``headgate etl run`` and the like, whose data is in ``default_folder``.
DEFAULT_PORT: Final = 19432


@dataclass(frozen=True, slots=True)
class PostgresServerSettings:
    """``port`` 0: a free one, kept for later starts of this object. ``extra``: settings of postgresql.conf, which
    override the defaults of ``postgres_files``."""

    folder: Path
    port: int = 0
    lifetime: Lifetime = Lifetime.DETACHED
    start_timeout_ms: int = 120_000
    stop_timeout_ms: int = 30_000
    extra: tuple[tuple[str, str], ...] = ()


def default_folder() -> Path:
    """Return the data folder of a local run."""
    return cache.root() / "postgres-data"


class EmbeddedPostgres(EmbeddedServer[PostgresServerSettings, PostgresFiles]):
    """A local PostgreSQL server."""

    name = "postgres"
    error = DatabaseError
    other_port_advice = "use that port, or stop it"
    taken_port_advice = "end it or choose another port"
    # SIGINT is PostgreSQL's fast orderly stop; SIGTERM would wait until every client has disconnected.
    quit = signal.SIGINT
    user = USER
    database = DATABASE
    host = HOST

    def __init__(
        self, settings: PostgresServerSettings, binaries: Binaries | None = None, print_message: Print = to_stderr
    ) -> None:
        files = PostgresFiles(settings.folder.absolute(), unprivileged_account())
        super().__init__(settings, files, str(files.data), print_message)
        self._binaries = binaries

    @property
    def port(self) -> int:
        """The port; known after the first start, also while the server does not run."""
        return self._known_port()

    @property
    def password_file(self) -> Path:
        """The file with the password of ``user``; only the user who first started the server can read it."""
        return self.files.password

    def start(self) -> int:
        """Start the server unless it runs, wait until it is ready, and return the port.

        Raises ``DatabaseError`` if another program uses the port, or the server runs on another port or does not start;
        ``SetupError`` if this machine has no PostgreSQL and none can be downloaded.
        """
        self._start()
        return self.port

    def delete(self) -> None:
        """Delete all data of the server, which must not run."""
        if self.running:
            raise DatabaseError("postgres: it runs; stop it before its data is deleted")
        for folder in {self.files.home, self.files.folder}:
            shutil.rmtree(folder, ignore_errors=True)

    def _processes(self, server: ServerProcess) -> tuple[int, ...]:
        return (server.pid, *processes.children(server.pid))

    def _kill(self, pid: int) -> None:
        """Kill the first process and then its children, which would otherwise finish their work."""
        children = processes.children(pid)
        processes.send(pid, signal.SIGKILL)
        for child in children:
            processes.send(child, signal.SIGKILL)
        self._wait_for_end(pid)
        for child in children:
            processes.wait_for_end(child, "postgres", self.settings.stop_timeout_ms)

    def _launch(self) -> None:
        binaries = self._binaries = self._binaries or postgres_binaries.ensure(self.binaries_root, self._print_message)
        port = self._take_port()
        if not self.files.data.exists():
            self._print_message(f"postgres: preparing its folder {self.files.home}")
        self.files.prepare(binaries)
        self.files.configure(port, self.settings.extra)
        command = [str(binaries.postgres), "-D", str(self.files.data)]
        self._spawn(command, self.files.log, "ab", cwd=self.files.home, env=environment(), **self.files.identity)

    def _is_ready(self, process: subprocess.Popen[bytes]) -> bool:
        return self.files.ready_as(process.pid)

    @property
    def binaries_root(self) -> Path:
        """The folder for downloaded programs: the cache, or a temporary folder if the server's account cannot reach the
        cache."""
        if self.files.account is None or reachable(cache.root()):
            return cache.root()
        root = Path(tempfile.gettempdir()) / "headgate-root-cache"
        root.mkdir(mode=0o755, exist_ok=True)
        if root.is_symlink() or root.stat().st_uid != 0:
            raise DatabaseError(f"postgres: {root} belongs to another user; delete it")
        return root


def local_postgres(print_message: Print = to_stderr) -> EmbeddedPostgres:
    """Return the server of local runs: ``default_folder`` and ``DEFAULT_PORT``."""
    return EmbeddedPostgres(PostgresServerSettings(default_folder(), DEFAULT_PORT), print_message=print_message)
