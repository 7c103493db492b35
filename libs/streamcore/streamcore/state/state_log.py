"""The durable form of a shard's tables: a log of changes, over buckets of full rows.

Writing whole tables in every cut would cost time in proportion to the state, and writing key by key a call per key. So
a cut writes one blob with all rows that it changed, and one blob with all rows of one bucket, bucket after bucket:

====================  =====================================================================================
blob                  content
====================  =====================================================================================
``head``              sequence number, chain digests, the sequence number of each bucket, the shard's cells
``log/<n>``           the rows that cut n changed, of all tables
``bucket/<b>``        every live row of bucket b, of all tables, at the cut that wrote it
====================  =====================================================================================

After ``buckets`` writing cuts every bucket has been rewritten, so older log blobs are removed: there are never more
than ``buckets`` of them, and no cut rewrites everything (an LSM tree, O'Neil et al. 1996, whose levelling is spread
evenly over the cuts). A cut that changes nothing writes nothing.

The rows of cold keys (``streamcore.state.cold``) are in blobs of their own, ``cold/<operator>/<run>/<block>``, which
are written once and listed in the head; buckets have the rows of the keys in memory alone.

A process reads blobs only if its tables in memory are not those of the stored head. The chain digest covers every byte
written since the shard began, so tables of an uncommitted attempt are never taken for committed ones. The head lists
the digests of the last cuts: a process with the tables of one of these cuts (shards move between worker processes)
reads only the later log blobs.
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
from streamcore.state.cold.cold_state import EVICTED, ColdState
from streamcore.state.frame_codec import pack, unpack
from streamcore.state.log_copies import LogCopies
from streamcore.state.row_versions import VERSION
from streamcore.state.table import HASH, StateTable

HEAD = "head"
#: The format of a head without cold rows, which a version that knows none reads too, and of one that lists some.
FORMAT, COLD_FORMAT = 1, 2


@dataclass(slots=True)
class LogHead:
    """The head of a shard's log.

    ``sequence``: the number of the last cut that wrote. ``chains``: the chain digests of the last cuts, latest last.
    ``written``: by bucket, the sequence that wrote it. ``cells``: small JSON values of the shard (watermark, clock).
    ``cold``: the runs of cold rows by operator, as JSON.
    """

    sequence: int = 0
    chains: list[str] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    cells: Mapping[str, object] = field(default_factory=dict)
    cold: Mapping[str, object] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Return the head as stored."""
        document = {
            "format": COLD_FORMAT if self.cold else FORMAT,
            "sequence": self.sequence,
            "chains": self.chains,
            "written": self.written,
            "cells": self.cells,
        }
        if self.cold:
            document["cold"] = self.cold
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_json(cls, blob: bytes) -> LogHead:
        """Return a stored head; ``CorruptState`` if its format is unknown."""
        document = orjson.loads(blob)
        if document.get("format") not in (FORMAT, COLD_FORMAT):
            raise CorruptState(
                f"shard state has format {document.get('format')!r}; this version reads {FORMAT} and {COLD_FORMAT}"
            )
        known = {part: document[part] for part in ("sequence", "chains", "written", "cells")}
        return cls(**known, cold=document.get("cold", {}))

    @property
    def log_sequences(self) -> range:
        """The numbers of the cuts whose log blobs are stored."""
        return range(max(1, self.sequence - len(self.written) + 1), self.sequence + 1)

    @property
    def chain(self) -> str:
        """The digest of everything written so far; empty before the first cut that wrote."""
        return self.chains[-1] if self.chains else ""


