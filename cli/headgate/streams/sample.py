"""Reads a sample of records from files, folders or a topic.

A file has one JSON object per line, or is one JSON value: an object, an array of objects, or an object whose only
array of objects has the records, as the files that AWS CloudTrail delivers. A name that ends in .jsonl or .ndjson means
lines. Files may be compressed with gzip.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from headgate.errors import InputError
from streamcore.decode.scalar import StreamRecord

if TYPE_CHECKING:
    from streamcore.kafka.settings import KafkaSettings

#: The largest file that is read, unpacked.
MAX_FILE_BYTES: Final = 1 << 30
_SUFFIXES: Final = (".json", ".jsonl", ".ndjson", ".log")
#: Names of files with one object per line, even if there is only one line.
_LINES: Final = (".jsonl", ".ndjson")
_AVRO: Final = ".avro"
_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """A record, and where it is from: file and line, file and number, or topic, partition and offset.

    Of a record from a file there is its value alone.
    """

    place: str
    record: StreamRecord

    @property
    def value(self) -> bytes:
        """The value; empty if there is none."""
        return self.record.value or b""


def stream_name(text: str) -> str:
    """Return a name for the stream of a file or topic."""
    stem = text.split(".", maxsplit=1)[0].lower()
    name = "".join(c if c.isascii() and c.isalnum() else "_" for c in stem).strip("_")
    return name if name and not name[0].isdigit() else f"s_{name}"


def read_files(paths: Sequence[Path], limit: int) -> list[SampleRecord]:
    """Return the first ``limit`` records of files and folders; ``InputError`` for what cannot be read."""
    records: list[SampleRecord] = []
    for path in _files(paths):
        for record in _records(path, read_content(path)):
            if len(records) == limit:
                return records
            records.append(record)
    return records


def find_avro(paths: Sequence[Path]) -> list[Path]:
    """Return the container files of a sample, in it or in its folders, by their names; none if it is of other files.

    ``InputError`` if only some of them are container files.
    """
    files = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    files = [file for file in files if not file.is_dir()]
    found = [file for file in files if file.name.endswith(_AVRO)]
    if found and len(found) < len(files):
        raise InputError("a sample has Avro container files or others, not both")
    return found


def read_topic(
    kafka: KafkaSettings, topic: str, limit: int, on_progress: Callable[[int], None] = lambda _: None
) -> list[SampleRecord]:
    """Return the latest ``limit`` records that a topic has at the call."""
    from streamcore.kafka.readers import scan_topic

    found = []
    for record in scan_topic(kafka, topic, last_offsets=limit):
        found.append(record)
        on_progress(len(found))
    latest = sorted(found, key=lambda one: (one.timestamp_ms, one.partition, one.offset))[-limit:]
    return [
        SampleRecord(
            f"{topic}[{one.partition}] {one.offset}",
            StreamRecord(one.value, one.key, dict(one.headers), one.timestamp_ms, topic, one.partition, one.offset),
        )
        for one in latest
    ]


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: there is no such file or folder")
        if not path.is_dir():
            yield path
            continue
        inside = sorted(p for p in path.rglob("*") if p.is_file() and p.name.removesuffix(".gz").endswith(_SUFFIXES))
        if not inside:
            raise InputError(f"{path}: no file ends in {', '.join(_SUFFIXES)} (or these with .gz)")
        yield from inside


def read_content(path: Path) -> bytes:
    """Return the content of a file, unpacked; ``InputError`` if it cannot be read, or is too large."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
        with gzip.open(path) if packed else path.open("rb") as content:
            data = content.read(MAX_FILE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"{path}: more than {MAX_FILE_BYTES >> 20} MB; take a part of it, such as the first lines")
    return data


def _records(path: Path, data: bytes) -> Iterator[SampleRecord]:
    first, _, rest = data.strip().partition(b"\n")
    is_named = path.name.removesuffix(".gz").endswith(_LINES)
    is_lines = is_named or (rest and _is_json(first) and not first.startswith(b"["))
    whole = None if is_lines else _parse(data)
    if whole is None:
        for number, line in enumerate(data.split(b"\n"), 1):
            if line.strip():
                yield SampleRecord(f"{path}:{number}", StreamRecord(line.rstrip(b"\r")))
    else:
        for number, value in enumerate(_inside(whole), 1):
            yield SampleRecord(f"{path} #{number}", StreamRecord(orjson.dumps(value)))


def _inside(value: object) -> Sequence[object]:
    """Return the records in the value of a file."""
    if isinstance(value, dict):
        arrays = [v for v in value.values() if isinstance(v, list) and v and all(isinstance(item, dict) for item in v)]
        return arrays[0] if len(arrays) == 1 and len(value) == 1 else [value]
    return value if isinstance(value, list) else [value]


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def _parse(text: bytes) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None
