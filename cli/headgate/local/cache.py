"""The user's cache: files that are downloaded or built once and then shared by all checkouts and processes.

Promises: an entry under its final name is complete, because a process builds it under another name and then renames it;
only one process at a time builds an entry. The cache may be deleted while no process uses it; it is built again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate.console.messages import Print, silent
from headgate.errors import SetupError
from streamcore.environment import EnvironmentVariable, Reader

_DEFAULT = "~/.cache/headgate"
_CACHE = EnvironmentVariable(
    "HEADGATE_CACHE",
    "Folder of what the command downloads or builds (Java, jars, servers), and of the data of local servers and demos.",
    Reader.COMMAND,
    default=f"`{_DEFAULT}`",
)


def root() -> Path:
    """Return the absolute path of the cache: ``HEADGATE_CACHE``, or its default."""
    return Path(os.environ.get(_CACHE) or _DEFAULT).expanduser().absolute()


@contextmanager
def exclusive(name: str, print_message: Print = silent) -> Iterator[None]:
    """Hold the lock ``name`` of the cache, waiting for another process that holds it. It ends with the process."""
    folder = root() / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / name).open("w")
    except OSError as error:
        raise SetupError(f"cache {root()}: {error.strerror}; set {_CACHE} to a folder you may write to") from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print_message(f"waiting for another process that prepares {name}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def publish(target: Path, build: Callable[[Path], None], print_message: Print = silent) -> Path:
    """Return the folder ``target``, after building it with ``build(folder)`` if it is missing.

    A failed or killed build leaves no target.
    """
    if target.is_dir():
        return target
    with exclusive(target.name, print_message):
        if target.is_dir():  # another process built it while this one waited
            return target
        part = target.with_name(f"{target.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        build(part)
        part.rename(target)
    return target
