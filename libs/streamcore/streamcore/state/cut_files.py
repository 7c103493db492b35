"""The blobs of a shard in files of the checkpoint: what one cut writes is one file, and an index lists what is alive.

::

    <folder>/<batch>-<digest>  the blobs that an attempt of the batch wrote, one behind the other; none if it wrote none
    <folder>/<batch>.index     after the batch: where each blob is, and the head

For a stage whose state is not in Spark's store. A batch begins with the index of the batch before and writes its own
last. Which batch is committed is decided elsewhere.

Attempts of one batch have equal state, and may have other bytes: which keys are cold depends on the memory of their
process. A file of blobs is named by its content and so never gets another one. An index alone is replaced, and that of
each attempt is right. So an attempt that others believe to be dead may write at any time. What attempts leave that no
index lists is removed by ``sweep_stages``.

The indexes of the last ``retained`` batches stay, with all files that they list. Promise: a file that is missing or has
other bytes raises ``CorruptState`` with its name.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from streamcore.errors import CorruptState
from streamcore.state.state_log import HEAD
from streamcore.storage import ObjectStore

#: A batch begins with the index of the batch before, so two indexes stay at least.
MIN_RETAINED: Final = 2
_INDEX: Final = ".index"
_REMEDY: Final = "restore the app from a savepoint"
#: Most indexes that a process keeps parsed: one of each shard that it runs.
_MAX_PARSED: Final = 256

#: Where a blob is: its file, its first byte there, its bytes, and their CRC-32.
_Place = tuple[str, int, int, int]


@dataclass(frozen=True, slots=True)
class _Index:
    """``unused``: by file that no blob is in any more, the batch since which there is none."""

    head: bytes | None
    places: Mapping[str, _Place]
    unused: Mapping[str, int]

    @property
    def files(self) -> set[str]:
        """The files that this index, or one of the retained batches before it, lists."""
        return {place[0] for place in self.places.values()} | {*self.unused}

    def to_bytes(self, batch: int, shard: str) -> bytes:
        """Return a line with the digest of the rest, and the rest, a JSON document."""
        document = orjson.dumps(
            {
                "batch": batch,
                "shard": shard,
                "head": None if self.head is None else self.head.decode(),
                "blobs": self.places,
                "unused": self.unused,
            }
        )
        return _digest([document]).encode() + b"\n" + document

    @classmethod
    def parse(cls, content: bytes, batch: int, shard: str, where: str) -> _Index:
        """Return the index that ``to_bytes`` stored; ``CorruptState`` if it is another one, or damaged."""
        digest, _, text = content.partition(b"\n")
        if digest != _digest([text]).encode():
            raise CorruptState(f"{where}: damaged: its content does not have the digest in it; {_REMEDY}")
        document = orjson.loads(text)
        if (document["batch"], document["shard"]) != (batch, shard):
            raise CorruptState(
                f"{where}: is of batch {document['batch']} of shard {document['shard']} (stage/shard); {_REMEDY}"
            )
        head = document["head"]
        places = {name: tuple(place) for name, place in document["blobs"].items()}
        return cls(None if head is None else head.encode(), places, document["unused"])


#: The last index of each folder that this process has read or written: content and what it means. To compare the
#: content costs less than to parse it.
_parsed: dict[str, tuple[bytes, _Index]] = {}


class CutFiles:
    """The blobs of one shard in one batch: those after batch ``after`` (-1: there are none), and what is written until
    ``commit``. ``folder``: of the shard; the last two parts of its address are stage and shard."""

    def __init__(self, folder: ObjectStore, after: int) -> None:
        self._folder = folder
        self._batch = after + 1
        self._before = _Index(None, {}, {}) if after < 0 else _read_index(folder, after)
        self._written: dict[str, bytes | None] = {}

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
        """Write what the batch has put and removed; then discard what only batches before the last ``retained`` have
        (at least ``MIN_RETAINED``). Call it once."""
        retained = max(MIN_RETAINED, retained)
        blobs = {name: blob for name, blob in self._written.items() if blob is not None and name != HEAD}
        file = f"{self._batch}-{_digest(blobs.values())}"
        places, end = {n: place for n, place in self._before.places.items() if n not in self._written}, 0
        for name, blob in blobs.items():
            places[name] = (file, end, len(blob), zlib.crc32(blob))
            end += len(blob)
        if blobs:
            self._folder.write_parts(file, [*blobs.values()])
        unused = self._find_unused({place[0] for place in places.values()})
        gone = [file for file, since in unused.items() if since <= self._batch - retained]
        kept = {file: since for file, since in unused.items() if file not in gone}
        index = _Index(self.get(HEAD), places, kept)
        content = index.to_bytes(self._batch, _shard(self._folder))
        self._folder.write(f"{self._batch}{_INDEX}", content)
        _keep_parsed(self._folder, content, index)
        # From here on the blobs are read from the files: who holds this object holds no blob.
        self._before, self._written = index, {}
        # Last: until the index is there, another attempt of this batch begins with the index before.
        for name in gone:
            self._folder.discard(name)
        if self._batch >= retained:
            self._folder.discard(f"{self._batch - retained}{_INDEX}")

    def _find_unused(self, used: set[str]) -> dict[str, int]:
        """Return the files that are in no use any more, each with the batch since which that is so."""
        no_more = {place[0] for place in self._before.places.values()} - used
        return {**self._before.unused, **dict.fromkeys(sorted(no_more), self._batch)}

    def _read_blob(self, name: str, file: str, start: int, size: int, checksum: int) -> bytes:
        blob = self._folder.read_range(file, start, size)
        if blob is None:
            raise _missing(self._folder, file)
        if len(blob) != size or zlib.crc32(blob) != checksum:
            raise CorruptState(f"{self._folder.url}/{file}: damaged: {name} has other bytes; {_REMEDY}")
        return blob


def sweep_stages(stages: ObjectStore, committed: int, retained: int) -> None:
    """Remove what dead attempts have left in the folder of all stages (``<stage>/<shard>/``) and no index lists.

    ``committed``: the last batch that is committed. ``retained``: as in ``CutFiles.commit``. The caller owns the
    checkpoint, and none of its own tasks writes. A task of a dead process may still write: files of the last committed
    batch and of later ones stay, for such a task may be about to write the index that lists them. Raises
    ``CorruptState`` if the index of a shard is missing or damaged.
    """
    stages.remove_unfinished()
    names: dict[str, list[str]] = defaultdict(list)
    for path in stages.files():
        folder, _, name = path.rpartition("/")
        names[folder].append(name)
    for shard, every in names.items():
        _sweep_shard(stages.under(shard), every, committed, max(MIN_RETAINED, retained))


def _sweep_shard(folder: ObjectStore, names: Iterable[str], committed: int, retained: int) -> None:
    indexes = {int(n.removesuffix(_INDEX)) for n in names if n.endswith(_INDEX) and n.removesuffix(_INDEX).isdigit()}
    for batch in sorted(batch for batch in indexes if batch <= committed - retained):
        folder.discard(f"{batch}{_INDEX}")
        indexes.discard(batch)
    batches = {name: int(name.partition("-")[0]) for name in names if name.partition("-")[0].isdigit()}
    listed = _read_index(folder, committed).files
    doubtful = [name for name, batch in batches.items() if batch < committed and name not in listed]
    if doubtful:  # the attempt of a dead process may have replaced an index of an earlier batch
        try:
            listed = listed.union(*(_read_index(folder, batch).files for batch in sorted(indexes - {committed})))
        except CorruptState:
            return  # nobody reads it, but what it lists is not known
    for name in doubtful:
        if name not in listed:
            folder.discard(name)


def _read_index(folder: ObjectStore, batch: int) -> _Index:
    name = f"{batch}{_INDEX}"
    content = folder.read(name)
    if content is None:
        raise _missing(folder, name)
    known = _parsed.get(folder.url)
    if known is not None and known[0] == content:
        return known[1]
    index = _Index.parse(content, batch, _shard(folder), f"{folder.url}/{name}")
    _keep_parsed(folder, content, index)
    return index


def _keep_parsed(folder: ObjectStore, content: bytes, index: _Index) -> None:
    if len(_parsed) >= _MAX_PARSED and folder.url not in _parsed:
        _parsed.clear()
    _parsed[folder.url] = (content, index)


def _missing(folder: ObjectStore, name: str) -> CorruptState:
    return CorruptState(f"{folder.url}/{name}: is missing; {_REMEDY}")


def _shard(folder: ObjectStore) -> str:
    """Return stage and shard, as an index names them: a checkpoint may be moved, a shard may not."""
    return "/".join(folder.url.split("/")[-2:])


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
