"""The protocol of a store of files under one address, on a disk or in a bucket."""

from __future__ import annotations

from typing import Protocol


class ObjectStore(Protocol):
    """Files under one address. Errors are those of ``streamcore.errors``.

    A value: it can be sent to another process, which opens what it needs itself.
    """

    @property
    def url(self) -> str:
        """The address, as ``open_object_store`` takes it."""
        ...

    def under(self, name: str) -> ObjectStore:
        """Return the folder of that name in this one, whether it is there or not."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file in one step: a reader, or a crash, finds the old one or the new one, whole."""
        ...

    def read(self, name: str) -> bytes | None:
        """Read a file; None where there is none."""
        ...

    def discard(self, name: str) -> None:
        """Remove a file; one that is not there is no error."""
        ...

    def folders(self) -> list[str]:
        """Return the names of the folders in this one, sorted."""
        ...

    def files(self) -> list[str]:
        """Return the names of all files, also of those in folders of it, sorted."""
        ...

    def remove(self) -> None:
        """Remove everything, in no order that one may rely on; a folder that is not there is no error."""
        ...
