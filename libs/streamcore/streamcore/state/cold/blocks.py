"""Reads and writes the blobs of cold runs: in the shard's blob store for ever, in local files for reading.

A blob is written once. A local file that does not exist is written from the blob when it is first read, so a process
that starts reads only the blocks that it needs.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable

import pyarrow as pa

from streamcore.errors import CorruptState
from streamcore.state.blob_store import BlobStore
from streamcore.state.cold.block import Block
from streamcore.state.cold.local_files import LocalFiles
from streamcore.state.cold.run import KeyFilter, Run

#: Blocks that are kept in memory where there are no local files: a block of each run.
_RECENT = 32


class ColdBlobs:
    """The blobs of the cold runs of a shard. ``store``: the shard's blob store in this cut. ``written``: bytes written
    to it, ``digests``: of the blobs written to it, both since the last ``take_written``."""

    def __init__(self, files: LocalFiles, *, local: bool = True) -> None:
        self.files = files
        self.store: BlobStore | None = None
        self._local = local
        self._recent: OrderedDict[str, Block] = OrderedDict()
        self._written = 0
        self._digests: list[str] = []

    def read(self, operator: str, run: Run, index: int) -> Block:
        """Return a block; ``CorruptState`` if it is missing or differs from what was written."""
        digest = run.blocks[index].digest
        block = self.files.get(digest) if self._local else self._recent.get(digest)
        if block is not None:
            return block
        content = self._get(_name(operator, run.number, str(index)), digest)
        if not self._local:
            block = self._recent[digest] = Block(pa.py_buffer(content))
            if len(self._recent) > _RECENT:
                self._recent.popitem(last=False)
            return block
        self.files.put(digest, content)
        block = self.files.get(digest)
        assert block is not None, "the file was written"
        return block

    def read_filter(self, operator: str, run: Run) -> KeyFilter:
        """Return the filter of a run, which stays in memory."""
        if run.key_filter is None:
            run.key_filter = KeyFilter.from_bytes(self._get(_name(operator, run.number, "filter"), run.filter_digest))
        return run.key_filter

    def write(self, operator: str, number: int, index: int, content: bytes) -> str:
        """Write a block, and return its digest."""
        digest = self._put(_name(operator, number, str(index)), content)
        if self._local:
            self.files.put(digest, content)
        return digest

    def write_filter(self, operator: str, number: int, key_filter: KeyFilter) -> str:
        """Write the filter of a run, and return its digest."""
        return self._put(_name(operator, number, "filter"), key_filter.bitmap.tobytes())

    def remove(self, operator: str, runs: Iterable[Run]) -> None:
        """Remove the blobs of these runs."""
        for run in runs:
            for index, block in enumerate(run.blocks):
                if block.digest:
                    self._blobs.remove(_name(operator, run.number, str(index)))
            self._blobs.remove(_name(operator, run.number, "filter"))

    def take_written(self) -> tuple[int, list[str]]:
        """Return the bytes and digests of the blobs written since the last call."""
        written, self._written = (self._written, self._digests), 0
        self._digests = []
        return written

    @property
    def _blobs(self) -> BlobStore:
        assert self.store is not None, "the blob store is given for each cut"
        return self.store

    def _put(self, name: str, content: bytes) -> str:
        self._blobs.put(name, content)
        digest = _digest(content)
        self._written += len(content)
        self._digests.append(digest)
        return digest

    def _get(self, name: str, digest: str) -> bytes:
        content = self._blobs.get(name)
        if content is None:
            raise CorruptState(f"shard state: blob {name} is missing; restore from a savepoint")
        if _digest(content) != digest:
            raise CorruptState(f"shard state: blob {name} is not what was written; restore from a savepoint")
        return content


def _name(operator: str, number: int, part: str) -> str:
    return f"cold/{operator}/{number}/{part}"


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
