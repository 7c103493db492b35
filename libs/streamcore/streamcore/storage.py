"""Where savepoints lie: named files under one address, written whole or not at all.

Exists so that what writes and reads them need not know the place. Promises: a file that is listed or read was written
to its end; a name is a relative path with ``/``. Refuses to know what is in the files, and Spark's own, which go by
Hadoop's clients.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from streamcore.checkpoint.files import naming_file_errors, read_whole
from streamcore.errors import ConfigError


class Folder(Protocol):
    """Files under one address. Errors are those of ``streamcore.errors``."""

    @property
    def url(self) -> str:
        """The address, as ``open_folder`` takes it."""
        ...

    def under(self, name: str) -> Folder:
        """The folder of that name in this one, whether it is there or not."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file in one step."""
        ...

    def read(self, name: str) -> bytes | None:
        """What is in a file; None where there is none."""
        ...

    def discard(self, name: str) -> None:
        """Remove a file; one that is not there is no error."""
        ...

    def folders(self) -> list[str]:
        """The names of the folders in this one, sorted."""
        ...

    def files(self) -> list[str]:
        """The names of all files, also of those in folders of it, sorted."""
        ...

    def remove(self) -> None:
        """Remove everything; a folder that is not there is no error."""
        ...


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder of this machine, or one that all machines of an app have mounted."""

    path: Path

    @property
    def url(self) -> str:
        return str(self.path.absolute())

    def under(self, name: str) -> LocalFolder:
        return LocalFolder(self.path / name)

    def write(self, name: str, content: bytes) -> None:
        path = self.path / name
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        with naming_file_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)

    def read(self, name: str) -> bytes | None:
        return read_whole(self.path / name)

    def discard(self, name: str) -> None:
        with naming_file_errors(self.path / name):
            (self.path / name).unlink(missing_ok=True)

    def folders(self) -> list[str]:
        with naming_file_errors(self.path):
            return sorted(p.name for p in self.path.iterdir() if p.is_dir()) if self.path.is_dir() else []

    def files(self) -> list[str]:
        with naming_file_errors(self.path):
            found = [p for p in self.path.rglob("*") if p.is_file() and not p.name.startswith(".")]
        return sorted(p.relative_to(self.path).as_posix() for p in found)

    def remove(self) -> None:
        with naming_file_errors(self.path):
            if self.path.is_dir():
                shutil.rmtree(self.path)


def open_folder(url: str | Path) -> Folder:
    """The folder of an address: a path of this machine. ``ConfigError`` for other kinds."""
    text = str(url)
    if "://" in text and not text.startswith("file://"):
        raise ConfigError(f"{text}: savepoints are written to folders; give a path that every machine of the app has")
    return LocalFolder(Path(text.removeprefix("file://")))
