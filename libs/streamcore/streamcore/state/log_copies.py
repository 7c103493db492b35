"""Copies of the latest log blobs of a shard in a local folder that all Python workers of an executor see.

Spark gives a task to any of an executor's workers, so a shard often comes to a process whose tables are one or two cuts
behind. Such a process reads the log blobs that it lacks, and Spark's state store is slow to give them: the JVM pickles
bytes one character at a time. So is a bucket. Measured with a deduplication in Spark's state store, this was half of
what the state cost. Blobs in files of a disk need no copies.

A copy is named by the chain digest of its cut, which covers the blob and all that was written before. So an attempt
that is not committed, or another app, is never taken for a committed cut. A copy that is not there, is damaged (it
begins with a checksum), or cannot be written, costs only time. Spark removes the folder when the executor ends.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

from streamcore.state.cold.local_files import SPARK_FOLDERS

#: How many copies a shard has: a process that is further behind reads the store.
KEPT = 8
#: A smaller blob is not copied: the store gives it as quickly.
MIN_BYTES = 16 * 1024
_CHECKSUM_BYTES = 4
#: Of the log blob; the rest is the run.
_LENGTH = struct.Struct("<Q")


class LogCopies:
    """The copies of one shard. ``name``: of the shard, unique in the executor."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name

    def put(self, chains: Sequence[str], log: bytes, run: bytes) -> None:
        """Copy the log blob of the latest cut and that of its run, and remove the copy that is too old.

        ``chains``: the digests of the last cuts, latest last.
        """
        with contextlib.suppress(OSError):
            if len(chains) > KEPT:
                self._path(chains[-1 - KEPT]).unlink(missing_ok=True)
            if len(log) + len(run) >= MIN_BYTES:
                partial = self._folder / f"{self._path(chains[-1]).name}.{os.getpid()}"
                content = _LENGTH.pack(len(log)) + log + run
                partial.write_bytes(_checksum(content) + content)
                partial.replace(self._path(chains[-1]))

    def get(self, chain: str) -> tuple[bytes, bytes] | None:
        """Return the copies of the log blob of the cut with this chain digest and of its run, or None."""
        try:
            stored = self._path(chain).read_bytes()
        except OSError:
            return None
        content = stored[_CHECKSUM_BYTES:]
        if not stored.startswith(_checksum(content)):
            return None
        (size,) = _LENGTH.unpack_from(content)
        return content[_LENGTH.size : _LENGTH.size + size], content[_LENGTH.size + size :]

    def _path(self, chain: str) -> Path:
        return self._folder / f"headgate-log-{self._name}-{chain}"


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "little")


def copies_for(name: str) -> LogCopies | None:
    """Return the copies of the shard of that name; None outside of Spark's workers."""
    folder = os.environ.get(SPARK_FOLDERS, "").split(",")[0]
    return LogCopies(Path(folder), name) if folder else None
