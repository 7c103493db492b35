"""The durable form of a shard's tables: a log of changes, over buckets of full rows.

Writing a table whole in every cut costs in proportion to the state; writing key by key costs a call a key. So a cut
writes one blob with the rows it changed, whatever their number, and one blob with all rows of one bucket, in turn:

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

Reading happens only when this process does not already hold the shard's tables of the stored head. The chain digest
covers every byte written since the shard began, so tables of an attempt that was not committed are never mistaken for
the committed ones. The head lists the digests of the last cuts: a process that holds the tables of one of them (shards
wander between worker processes) reads only the log blobs since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from streamcore.errors import CorruptState
from streamcore.hashing import bucket_for
from streamcore.limits import StateSettings
from streamcore.state.blob_store import BlobStore
from streamcore.state.frame_codec import pack, unpack
from streamcore.state.table import HASH, StateTable

HEAD = "head"
FORMAT = 1


@dataclass(slots=True)
class LogHead:
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
    def from_json(cls, blob: bytes) -> LogHead:
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
        self.head = LogHead(written=[0] * settings.buckets)

    def holds(self, stored: bytes | None) -> bool:
        """Whether the tables in memory are those of this stored head."""
        if stored is None:
            return self.head.sequence == 0
        return self.head.to_json() == stored

    def catch_up(self, stored: bytes, blobs: BlobStore, table: Callable[[str], StateTable]) -> bool:
        """Bring tables that are a few cuts behind up to the stored head. False, with nothing done, if they are not."""
        head = LogHead.from_json(stored)
        behind = head.sequence - self.head.sequence
        if not (0 < behind < len(head.chains)) or head.chains[-1 - behind] != self.head.chain:
            return False
        for sequence in range(self.head.sequence + 1, head.sequence + 1):
            self._take(_read(blobs, f"log/{sequence}"), table)
        self.head = head
        return True

    def load(self, stored: bytes | None, blobs: BlobStore, table: Callable[[str], StateTable]) -> None:
        """Fill empty tables from the blobs, oldest first; ``table`` makes or finds one by its name.

        ``CorruptState`` if a blob is missing."""
        if stored is None:
            return
        for frames in _read_rows(stored, blobs):
            self._take(frames, table)
        self.head = LogHead.from_json(stored)

    def commit(self, blobs: BlobStore, tables: Mapping[str, StateTable], cells: Mapping[str, object]) -> int:
        """Write the changes of the tables and the shard's cells. Returns the bytes written; 0 when nothing changed."""
        changed = {name: frame for name, table in tables.items() if (frame := table.changes()).height}
        if not changed and cells == self.head.cells:
            return 0
        sequence, buckets = self.head.sequence + 1, len(self.head.written)
        bucket = sequence % buckets
        full = {name: frame for name, t in tables.items() if (frame := t.rows(bucket, buckets)).height}
        log, rows = pack(changed), pack(full)
        blobs.put(f"log/{sequence}", log)
        blobs.put(f"bucket/{bucket}", rows)
        blobs.remove(f"log/{sequence - buckets}")
        written = [*self.head.written]
        written[bucket] = sequence
        chains = [*self.head.chains, _digest(self.head.chain, log, rows)][-buckets:]
        self.head = LogHead(sequence, chains, written, dict(cells))
        head = self.head.to_json()
        blobs.put(HEAD, head)
        return len(log) + len(rows) + len(head)

    @staticmethod
    def _take(frames: Mapping[str, pl.DataFrame], table: Callable[[str], StateTable]) -> None:
        for name, frame in frames.items():
            if frame.height:
                table(name).load(frame)


def fresh_log(
    rows: Mapping[str, pl.DataFrame], buckets: int, cells: Mapping[str, object]
) -> Iterator[tuple[str, bytes]]:
    """Yield the blobs of a new log with these rows, each once, by table; a shard starts from it after a restore."""
    pieces = {name: _by_bucket(frame, buckets) for name, frame in rows.items()}
    digest = ""
    for bucket in range(buckets):
        blob = pack({name: piece[bucket] for name, piece in pieces.items() if piece[bucket].height})
        digest = _digest(digest, blob)
        yield f"bucket/{bucket}", blob
    yield "log/1", pack({})
    yield HEAD, LogHead(1, [digest], [1] * buckets, dict(cells)).to_json()


def _read_rows(stored: bytes, blobs: BlobStore) -> Iterator[Mapping[str, pl.DataFrame]]:
    """All that a shard's tables hold, by table: rows in the order in which tables take them, oldest first.

    A row may come again, changed; a table knows by itself which rows are gone. ``CorruptState`` if a blob is missing.
    """
    head = LogHead.from_json(stored)
    buckets = len(head.written)
    for bucket, sequence in enumerate(head.written):
        if sequence:
            yield _read(blobs, f"bucket/{bucket}")
    written = np.asarray(head.written, dtype=np.int64)
    for sequence in range(max(1, head.sequence - buckets + 1), head.sequence + 1):
        frames = _read(blobs, f"log/{sequence}")
        yield {n: _newer_than(f, written, sequence) for n, f in frames.items()}


def _read(blobs: BlobStore, name: str) -> dict[str, pl.DataFrame]:
    blob = blobs.get(name)
    if blob is None:
        raise CorruptState(f"shard state: blob {name} is missing; restore from a savepoint")
    return unpack(blob)


def _newer_than(rows: pl.DataFrame, written: npt.NDArray[np.int64], sequence: int) -> pl.DataFrame:
    """Rows whose bucket was last written before this log blob; the others are in their bucket already, or gone."""
    return rows.filter(pl.Series(written[bucket_for(rows[HASH].to_numpy(), len(written))] < sequence))


def _by_bucket(rows: pl.DataFrame, buckets: int) -> list[pl.DataFrame]:
    """Return a table's rows as its buckets hold them, in their order."""
    if not rows.height:
        return [rows] * buckets
    numbers = bucket_for(rows[HASH].to_numpy(), buckets)
    order = np.argsort(numbers, kind="stable")
    edges = np.searchsorted(numbers[order], np.arange(buckets + 1)).tolist()
    rows = rows[order]
    return [rows[start:end] for start, end in pairwise(edges)]


def _digest(chain: str, *blobs: bytes) -> str:
    digest = hashlib.blake2b(chain.encode(), digest_size=16)
    for blob in blobs:
        digest.update(blob)
    return digest.hexdigest()