class StateLog:
    """Reads and writes the tables of one shard. ``head`` describes the tables in memory, so keep both together.

    ``cold``: the cold rows of the shard; None if all rows are in memory. ``copies``: of the latest log blobs; None:
    every blob is read from the store.
    """

    def __init__(self, settings: StateSettings, cold: ColdState | None = None, copies: LogCopies | None = None) -> None:
        self.settings = settings
        self.cold = cold
        self.copies = copies
        self.head = LogHead(written=[0] * settings.buckets)

    def holds(self, stored: bytes | None) -> bool:
        """Return whether the tables in memory are those of this stored head."""
        if stored is None:
            return self.head.sequence == 0
        return self.head.to_json() == stored

    def catch_up(self, stored: bytes, blobs: BlobStore, table: Callable[[str], StateTable]) -> bool:
        """Load the log blobs that tables a few cuts behind the stored head lack.

        Return False and change nothing if the tables are not those of one of the last cuts.
        """
        head = LogHead.from_json(stored)
        cuts_behind = head.sequence - self.head.sequence
        if not (0 < cuts_behind < len(head.chains)) or head.chains[-1 - cuts_behind] != self.head.chain:
            return False
        for sequence, chain in zip(
            range(self.head.sequence + 1, head.sequence + 1), head.chains[-cuts_behind:], strict=True
        ):
            copied = None if self.copies is None else self.copies.get(chain)
            self._load_tables(_read(blobs, f"log/{sequence}") if copied is None else unpack(copied), table)
        self._set_head(head, table)
        return True

    def load(
        self,
        stored: bytes | None,
        blobs: BlobStore,
        table: Callable[[str], StateTable],
        tables: Mapping[str, StateTable] | None = None,
    ) -> None:
        """Fill empty tables from the blobs, oldest rows first. ``table`` returns the table of a name.

        ``tables``: those whose columns are compared with the stored ones first. ``CorruptState`` if they differ, or if
        a blob is missing.
        """
        if stored is None:
            return
        wanted = unpack(pack({name: one.rows(0, 1) for name, one in (tables or {}).items()}))
        if self.cold is not None:
            head = LogHead.from_json(stored)
            self.cold.find_evicted((n, _read(blobs, f"log/{n}", EVICTED)) for n in head.log_sequences if head.cold)
        for sequence, every in _read_rows(stored, blobs):
            frames = every if self.cold is None else self.cold.without_evicted(sequence, every)
            for name in wanted.keys() & frames.keys():
                _check_columns(name, frames[name].schema, wanted.pop(name).schema)
            self._load_tables(frames, table)
        self._set_head(LogHead.from_json(stored), table)

    def commit(self, blobs: BlobStore, tables: Mapping[str, StateTable], cells: Mapping[str, object]) -> int:
        """Write the changes of the tables and the shard's cells. Return the bytes written; 0 if nothing changed."""
        changed = {name: frame for name, table in tables.items() if (frame := table.changes()).height}
        cold = self.cold if self.cold is not None and self.cold.is_active else None
        cold_blobs: list[str] = []
        cold_bytes = 0
        if cold is not None:
            changed, cold_blobs, cold_bytes = cold.commit(changed)
        if not changed and cells == self.head.cells:
            return 0
        sequence, buckets = self.head.sequence + 1, len(self.head.written)
        bucket = sequence % buckets
        bucket_rows = {name: frame for name, t in tables.items() if (frame := t.rows(bucket, buckets)).height}
        if cold is not None:
            bucket_rows |= cold.rows(bucket, buckets)
        log, rows = pack(changed), pack(bucket_rows)
        blobs.put(f"log/{sequence}", log)
        blobs.put(f"bucket/{bucket}", rows)
        blobs.remove(f"log/{sequence - buckets}")
        written = [*self.head.written]
        written[bucket] = sequence
        chains = [*self.head.chains, _digest(self.head.chain, log, rows, *(d.encode() for d in cold_blobs))][-buckets:]
        self.head = LogHead(sequence, chains, written, dict(cells), {} if cold is None else cold.to_json())
        head = self.head.to_json()
        blobs.put(HEAD, head)
        if self.copies is not None:
            self.copies.put(chains, log)
        if cold is not None:
            cold.finish()
        return len(log) + len(rows) + len(head) + cold_bytes

    def _set_head(self, head: LogHead, table: Callable[[str], StateTable]) -> None:
        self.head = head
        if self.cold is not None:
            self.cold.restore(head.cold, table)
        elif head.cold:
            raise CorruptState(
                f"shard state: operators {sorted(head.cold)} have cold keys, and this program cannot read them; "
                "continue with the program that wrote them"
            )

    def _load_tables(self, frames: Mapping[str, pl.DataFrame], table: Callable[[str], StateTable]) -> None:
        if self.cold is not None:
            self.cold.load_frames(frames, table)
            return
        for name, frame in frames.items():
            if frame.height:
                table(name).load(frame)


def _check_columns(name: str, stored: pl.Schema, wanted: pl.Schema) -> None:
    """Raise ``CorruptState`` if a table wants columns or types that are not stored. ``Null`` fits any type.

    Rows with versions are migrated when they are loaded, and may differ.
    """
    if VERSION in wanted:
        return
    for column, dtype in wanted.items():
        found = stored.get(column)
        if found != dtype and pl.Null() not in (found, dtype):
            was = "is not stored" if found is None else f"is stored as {found}"
            raise CorruptState(
                f"state {name}: column {column} {was} and wanted as {dtype}, so another program wrote it; continue "
                "with that program, or give the changed operator another name and drop the old state at a restore"
            )


def fresh_log(
    rows: Mapping[str, pl.DataFrame], buckets: int, cells: Mapping[str, object], cold: Mapping[str, object]
) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the blobs of a new log with these rows, by table. A restored shard starts from it.

    ``cold``: what the head lists as cold (``ColdState.to_json``), whose blobs are written already.
    """
    rows_by_bucket = {name: _by_bucket(frame, buckets) for name, frame in rows.items()}
    digest = ""
    for bucket in range(buckets):
        blob = pack({name: parts[bucket] for name, parts in rows_by_bucket.items() if parts[bucket].height})
        digest = _digest(digest, blob)
        yield f"bucket/{bucket}", blob
    yield "log/1", pack({})
    yield HEAD, LogHead(1, [digest], [1] * buckets, dict(cells), cold).to_json()


def _read_rows(stored: bytes, blobs: BlobStore) -> Iterator[tuple[int, Mapping[str, pl.DataFrame]]]:
    """Yield the stored rows of a shard's tables, oldest first, in the order in which they must be loaded, each with the
    number of the cut that wrote them.

    A row may be repeated with changes, and the table detects deleted rows. ``CorruptState`` if a blob is missing.
    """
    head = LogHead.from_json(stored)
    for bucket, sequence in enumerate(head.written):
        if sequence:
            yield sequence, _read(blobs, f"bucket/{bucket}")
    written = np.asarray(head.written, dtype=np.int64)
    for sequence in head.log_sequences:
        frames = _read(blobs, f"log/{sequence}")
        yield sequence, {n: _newer_than(f, written, sequence) for n, f in frames.items()}


def _read(blobs: BlobStore, name: str, prefix: str = "") -> dict[str, pl.DataFrame]:
    blob = blobs.get(name)
    if blob is None:
        raise CorruptState(f"shard state: blob {name} is missing; restore from a savepoint")
    return unpack(blob, prefix)


def _newer_than(rows: pl.DataFrame, written: npt.NDArray[np.int64], sequence: int) -> pl.DataFrame:
    """Return the rows whose bucket was last written before this log blob. The buckets of the others are newer."""
    return rows.filter(pl.Series(written[bucket_for(rows[HASH].to_numpy(), len(written))] < sequence))


def _by_bucket(rows: pl.DataFrame, buckets: int) -> list[pl.DataFrame]:
    """Return the rows of each bucket, in their order."""
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
