"""Small JSON files that must be whole or absent, even after a power cut or on a full disk."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from streamcore.errors import ConfigError, CorruptState, Retryable, StreamError

#: What is read back with ``read_json``: flat, text and whole numbers only.
Entry = str | int


def write_json(path: Path, entries: Mapping[str, object]) -> None:
    """Replace ``path`` in one step: a reader, or a crash at any moment, finds the old file or the new one, whole."""
    write_text(path, json.dumps(entries, indent=1))


def write_text(path: Path, text: str) -> None:
    """The same with any text."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with naming_file_errors(path):
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            _sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def read_whole(path: Path) -> bytes | None:
    """What is in the file, or None when there is no such file."""
    with naming_file_errors(path):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None


def read_json(path: Path) -> dict[str, Entry] | None:
    """The entries, or None when there is no such file; ``CorruptState`` when it is not what ``write_json`` wrote."""
    text = read_whole(path)
    if text is None:
        return None
    try:
        entries = json.loads(text)
    except ValueError:
        entries = None
    if not isinstance(entries, dict) or not all(isinstance(v, str | int) for v in entries.values()):
        raise CorruptState(
            f"{path}: not a whole JSON object of ours ({len(text)} bytes); "
            "restore the checkpoint from a savepoint, or this file from a copy"
        )
    return entries


def read_int(path: Path, entries: Mapping[str, Entry], name: str) -> int:
    """A whole number among the entries; ``CorruptState`` when it is missing."""
    value = entries.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise CorruptState(f"{path}: {name} is {value!r}, not a whole number; restore the file from a copy")
    return value


@contextmanager
def naming_file_errors(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` into an error of ours that says what to do."""
    try:
        yield
    except OSError as error:
        raise file_error(path, error) from error


def file_error(path: Path, error: OSError) -> StreamError:
    """``Retryable`` for a full disk (after making room), ``ConfigError`` for missing rights or folders."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Retryable(f"{path}: disk full ({_free_bytes(path)} bytes free); make room and start again")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ConfigError(f"{path}: {error.strerror}; give this user the right to write there, or use another folder")
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        return ConfigError(f"{path}: {error.strerror}; the checkpoint must be a folder")
    return Retryable(f"{path}: {error.strerror}")


def _free_bytes(path: Path) -> int:
    try:
        return shutil.disk_usage(path.parent).free
    except OSError:
        return 0


def _sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
