"""The durable form of a shard's tables: a log of changes, over buckets of full rows.

Writing whole tables in every cut would cost time in proportion to the state, and writing key by key a call per key. So
a cut writes one blob with all rows that it changed, and one blob with all rows of one bucket, bucket after bucket:

====================  =====================================================================================
blob                  content
====================  =====================================================================================
``head``              sequence number, chain digests, the sequence number of each bucket, the shard's cells
``log/<n>``           the rows that cut n changed, of all tables
``bucket/<b>``        every live row of bucket b, of all tables, at the cut that wrote it
``run/<n>``           the rows that are new in cut n, of tables whose rows never change (``runs``); they are
                      in no other blob
====================  =====================================================================================

After ``buckets`` writing cuts every bucket has been rewritten, so older log blobs are removed: there are never more
than ``buckets`` of them, and no cut rewrites everything (an LSM tree, O'Neil et al. 1996, whose levelling is spread
evenly over the cuts). A cut that changes nothing writes nothing.

The rows of cold keys (``streamcore.state.cold``) are in blobs of their own, ``cold/<operator>/<run>/<block>``, which
are written once and listed in the head; buckets have the rows of the keys in memory alone. A shard whose keys may be
cold has no runs.

A process reads blobs only if its tables in memory are not those of the stored head. The chain digest covers every byte
written since the shard began, so tables of an uncommitted attempt are never taken for committed ones. The head lists
the digests of the last cuts: a process with the tables of one of these cuts (shards move between worker processes)
reads only the later log blobs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from streamcore.state.runs import IdRun, choose_small, merge_runs
from streamcore.state.table import HASH, RunTable, StateTable

#: Rows by table.
Frames = Mapping[str, pl.DataFrame]

HEAD = "head"
#: The format of a head without cold rows and runs, which a version that knows none reads too, of one that lists cold
#: rows, and of one that lists runs.
FORMAT, COLD_FORMAT, RUNS_FORMAT = 1, 2, 3


@dataclass(slots=True)
class LogHead:
    """The head of a shard's log.

    ``sequence``: the number of the last cut that wrote. ``chains``: the chain digests of the last cuts, latest last.
    ``written``: by bucket, the sequence that wrote it. ``cells``: small JSON values of the shard (watermark, clock).
    ``cold``: the runs of cold rows by operator, as JSON. ``runs``: oldest first; there are none if there are cold rows.
    """

    sequence: int = 0
    chains: list[str] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    cells: Mapping[str, object] = field(default_factory=dict)
    cold: Mapping[str, object] = field(default_factory=dict)
    runs: Sequence[IdRun] = ()

    def to_json(self) -> bytes:
        """Return the head as stored."""
        document = {
            "format": COLD_FORMAT if self.cold else RUNS_FORMAT if self.runs else FORMAT,
            "sequence": self.sequence,
            "chains": self.chains,
            "written": self.written,
            "cells": self.cells,
        }
        if self.cold:
            document["cold"] = self.cold
        if self.runs:
            document["runs"] = [[run.name, run.rows, run.newest_ms] for run in self.runs]
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_json(cls, blob: bytes) -> LogHead:
        """Return a stored head; ``CorruptState`` if its format is unknown."""
        document = orjson.loads(blob)
        if document.get("format") not in (FORMAT, COLD_FORMAT, RUNS_FORMAT):
            raise CorruptState(
                f"shard state has format {document.get('format')!r}; this version reads {FORMAT} to {RUNS_FORMAT}"
            )
        known = {part: document[part] for part in ("sequence", "chains", "written", "cells")}
        runs = tuple(IdRun(*one) for one in document.get("runs", ()))
        return cls(**known, cold=document.get("cold", {}), runs=runs)

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
        runs = {run.blob for run in head.runs}
        for sequence, chain in zip(
            range(self.head.sequence + 1, head.sequence + 1), head.chains[-cuts_behind:], strict=True
        ):
            copied = None if self.copies is None else self.copies.get(chain)
            if copied is None:
                run = f"run/{sequence}"
                log, new = _read(blobs, f"log/{sequence}"), _read(blobs, run) if run in runs else {}
            else:
                log, new = map(unpack, copied)
            self._load_tables(log, table)
            _load_run(new, table)
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
        head = LogHead.from_json(stored)
        if self.cold is not None:
            self.cold.find_evicted((n, _read(blobs, f"log/{n}", EVICTED)) for n in head.log_sequences if head.cold)
        for sequence, every in _read_rows(head, blobs):
            frames = every if self.cold is None else self.cold.without_evicted(sequence, every)
            _check_all_columns(frames, wanted)
            self._load_tables(frames, table)
        for run in head.runs:
            rows = _read(blobs, run.blob)
            _check_all_columns(rows, wanted)
            _load_run(rows, table)
        self._set_head(head, table)

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
        with_runs = {name: t for name, t in tables.items() if isinstance(t, RunTable)}
        new = {} if cold is not None else {name: changed.pop(name) for name in [*changed] if name in with_runs}
        sequence, buckets = self.head.sequence + 1, len(self.head.written)
        written = [*self.head.written]
        drops_runs = cold is not None and bool(self.head.runs)
        rewritten = range(buckets) if drops_runs else [sequence % buckets]
        log = pack(changed)
        runs, run_blobs = self._write_runs(blobs, new, with_runs, keeps=cold is None)
        bucket_blobs = []
        for bucket in rewritten:
            rows = {name: _bucket_rows(table, bucket, buckets, cold) for name, table in tables.items()}
            rows = {name: frame for name, frame in rows.items() if frame.height}
            bucket_blobs.append(pack(rows if cold is None else rows | cold.rows(bucket, buckets)))
            blobs.put(f"bucket/{bucket}", bucket_blobs[-1])
            written[bucket] = sequence
        blobs.put(f"log/{sequence}", log)
        blobs.remove(f"log/{sequence - buckets}")
        stored = [log, *run_blobs.values(), *bucket_blobs]
        digest = _digest(self.head.chain, *stored, *(d.encode() for d in cold_blobs))
        # Without its runs no process catches up from an earlier cut: it loads everything.
        chains = [digest] if drops_runs else [*self.head.chains, digest][-buckets:]
        self.head = LogHead(sequence, chains, written, dict(cells), {} if cold is None else cold.to_json(), runs)
        head = self.head.to_json()
        blobs.put(HEAD, head)
        if self.copies is not None:
            self.copies.put(chains, log, run_blobs.get(f"run/{sequence}") or pack({}))
        if cold is not None:
            cold.finish()
            for table in with_runs.values():
                table.leave_runs()
        return sum(map(len, stored)) + len(head) + cold_bytes

    def _write_runs(
        self, blobs: BlobStore, new: Frames, tables: Mapping[str, RunTable], *, keeps: bool
    ) -> tuple[tuple[IdRun, ...], dict[str, bytes]]:
        """Return the runs after this cut, and the blobs that it writes for them. ``new``: the new rows by table;
        ``keeps``: whether there are runs from this cut on."""
        sequence, oldest_behind = self.head.sequence + 1, self.head.sequence + 1 - len(self.head.written)
        runs, written = [*self.head.runs], dict[str, bytes]()
        if new:
            runs.append(IdRun.of(sequence, new, tables))
            written[runs[-1].blob] = pack(new)
        gone = [run for run in runs if not keeps or run.is_expired(tables)]
        runs = [run for run in runs if run not in gone]
        if small := choose_small(runs, oldest_behind, len(self.head.written)):
            merged, rows = merge_runs(small, [_read(blobs, run.blob) for run in small], tables)
            runs[runs.index(small[0])] = merged
            runs = [run for run in runs if run not in small]
            written[merged.blob] = pack(rows)
            gone += small
        for name, blob in written.items():
            blobs.put(name, blob)
        for run in gone:
            blobs.remove(run.blob)
        return tuple(runs), written

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


def _load_run(frames: Frames, table: Callable[[str], StateTable]) -> None:
    for name, rows in frames.items():
        one = table(name)
        if isinstance(one, RunTable):
            one.load_run(rows)
        else:
            one.load(rows)


def _bucket_rows(table: StateTable, bucket: int, buckets: int, cold: ColdState | None) -> pl.DataFrame:
    """Return the rows of a table that are stored in a bucket. ``cold``: None if there are runs."""
    if cold is None and isinstance(table, RunTable):
        return table.rows_outside_runs(bucket, buckets)
    return table.rows(bucket, buckets)


def _check_all_columns(frames: Frames, wanted: dict[str, pl.DataFrame]) -> None:
    """Check the stored columns of the tables that are still in ``wanted``, and take these out of it."""
    for name in wanted.keys() & frames.keys():
        _check_columns(name, frames[name].schema, wanted.pop(name).schema)


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


def _read_rows(head: LogHead, blobs: BlobStore) -> Iterator[tuple[int, Mapping[str, pl.DataFrame]]]:
    """Yield the stored rows of a shard's tables that are in no run, oldest first, in the order in which they must be
    loaded, each with the number of the cut that wrote them.

    A row may be repeated with changes, and the table detects deleted rows. ``CorruptState`` if a blob is missing.
    """
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
