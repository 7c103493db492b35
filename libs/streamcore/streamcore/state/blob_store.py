"""The interface between a shard and its storage: named blobs, read and written whole.

On Spark the blobs of a shard of the last keyed stage are in its state store and are committed with the batch, those of
the stages before in files (``cut_files``); in-process they are in a dictionary. The owner of a blob store makes the
writes of a cut atomic: either all are kept or none.
"""

from __future__ import annotations

from typing import Protocol


class BlobStore(Protocol):
    """Named blobs of one shard. Names are short ASCII text."""

    def get(self, name: str) -> bytes | None:
        """Return the blob of that name, or None."""
        ...

    def put(self, name: str, blob: bytes) -> None:
        """Write or replace a blob."""
        ...

    def remove(self, name: str) -> None:
        """Remove a blob, if it exists."""
        ...


class MemoryBlobs:
    """Blobs in a dictionary: for tests, simulation and back-tests."""

    def __init__(self, blobs: dict[str, bytes] | None = None) -> None:
        self.blobs: dict[str, bytes] = {} if blobs is None else blobs

    def get(self, name: str) -> bytes | None:
        return self.blobs.get(name)

    def put(self, name: str, blob: bytes) -> None:
        self.blobs[name] = blob

    def remove(self, name: str) -> None:
        self.blobs.pop(name, None)
