"""Lists the files of a stream, with the number of rows of each."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamcore.errors import ConfigError
from streamcore.storage import open_object_store

_PARQUET = ".parquet"
_LINES = (".jsonl", ".ndjson", ".json", ".csv", ".log", ".txt")


@dataclass(frozen=True, slots=True)
class FileInput:
    """The files of a stream. ``place``: a folder, a file, or ``s3://bucket/prefix``. ``header``: whether the first line
    of each text file is no record.

    A row of a Parquet file becomes one JSON object; a line of ``.jsonl``, ``.json``, ``.csv``, ``.log`` and ``.txt`` is
    a record in the format of the stream. Blank lines are no records. Files in subfolders count, others do not.
    """

    place: str
    header: bool = False


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file, and the number of its rows."""

    path: str
    rows: int


@dataclass(frozen=True, slots=True)
class FileRange:
    """Rows of one file. ``offset``: that of the first of them. ``first``: its number in the file."""

    path: str
    first: int
    rows: int
    offset: int


def list_input(files: FileInput) -> tuple[InputFile, ...]:
    """Return the files in the order of their names. ``ConfigError`` if there are none, or a file cannot be read."""
    found = [InputFile(path, count_rows(path, header=files.header)) for path in _paths(files.place)]
    if not found:
        raise ConfigError(f"files {files.place}: there are none that end in {', '.join((_PARQUET, *_LINES))}")
    return tuple(found)


def _paths(place: str) -> Iterator[str]:
    if "://" not in place and Path(place).is_file():
        yield str(Path(place).absolute())
        return
    store = open_object_store(place)
    for name in store.files():
        if name.endswith((_PARQUET, *_LINES)) and not name.rpartition("/")[2].startswith((".", "_")):
            yield f"{store.url.rstrip('/')}/{name}"


def count_rows(path: str, *, header: bool) -> int:
    """Return the number of rows of a file."""
    if is_parquet(path):
        import pyarrow.parquet as pq

        with open_file(path) as file:
            try:
                return int(pq.read_metadata(file).num_rows)
            except (OSError, ValueError) as error:
                raise ConfigError(f"{path}: cannot be read as Parquet: {error}") from error
    with open_file(path) as lines:
        count = sum(1 for line in lines if line.strip())
    return max(0, count - header)


def is_parquet(path: str) -> bool:
    """Return whether the rows of a file are those of a table."""
    return path.endswith(_PARQUET)


def open_file(path: str) -> io.BufferedIOBase:
    """Open a file for reading. One of a bucket is read whole."""
    local = Path(path.removeprefix("file://"))
    if path.startswith("s3://"):
        folder, _, name = path.rpartition("/")
        content = open_object_store(folder).read(name)
        if content is None:
            raise ConfigError(f"{path}: the file was there and is gone; a bounded run needs it to its end")
        return io.BytesIO(content)
    try:
        return local.open("rb")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error


def ranges(files: Sequence[InputFile], start: int, end: int) -> list[FileRange]:
    """Return the rows with ``start <= offset < end``, a range a file."""
    found, offset = [], 0
    for file in files:
        first, last = max(start, offset), min(end, offset + file.rows)
        if first < last:
            found.append(FileRange(file.path, first - offset, last - first, first))
        offset += file.rows
    return found
