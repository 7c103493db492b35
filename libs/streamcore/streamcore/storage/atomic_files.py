"""Small JSON files that must be whole or absent, even after a power cut or on a full disk; and folders of them.

On a disk a file is replaced by a rename; in a bucket one PUT is whole or has not been (``streamcore.storage.s3``).
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from streamcore.errors import ConfigError, CorruptState, Retryable, StreamError
from streamcore.storage.location import Location, ObjectPath

if TYPE_CHECKING:
    from streamcore.storage.s3 import S3ObjectStore

#: Errors of a file system that has no links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)
#: What is read back with ``read_json``: flat, text and whole numbers only.
Entry = str | int


def write_json(path: Location, entries: Mapping[str, object]) -> None:
    """Replace ``path`` in one step: a reader, or a crash at any moment, finds the old file or the new one, whole."""
    write_text(path, json.dumps(entries, indent=1))


def write_text(path: Location, text: str) -> None:
    """Replace ``path`` in one step, as ``write_json`` does, by any text."""
    write_whole(path, text.encode())


def write_whole(path: Location, content: bytes) -> None:
    """Replace ``path`` in one step, as ``write_json`` does, by any bytes."""
    if isinstance(path, ObjectPath):
        _folder(path.parent).write(path.name, content)
        return
    with writing(path) as file:
        file.write(content)


def create_json(path: Location, entries: Mapping[str, object]) -> bool:
    """Write it where there is none, in one step; whether the file holds these entries, written now or before."""
    content = json.dumps(entries, indent=1).encode()
    if isinstance(path, ObjectPath):
        made = _folder(path.parent).exchange(path.name, content, None) is not None
    else:
        made = _create(path, content)
    return made or read_whole(path) == content


def _create(path: Path, content: bytes) -> bool:
    with _temporary(path) as temporary:
        with _open_synced(temporary) as file:
            file.write(content)
        return _link(temporary, path)


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield a name beside ``path`` that no other process has, not even one of the same number on another machine. The
    block gives what is there its own name; its remains are removed."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    with naming_file_errors(path):
        try:
            yield temporary
            _sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def _open_synced(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file, whose content survives a power cut once the block has ended without an error."""
    with path.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _link(temporary: Path, path: Path) -> bool:
    """Give it its name, unless another file has it."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A file system without links: not in one step, but what is there is seen.
        if path.exists():
            return False
        temporary.replace(path)
    return True


@contextmanager
def writing(path: Location) -> Iterator[IO[bytes]]:
    """Replace ``path`` by the bytes that the block writes to the file: the file is there, whole, once the block has
    ended without an error."""
    if isinstance(path, ObjectPath):
        with naming_file_errors(Path(tempfile.gettempdir(), path.name)), tempfile.TemporaryFile() as file:
            yield file
            file.seek(0)
            _folder(path.parent).write_from(path.name, file)
        return
    with _temporary(path) as temporary:
        with _open_synced(temporary) as file:
            yield file
        temporary.replace(path)


def read_whole(path: Location) -> bytes | None:
    """Read the file; None when there is no such file."""
    if isinstance(path, ObjectPath):
        return _folder(path.parent).read(path.name)
    with naming_file_errors(path):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None


def make_folder(path: Location) -> None:
    """Make it where it is missing; a bucket has no folders, only names with ``/``."""
    if not isinstance(path, ObjectPath):
        with naming_file_errors(path):
            path.mkdir(parents=True, exist_ok=True)


def list_names(folder: Location) -> list[str]:
    """Return the names of files and folders in it; none where there is no such folder."""
    if isinstance(folder, ObjectPath):
        return sorted({name.partition("/")[0] for name in _folder(folder).files()})
    with naming_file_errors(folder):
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def list_numbers(folder: Location) -> tuple[int, ...]:
    """Return the numbers among the names, ascending: a log's batches. Checksums and temporary files are not part of
    it."""
    return parse_numbers(list_names(folder))


def parse_numbers(names: Iterable[str], prefix: str = "") -> tuple[int, ...]:
    """Of those that are a number after ``prefix``, ascending."""
    rest = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    return tuple(sorted(int(name) for name in rest if name.isascii() and name.isdigit()))


def discard(path: Location) -> None:
    """Remove a file; one that is not there is no error."""
    if isinstance(path, ObjectPath):
        _folder(path.parent).discard(path.name)
        return
    with naming_file_errors(path):
        path.unlink(missing_ok=True)


def remove_folder(folder: Location) -> None:
    """Remove it with all that is in it; one that is not there is no error."""
    if isinstance(folder, ObjectPath):
        _folder(folder).remove()
        return
    with naming_file_errors(folder):
        if folder.is_dir():
            shutil.rmtree(folder)


def remove_entry(path: Location) -> None:
    """Remove a file, or a folder with all that is in it."""
    if isinstance(path, ObjectPath) or path.is_dir():
        remove_folder(path)
    if isinstance(path, ObjectPath) or path.exists():
        discard(path)


def _folder(place: ObjectPath) -> S3ObjectStore:
    from streamcore.storage.s3 import S3ObjectStore

    return S3ObjectStore.parse(place.url)


def read_json(path: Location) -> dict[str, Entry] | None:
    """Return the entries, or None when there is no such file; ``CorruptState`` when ``write_json`` did not write it."""
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


def read_int(path: Location, entries: Mapping[str, Entry], name: str) -> int:
    """Return a whole number among the entries; ``CorruptState`` when it is missing."""
    value = entries.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise CorruptState(f"{path}: {name} is {value!r}, not a whole number; restore the file from a copy")
    return value


@contextmanager
def naming_file_errors(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` into an error of ours with the next step."""
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
