"""The blobs of a shard in files of the checkpoint: what one cut writes is one file, and an index lists what is alive.

::

    <folder>/<batch>        the blobs that the batch wrote, one behind the other; none if it wrote none
    <folder>/<batch>.index  after the batch: where each blob is, and the head

For a stage whose state is not in Spark's store. A batch begins with the index of the batch before and writes its own
last, so a batch that is repeated after a crash begins with the same state, writes the same bytes to the same names, and
nothing that only a dead attempt wrote is ever read. Which batch is committed is decided elsewhere. The indexes of the
last ``retained`` batches stay, with all files that they list. Promise: a file that is missing or has other bytes raises
``CorruptState`` with its name.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamcore.errors import CorruptState
from streamcore.state.state_log import HEAD
from streamcore.storage import ObjectStore, checked_json

#: Where a blob is: the batch that wrote it, its first byte in the file, its bytes, and their CRC-32.
_Place = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Index:
    """``unused``: by file that no blob is in any more, the batch since which there is none."""

    head: bytes | None
    places: Mapping[str, _Place]
    unused: Mapping[int, int]

    def to_bytes(self) -> bytes:
        return checked_json.encode(
            {
                "head": None if self.head is None else self.head.decode(),
                "blobs": {name: " ".join(map(str, place)) for name, place in self.places.items()},
                "unused": {str(file): since for file, since in self.unused.items()},
            }
        )

    @classmethod
    def parse(cls, content: bytes, where: str) -> _Index:
        document: dict[str, Any] = checked_json.parse(content, where, "restore the app from a savepoint")
        head = document["head"]
        places = {name: _parse_place(text) for name, text in document["blobs"].items()}
        unused = {int(file): since for file, since in document["unused"].items()}
        return cls(None if head is None else head.encode(), places, unused)


class CutFiles:
    """The blobs of one shard in one batch: those after batch ``after`` (-1: there are none), and what is written until
    ``commit``."""

    def __init__(self, folder: ObjectStore, after: int) -> None:
        self._folder = folder
        self._batch = after + 1
        self._before = _Index(None, {}, {}) if after < 0 else self._read_index(f"{after}.index")
        self._written: dict[str, bytes | None] = {}
        #: The file that was read last: its blobs are often read one after the other.
        self._open: tuple[int, bytes] = (-1, b"")

    def get(self, name: str) -> bytes | None:
        if name in self._written:
            return self._written[name]
        if name == HEAD:
            return self._before.head
        place = self._before.places.get(name)
        return None if place is None else self._read_blob(name, *place)

    def put(self, name: str, blob: bytes) -> None:
        self._written[name] = blob

    def remove(self, name: str) -> None:
        self._written[name] = None

    def commit(self, retained: int) -> None:
        """Write what the batch has put and removed. Discard what only batches before the last ``retained`` have."""
        head = self.get(HEAD)
        places, content, end = dict(self._before.places), list[bytes](), 0
        for name, blob in self._written.items():
            places.pop(name, None)
            if blob is not None and name != HEAD:
                places[name] = (self._batch, end, len(blob), zlib.crc32(blob))
                content.append(blob)
                end += len(blob)
        if content:
            self._folder.write(str(self._batch), b"".join(content))
        unused = self._discard(retained, {place[0] for place in places.values()})
        self._folder.write(f"{self._batch}.index", _Index(head, places, unused).to_bytes())

    def _discard(self, retained: int, used: set[int]) -> dict[int, int]:
        """Discard the files that no retained index lists; return the others that are not used any more."""
        no_more = {place[0] for place in self._before.places.values()} - used
        unused = {**self._before.unused, **dict.fromkeys(sorted(no_more), self._batch)}
        gone = [file for file, since in unused.items() if since <= self._batch - retained]
        for file in gone:
            self._folder.discard(str(file))
            del unused[file]
        self._folder.discard(f"{self._batch - retained}.index")
        return unused

    def _read_index(self, name: str) -> _Index:
        return _Index.parse(self._read(name), f"{self._folder.url}/{name}")

    def _read_blob(self, name: str, batch: int, start: int, size: int, checksum: int) -> bytes:
        if self._open[0] != batch:
            self._open = (batch, self._read(str(batch)))
        blob = self._open[1][start : start + size]
        if len(blob) != size or zlib.crc32(blob) != checksum:
            raise CorruptState(
                f"{self._folder.url}/{batch}: damaged: {name} has other bytes; restore the app from a savepoint"
            )
        return blob

    def _read(self, name: str) -> bytes:
        content = self._folder.read(name)
        if content is None:
            raise CorruptState(f"{self._folder.url}/{name}: is missing; restore the app from a savepoint")
        return content


def _parse_place(text: str) -> _Place:
    batch, start, size, checksum = map(int, text.split())
    return batch, start, size, checksum
