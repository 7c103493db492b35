"""A folder of a file system as a place for files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streamcore.storage.atomic_files import (
    discard,
    make_folder,
    naming_file_errors,
    read_whole,
    remove_folder,
    remove_temporary,
    write_whole,
    writing,
)


@dataclass(frozen=True, slots=True)
class LocalObjectStore:
    """A folder of this machine, or one that all machines of an app have mounted."""

    path: Path

    @property
    def url(self) -> str:
        return str(self.path.absolute())

    def under(self, name: str) -> LocalObjectStore:
        return LocalObjectStore(self.path / name)

    def write(self, name: str, content: bytes) -> None:
        path = self.path / name
        make_folder(path.parent)
        write_whole(path, content)

    def write_parts(self, name: str, parts: Sequence[bytes]) -> None:
        path = self.path / name
        make_folder(path.parent)
        with writing(path) as file:
            file.writelines(parts)

    def read(self, name: str) -> bytes | None:
        return read_whole(self.path / name)

    def read_range(self, name: str, start: int, size: int) -> bytes | None:
        path = self.path / name
        with naming_file_errors(path):
            try:
                file = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                return None
            try:
                return os.pread(file, size, start)
            finally:
                os.close(file)

    def discard(self, name: str) -> None:
        discard(self.path / name)

    def folders(self) -> list[str]:
        with naming_file_errors(self.path):
            return sorted(p.name for p in self.path.iterdir() if p.is_dir()) if self.path.is_dir() else []

    def files(self) -> list[str]:
        with naming_file_errors(self.path):
            found = [p for p in self.path.rglob("*") if p.is_file() and not p.name.startswith(".")]
        return sorted(p.relative_to(self.path).as_posix() for p in found)

    def remove_unfinished(self) -> None:
        remove_temporary(self.path)

    def remove(self) -> None:
        remove_folder(self.path)
