"""The durable form of a shard's tables: a log of changes, over buckets of full rows.

Writing a table whole in every cut costs what the state weighs; writing key by key costs a call a key. So a cut writes
one blob with the rows it changed, whatever their number, and one blob with all rows of one bucket, in turn:

====================  =====================================================================================
blob                  content
====================  =====================================================================================
``head``              sequence number, chain digests, the sequence number of each bucket, the shard's own cells
``log/<n>``           the rows that cut n changed, of all tables
``bucket/<b>``        every live row of bucket b, of all tables, at the cut that wrote it
====================  =====================================================================================

After ``buckets`` writing cuts every bucket has been written again, so a log blob that old is superseded and removed:
the log never holds more than ``buckets`` blobs, and no cut has to rewrite everything (the idea of an LSM tree, O'Neil
et al. 1996, with levelling spread evenly over the cuts). A cut that changes nothing writes nothing.

Reading happens only when this process does not already hold the shard's tables as the head says. The chain digest
covers every byte written since the shard began, so tables of an attempt that was not committed are never mistaken for
the committed ones. The head lists the digests of the last cuts: a process that holds the tables of one of them (shards
wander between worker processes) reads only the log blobs since.
"""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from streamcore.errors import CorruptState
from streamcore.hashing import bucket_of
from streamcore.limits import StateSettings
from streamcore.state.blobs import BlobStore
from streamcore.state.table import HASH, StateTable

HEAD = "head"
FORMAT = 1


@dataclass(slots=True)
class Head:
    """The shard's position. ``cells`` are small values of the shard itself (watermark, clock), JSON-able."""

    sequence: int = 0
    chains: list[str] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    cells: Mapping[str, object] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """As stored."""
        document = {
            "format": FORMAT,
            "sequence": self.sequence,
            "chains": self.chains,
            "written": self.written,
            "cells": self.cells,
        }
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_json(cls, blob: bytes) -> Head:
        """As read; ``CorruptState`` if it is not ours."""
        document = orjson.loads(blob)
        if document.get("format") != FORMAT:
            raise CorruptState(f"shard state has format {document.get('format')!r}; this version reads {FORMAT}")
        return cls(document["sequence"], document["chains"], document["written"], document["cells"])

    @property
    def chain(self) -> str:
        """Digest of everything written; empty before the first cut that wrote."""
        return self.chains[-1] if self.chains else ""


