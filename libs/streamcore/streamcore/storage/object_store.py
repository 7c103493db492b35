"""The protocol of a folder of files, on a disk or in a bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class ObjectStore(Protocol):
    """A folder of files. Methods raise errors of ``streamcore.errors``.

    It has no open files or connections, so it can be pickled and sent to another process.
    """

    @property
    def url(self) -> str:
        """The address, as ``open_object_store`` takes it."""
        ...

    def under(self, name: str) -> ObjectStore:
        """Return the subfolder with this name, which need not exist."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file atomically: a reader, also after a crash, finds the old or the new content."""
        ...

    def write_parts(self, name: str, parts: Sequence[bytes]) -> None:
        """Write or replace a file, as ``write`` does, by these parts one behind the other."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""
        ...

    def read_range(self, name: str, start: int, size: int) -> bytes | None:
        """Return ``size`` bytes of a file from byte ``start`` on, less at its end; None if the file does not exist."""
        ...

    def discard(self, name: str) -> None:
        """Remove a file, if it exists."""
        ...

    def folders(self) -> list[str]:
        """Return the names of the direct subfolders, sorted."""
        ...

    def files(self) -> list[str]:
        """Return the paths of all files in this folder and its subfolders, relative to it, sorted."""
        ...

    def remove_unfinished(self) -> None:
        """Remove what writes that did not end have left in this folder and its subfolders. No other process may be
        writing there that is to succeed."""
        ...

    def remove(self) -> None:
        """Remove the folder with all files, if it exists. The order of removal is not defined."""
        ...
