"""The files of a local PostgreSQL server, and the account it runs under. Starting it is ``postgres``'s job.

PostgreSQL refuses to run as root. Then it gets an account without rights, and a folder that this account can reach:
the one asked for, or one in the system's temporary folder if a folder above it is closed.
"""

from __future__ import annotations

import os
import pwd
import secrets
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TypedDict

from headgate.errors import DatabaseError
from headgate.local.servers.files import ServerFiles
from headgate.local.servers.postgres_binaries import Binaries

USER, DATABASE = "headgate", "headgate"
_CONFIGURATION = """\
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
max_connections = 50
shared_buffers = 128MB
max_wal_size = 512MB
timezone = 'UTC'
log_timezone = 'UTC'
lc_messages = 'C'
{extra}
"""
_LOG_BYTES = 10_000_000
_READY_LINE = 7  # of postmaster.pid, counted from 0; see PostgreSQL's pidfile.h


@dataclass(frozen=True, slots=True)
class Account:
    """The account that runs the server."""

    uid: int
    gid: int


class Identity(TypedDict, total=False):
    """Arguments of ``subprocess`` that select the account of the child process."""

    user: int
    group: int
    extra_groups: list[int]


def unprivileged_account() -> Account | None:
    """Return the account to change to; None when this process is not root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise DatabaseError("postgres: refuses to run as root, and there is no account `postgres` or `nobody`; add one")


def reachable(folder: Path) -> bool:
    """Return whether any account can traverse this folder and those above it."""
    return all(part.stat().st_mode & 0o001 for part in (folder, *folder.parents) if part.exists())


@dataclass(frozen=True, slots=True)
class PostgresFiles(ServerFiles):
    """The paths of one server. ``account``: the account that runs it; None: this process's."""

    account: Account | None

    @property
    def home(self) -> Path:
        """The folder that the server itself writes to."""
        if self.account is None or reachable(self.folder.parent):
            return self.folder
        return Path(tempfile.gettempdir()) / f"headgate-postgres-{sha256(str(self.folder).encode()).hexdigest()[:16]}"

    @property
    def data(self) -> Path:
        """PostgreSQL's data folder; the path in its command line also identifies the process."""
        return self.home / "data"

    @property
    def password(self) -> Path:
        """The password of ``USER``, for clients."""
        return self.folder / "password"

    def prepare(self, binaries: Binaries) -> None:
        """Create the data folder with one user and one database, once; recreate it if a crash left it incomplete."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._create_home()
        complete_marker = self.data / "headgate-made"
        if complete_marker.exists():
            return
        self.as_account(["rm", "-rf", str(self.data)])
        self._write_password()
        password_copy = self.home / "initial-password"  # the account cannot read the other file
        password_copy.touch(mode=0o600)
        self._chown(password_copy)
        password_copy.write_bytes(self.password.read_bytes())
        options = ["--username", USER, "--pwfile", str(password_copy), "--auth", "scram-sha-256", "--encoding", "UTF8"]
        self.as_account([str(binaries.initdb), "--pgdata", str(self.data), "--locale", "C", *options])
        password_copy.unlink()
        create = f"CREATE DATABASE {DATABASE}\n"
        self.as_account([str(binaries.postgres), "--single", "-D", str(self.data), "postgres"], create)
        self.as_account(["touch", str(complete_marker)])

    def configure(self, port: int, extra: Sequence[tuple[str, str]]) -> None:
        """Write the server's settings. ``extra`` overrides the defaults."""
        lines = "\n".join(f"{name} = '{value}'" for name, value in extra)
        path = self.data / "postgresql.conf"
        path.write_text(_CONFIGURATION.format(port=port, extra=lines), encoding="utf-8")
        self._chown(path)
        if self.log.exists() and self.log.stat().st_size > _LOG_BYTES:
            self.log.unlink()

    def ready_as(self, pid: int) -> bool:
        """Return whether the server with this process id reports that it takes connections."""
        try:
            lines = (self.data / "postmaster.pid").read_text(encoding="utf-8").split("\n")
        except OSError:
            return False
        return lines[0] == str(pid) and len(lines) > _READY_LINE and lines[_READY_LINE].strip() == "ready"

    def last_error(self) -> str:
        """Return the last lines of the log, for an error message."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-50:] if self.log.exists() else []
        return " | ".join(lines[-3:])[-600:] or "it printed nothing"

    def as_account(self, command: list[str], text: str = "") -> None:
        """Run a program under the account, with ``text`` as its input. Raises ``DatabaseError`` if it fails."""
        process = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.home,
            env=environment(),
            **self.identity,
        )
        if process.returncode != 0:
            output = " | ".join((process.stderr or process.stdout).strip().splitlines()[-3:])
            raise DatabaseError(f"postgres: cannot prepare {self.data}: {command[0]}: {output}")

    @property
    def identity(self) -> Identity:
        """Arguments of ``subprocess`` that make a child run under the account."""
        if self.account is None:
            return {}
        return {"user": self.account.uid, "group": self.account.gid, "extra_groups": []}

    def _create_home(self) -> None:
        """Create the folder, or check that this user owns it: in a shared folder, another user may have created it."""
        self.home.mkdir(mode=0o755, exist_ok=True)
        if self.account is None:
            return
        status = self.home.lstat()
        if self.home.is_symlink() or status.st_uid not in (0, self.account.uid):
            raise DatabaseError(f"postgres: {self.home} belongs to another user; delete it")
        self._chown(self.home)
        self.home.chmod(0o755)

    def _chown(self, path: Path) -> None:
        if self.account is not None:
            os.chown(path, self.account.uid, self.account.gid)

    def _write_password(self) -> None:
        self.password.touch(mode=0o600)
        self.password.write_text(secrets.token_urlsafe(24), encoding="utf-8")


def environment() -> dict[str, str]:
    """Return the environment of the server's programs: messages in English, and none of the caller's PG variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return kept | {"LC_ALL": "C"}
