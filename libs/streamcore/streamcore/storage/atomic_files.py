"""Writes small files atomically, also through a power failure or on a full disk; lists and removes folders of them.

On a disk a file is replaced by a rename. In a bucket a PUT is atomic (``streamcore.storage.s3``).
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from streamcore.errors import ConfigError, CorruptState, Retryable, StreamError
from streamcore.storage import checked_json
from streamcore.storage.location import Location, ObjectPath

if TYPE_CHECKING:
    from streamcore.storage.s3 import S3ObjectStore

#: Errors of a file system that has no links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)
#: A value of an object that ``read_json`` accepts.
Entry = str | int


def write_json(path: Location, entries: Mapping[str, object]) -> None:
    """Replace ``path`` atomically by a JSON object with its digest (``checked_json``): a reader, also after a crash,
    finds the old or the new content."""
    write_whole(path, checked_json.encode(entries))


def write_text(path: Location, text: str) -> None:
    """Replace ``path`` atomically, as ``write_json`` does, by a text."""
    write_whole(path, text.encode())


def write_whole(path: Location, content: bytes) -> None:
    """Replace ``path`` atomically, as ``write_json`` does, by bytes."""
    if isinstance(path, ObjectPath):
        _folder(path.parent).write(path.name, content)
        return
    with writing(path) as file:
        file.write(content)


def create_json(path: Location, entries: Mapping[str, object]) -> bool:
    """Create the file atomically, unless it exists. Return whether it has exactly these entries, written now or
    before."""
    content = checked_json.encode(entries)
    if isinstance(path, ObjectPath):
        created = _folder(path.parent).exchange(path.name, content, None) is not None
    else:
        created = _create(path, content)
    return created or read_whole(path) == content


def _create(path: Path, content: bytes) -> bool:
    """Create the file with this content; return False if it exists."""
    with _temporary(path) as temporary:
        with _open_synced(temporary) as file:
            file.write(content)
        return _link(temporary, path)


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file beside ``path``, unique over processes and machines.

    The block renames or links the file to ``path``. Then the folder is synced, and the temporary file removed if it
    still exists.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    with naming_file_errors(path):
        try:
            yield temporary
            _sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def _open_synced(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file. It is synced to disk when the block ends without an error."""
    with path.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _link(temporary: Path, path: Path) -> bool:
    """Link the temporary file to ``path``; return False if ``path`` exists."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A file system without links: check and rename are two steps here, so another process may come between.
        if path.exists():
            return False
        temporary.replace(path)
    return True


@contextmanager
def writing(path: Location) -> Iterator[IO[bytes]]:
    """Yield a file to write to. It replaces ``path`` atomically when the block ends without an error."""
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
    """Return the content of the file; None if it does not exist."""
    if isinstance(path, ObjectPath):
        return _folder(path.parent).read(path.name)
    with naming_file_errors(path):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None


def make_folder(path: Location) -> None:
    """Create the folder and its parents, unless they exist. Do nothing in a bucket, which has no folders."""
    if not isinstance(path, ObjectPath):
        with naming_file_errors(path):
            path.mkdir(parents=True, exist_ok=True)


def list_names(folder: Location) -> list[str]:
    """Return the names of the files and folders in ``folder``, sorted; none if it does not exist."""
    if isinstance(folder, ObjectPath):
        return sorted({name.partition("/")[0] for name in _folder(folder).files()})
    with naming_file_errors(folder):
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def list_numbers(folder: Location) -> tuple[int, ...]:
    """Return the names in the folder that are numbers, ascending: the batches of Spark's logs. Other files, such as
    checksums, are ignored."""
    return parse_numbers(list_names(folder))


def parse_numbers(names: Iterable[str], prefix: str = "") -> tuple[int, ...]:
    """Return the numbers of the names that are ``prefix`` and a number, ascending."""
    suffixes = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    return tuple(sorted(int(name) for name in suffixes if name.isascii() and name.isdigit()))


def discard(path: Location) -> None:
    """Remove a file, if it exists."""
    if isinstance(path, ObjectPath):
        _folder(path.parent).discard(path.name)
        return
    with naming_file_errors(path):
        path.unlink(missing_ok=True)


def remove_folder(folder: Location) -> None:
    """Remove a folder with its contents, if it exists."""
    if isinstance(folder, ObjectPath):
        _folder(folder).remove()
        return
    with naming_file_errors(folder):
        if folder.is_dir():
            shutil.rmtree(folder)


def remove_temporary(folder: Path) -> None:
    """Remove the temporary files that dead processes left in a folder and its subfolders."""
    with naming_file_errors(folder):
        for path in folder.rglob(".*.tmp"):
            path.unlink(missing_ok=True)


def remove_entry(path: Location) -> None:
    """Remove a file, or a folder with its contents, if it exists."""
    if isinstance(path, ObjectPath) or path.is_dir():
        remove_folder(path)
    if isinstance(path, ObjectPath) or path.exists():
        discard(path)


def _folder(path: ObjectPath) -> S3ObjectStore:
    from streamcore.storage.s3 import S3ObjectStore

    return S3ObjectStore.parse(path.url)


def read_document(path: Location) -> dict[str, Any] | None:
    """Return the JSON object that ``write_json`` or ``create_json`` wrote; None if the file does not exist.

    Raises ``CorruptState``, naming the file, if the content is not what was written.
    """
    content = read_whole(path)
    return None if content is None else checked_json.parse(content, path)


def read_json(path: Location) -> dict[str, Entry] | None:
    """Return a JSON object of texts and integers, as ``read_document`` does. Raise ``CorruptState`` for any other
    value."""
    entries = read_document(path)
    if entries is not None and not all(isinstance(value, str | int) for value in entries.values()):
        raise CorruptState(f"{path}: its values are not texts and whole numbers; restore the app from a savepoint")
    return entries


def read_int(path: Location, entries: Mapping[str, Entry], name: str) -> int:
    """Return the integer entry ``name``. Raise ``CorruptState``, naming ``path``, if it is missing or no integer."""
    value = entries.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise CorruptState(f"{path}: {name} is {value!r}, not a whole number; restore the file from a copy")
    return value


@contextmanager
def naming_file_errors(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` in the block into the error that ``file_error`` returns."""
    try:
        yield
    except OSError as error:
        raise file_error(path, error) from error


def file_error(path: Path, error: OSError) -> StreamError:
    """Return ``ConfigError`` for missing rights or folders, else ``Retryable``, also for a full disk."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Retryable(
            f"{path}: disk full ({_free_bytes(path)} bytes free); make room there; start the app again if it has ended"
        )
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
    """Sync the folder, so that a rename in it survives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
