"""The local files of cold blocks: copies of stored blobs, which a process memory-maps to read rows from them.

Each process has a folder of its own, which it locks as long as it lives; a process that starts removes the folders
whose lock is free. So a file is read only by the process that wrote it, and nothing of an earlier process is trusted.
A file is named by the digest of its content, so that two attempts of a cut cannot confuse their blocks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from streamcore.environment import EnvironmentVariable, Reader
from streamcore.errors import Retryable
from streamcore.state.cold.block import Block

#: Most blocks that a shard keeps open; each takes a file descriptor.
MAX_OPEN_BLOCKS = 128
SPARK_FOLDERS = EnvironmentVariable(
    "SPARK_LOCAL_DIRS",
    "Folders for temporary files of an executor, of which cold keys take the first; Spark sets it in executor pods.",
    Reader.WORKER,
)

_PREFIX = "headgate-cold-"
_LOCK = "lock"


class LocalFiles:
    """The local files of one shard. ``parent``: the folder for temporary files; None: the system's."""

    def __init__(self, parent: str | None, name: str) -> None:
        self._parent = parent
        self._name = name
        self._open: OrderedDict[str, Block] = OrderedDict()

    @property
    def _folder(self) -> Path:
        return process_folder(self._parent) / self._name

    def get(self, digest: str) -> Block | None:
        """Return the block of that digest, or None if there is no file."""
        block = self._open.get(digest)
        if block is None:
            try:
                block = Block(pa.memory_map(str(self._folder / digest)).read_buffer())
            except FileNotFoundError:
                return None
            self._open[digest] = block
            if len(self._open) > MAX_OPEN_BLOCKS:
                self._open.popitem(last=False)
        self._open.move_to_end(digest)
        return block

    def put(self, digest: str, content: bytes) -> None:
        """Write a file; ``Retryable`` if the disk is full or not there."""
        target = self._folder / digest
        try:
            self._folder.mkdir(exist_ok=True)
            partial = target.with_suffix(".part")
            partial.write_bytes(content)
            partial.replace(target)
        except OSError as error:
            with contextlib.suppress(OSError):
                target.with_suffix(".part").unlink()
            raise _disk_error(self._folder.parent.parent, error) from error

    def keep(self, digests: Iterable[str]) -> None:
        """Remove the files of all other digests."""
        kept = set(digests)
        if not kept and not self._open:
            return
        for digest in [one for one in self._open if one not in kept]:
            del self._open[digest]
        with contextlib.suppress(FileNotFoundError):
            for path in self._folder.iterdir():
                if path.name not in kept:
                    path.unlink()


def _disk_error(folder: Path, error: OSError) -> Retryable:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Retryable(
            f"the disk of {folder} is full, and the rows of cold keys need it; make room there, give the app another "
            "local_dir, or raise state_memory_bytes"
        )
    return Retryable(f"{folder}: cold keys cannot be written there: {error}; give the app another local_dir")


@functools.cache
def process_folder(parent: str | None) -> Path:
    """Return this process's folder, after removing the folders of dead processes. Created and locked once."""
    root = Path(parent or os.environ.get(SPARK_FOLDERS, "").split(",")[0] or tempfile.gettempdir())
    try:
        root.mkdir(parents=True, exist_ok=True)
        remove_dead_folders(root)
        while True:
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
            with contextlib.suppress(FileNotFoundError):
                lock = _lock(folder)
                if lock is not None and folder.exists():  # else another process that started took it for a dead one's
                    _locks[folder] = lock
                    return folder
    except OSError as error:
        raise _disk_error(root, error) from error


#: The descriptors of this process's lock files, by folder: closing one would free its lock.
_locks: dict[Path, int] = {}


def remove_dead_folders(root: Path) -> None:
    """Remove the folders of processes that do not live any more."""
    for folder in root.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another process may remove it too
            lock = _lock(folder)
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _lock(folder: Path) -> int | None:
    """Lock a folder; return the descriptor of its lock file, or None if its process lives."""
    file = os.open(folder / _LOCK, os.O_WRONLY | os.O_CREAT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file