class StateLog:
    """Reads and writes the tables of one shard. Keep it for as long as its tables are kept."""

    def __init__(self, settings: StateSettings) -> None:
        self.settings = settings
        self.head = Head(written=[0] * settings.buckets)

    def holds(self, stored: bytes | None) -> bool:
        """Whether the tables in memory are those of this stored head."""
        if stored is None:
            return self.head.sequence == 0
        return self.head.to_json() == stored

    def catch_up(self, stored: bytes, blobs: BlobStore, table: Callable[[str], StateTable]) -> bool:
        """Bring tables that are a few cuts behind up to the stored head. False, with nothing done, if they are not."""
        head = Head.from_json(stored)
        behind = head.sequence - self.head.sequence
        if not (0 < behind < len(head.chains)) or head.chains[-1 - behind] != self.head.chain:
            return False
        for sequence in range(self.head.sequence + 1, head.sequence + 1):
            self._take(self._read(blobs, f"log/{sequence}"), table)
        self.head = head
        return True

    def load(self, stored: bytes | None, blobs: BlobStore, table: Callable[[str], StateTable]) -> None:
        """Fill empty tables from the blobs, oldest first; ``table`` makes or finds one by its name.

        ``CorruptState`` if a blob is missing."""
        if stored is None:
            return
        head = Head.from_json(stored)
        buckets = len(head.written)
        for bucket, sequence in enumerate(head.written):
            if sequence:
                self._take(self._read(blobs, f"bucket/{bucket}"), table)
        written = np.asarray(head.written, dtype=np.int64)
        for sequence in range(max(1, head.sequence - buckets + 1), head.sequence + 1):
            frames = self._read(blobs, f"log/{sequence}")
            self._take({n: _newer_than(f, written, sequence) for n, f in frames.items()}, table)
        self.head = head

    def commit(self, blobs: BlobStore, tables: Mapping[str, StateTable], cells: Mapping[str, object]) -> int:
        """Write what the tables changed and the shard's cells. Returns the bytes written; 0 when nothing changed."""
        changed = {name: frame for name, table in tables.items() if (frame := table.changes()).height}
        if not changed and cells == self.head.cells:
            return 0
        sequence, buckets = self.head.sequence + 1, len(self.head.written)
        bucket = sequence % buckets
        full = {name: frame for name, t in tables.items() if (frame := t.rows(bucket, buckets)).height}
        log, rows = _pack(changed), _pack(full)
        blobs.put(f"log/{sequence}", log)
        blobs.put(f"bucket/{bucket}", rows)
        blobs.remove(f"log/{sequence - buckets}")
        written = [*self.head.written]
        written[bucket] = sequence
        chains = [*self.head.chains, _digest(self.head.chain, log, rows)][-buckets:]
        self.head = Head(sequence, chains, written, dict(cells))
        head = self.head.to_json()
        blobs.put(HEAD, head)
        return len(log) + len(rows) + len(head)

    @staticmethod
    def _read(blobs: BlobStore, name: str) -> dict[str, pl.DataFrame]:
        blob = blobs.get(name)
        if blob is None:
            raise CorruptState(f"shard state: blob {name} is missing; restore from a savepoint")
        return _unpack(blob)

    @staticmethod
    def _take(frames: Mapping[str, pl.DataFrame], table: Callable[[str], StateTable]) -> None:
        for name, frame in frames.items():
            if frame.height:
                table(name).load(frame)


def _newer_than(rows: pl.DataFrame, written: npt.NDArray[np.int64], sequence: int) -> pl.DataFrame:
    """Rows whose bucket was last written before this log blob; the others are in their bucket already, or gone."""
    return rows.filter(pl.Series(written[bucket_of(rows[HASH].to_numpy(), len(written))] < sequence))


def _digest(chain: str, *blobs: bytes) -> str:
    digest = hashlib.blake2b(chain.encode(), digest_size=16)
    for blob in blobs:
        digest.update(blob)
    return digest.hexdigest()


def _pack(frames: Mapping[str, pl.DataFrame]) -> bytes:
    """Frames by name, in the order of their names: count, then name and Arrow IPC stream, each with its length.

    Whole numbers are stored as narrow as those of the blob allow: counts and sums are mostly small.
    """
    parts = [struct.pack("<I", len(frames))]
    for name in sorted(frames):
        buffer = io.BytesIO()
        narrow = pl.DataFrame([c.shrink_dtype() if c.dtype == pl.Int64 else c for c in frames[name].get_columns()])
        narrow.write_ipc_stream(buffer, compat_level=pl.CompatLevel.oldest())
        for part in (name.encode(), buffer.getvalue()):
            parts += [struct.pack("<Q", len(part)), part]
    return b"".join(parts)


def _unpack(blob: bytes) -> dict[str, pl.DataFrame]:
    (count,) = struct.unpack_from("<I", blob)
    parts = list(_parts(memoryview(blob)[4:], 2 * count))
    pairs: Iterable[tuple[memoryview, memoryview]] = zip(parts[::2], parts[1::2], strict=True)
    wide = pl.col(pl.Int8, pl.Int16, pl.Int32).cast(pl.Int64)
    return {bytes(name).decode(): pl.read_ipc_stream(io.BytesIO(body)).with_columns(wide) for name, body in pairs}


def _parts(view: memoryview, count: int) -> Iterable[memoryview]:
    for _ in range(count):
        (size,) = struct.unpack_from("<Q", view)
        yield view[8 : 8 + size]
        view = view[8 + size :]
