"""The seam between a shard and the place where its state is durable: named blobs, read and written whole.

Under Spark a shard's blobs live in its state store and become durable with the batch; in-process they live in a
dictionary. A blob store is transactional from the outside: either every write of a cut is kept or none is.
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
        """Remove a blob; a missing one is no error."""
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
