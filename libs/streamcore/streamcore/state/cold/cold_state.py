"""The cold rows of a shard: what is evicted when its tables take too much memory, and recalled before a cut uses it.

A cut has these steps. (1) Before an operator runs, ``recall`` loads the cold keys of its input rows, and those with a
deadline that the cut passes. (2) After the kernel's step the state log takes the changes; ``evict`` writes the keys
least recently used to new runs until the tables fit into the shard's share of the memory. (3) The log stores the
recalled rows, the changes of keys that stay, and the hashes of the evicted keys. So the log has all rows of the keys in
memory and of no others, and a restart loads those; the head lists the runs.

=====================  ====================================================================================
table of the log       rows
=====================  ====================================================================================
``cold/rows/<v>/<t>``  the recalled rows of table t in version v; loaded before its changes
``cold/out/<o>``       the hashes of the keys of operator o that were evicted; forgotten after the changes
``cold/in/<o>``        the keys of operator o that are in memory although runs have old rows of them
=====================  ====================================================================================
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from streamcore.hashing import UInt64Array
from streamcore.limits import StateSettings
from streamcore.state.blob_store import BlobStore
from streamcore.state.cold.block import concat_tables, get_version
from streamcore.state.cold.blocks import ColdBlobs
from streamcore.state.cold.cold_rows import ColdRows
from streamcore.state.cold.local_files import LocalFiles
from streamcore.state.cold.paged_state import Frames, Ints, PagedState, is_member
from streamcore.state.table import HASH, StateTable

_CUT = "__cut"
_ROWS, _IN = "cold/rows/", "cold/in/"
#: Begins the names of the log's frames that have the hashes of evicted keys.
EVICTED = "cold/out/"
#: The share of its memory that a shard's tables take after an eviction.
_AFTER_EVICTION = 0.9

#: The shards of this process that page: they share ``memory_bytes``.
_paging: weakref.WeakSet[ColdState] = weakref.WeakSet()


class ColdState:
    """The cold rows of one shard by operator. ``states``: the paged states of the shard's kernel. ``name``: of the
    shard's local folder. ``local``: whether blocks are read through local files; else from the blob store alone."""

    def __init__(
        self, settings: StateSettings, states: Mapping[str, PagedState], name: str, *, local: bool = True
    ) -> None:
        self.settings = settings
        self._blobs = ColdBlobs(LocalFiles(settings.local_dir, name), local=local)
        self._rows = {operator: ColdRows(operator, state, self._blobs) for operator, state in states.items()}
        self._tables = {f"{operator}/{table}": operator for operator, state in states.items() for table in state.tables}
        #: By operator: the hashes of keys that the log shows as evicted, ascending, and the last cut that evicted each.
        self._evicted_in: dict[str, tuple[UInt64Array, Ints]] = {}
        if settings.memory_bytes is not None and states:
            for state in states.values():
                state.start_paging()
            _paging.add(self)

    def begin(self, blobs: BlobStore) -> None:
        """Use this blob store in the cut that begins."""
        self._blobs.store = blobs

    def pages(self, operator: str) -> bool:
        """Return whether keys of that operator may be cold."""
        return operator in self._rows and bool(self._rows[operator].runs)

    def pages_table(self, name: str) -> bool:
        """Return whether keys of the table of that name in the kernel may be cold."""
        return name in self._tables

    def recall(self, operator: str, hashes: UInt64Array, event_ms: int, clock_ms: int) -> None:
        """Load the cold keys of these hashes, and those with a deadline up to these times in epoch milliseconds."""
        rows = self._rows[operator]
        rows.recall(hashes)
        rows.recall_due(event_ms, clock_ms)

    # --- the log ------------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether keys may be cold now or later."""
        return self.settings.memory_bytes is not None or any(rows.is_used for rows in self._rows.values())

    def commit(self, changed: Mapping[str, pl.DataFrame]) -> tuple[dict[str, pl.DataFrame], list[str], int]:
        """Evict keys if the tables take too much memory. Return the frames that the log stores for this cut, and the
        digests and the bytes of the blobs written. ``changed``: the changes of all tables, by name."""
        frames = dict(changed)
        evicted = self._evict()
        for operator, rows in self._rows.items():
            gone = evicted.get(operator)
            by_version: dict[int, list[Frames]] = {}
            for part in rows.recalled_rows:
                by_version.setdefault(get_version(part), []).append(part)
            rows.recalled_rows = []
            for version, parts in by_version.items():
                for table, one in concat_tables(parts).items():
                    frames[f"{_ROWS}{version:06}/{operator}/{table}"] = one
            if gone is not None and gone.size:
                for name in [*frames]:
                    if self._tables.get(_table_name(name)) == operator:
                        frames[name] = frames[name].filter(pl.Series(~is_member(frames[name][HASH].to_numpy(), gone)))
                frames[EVICTED + operator] = pl.DataFrame({HASH: gone})
            frames[_IN + operator] = rows.recalled.changes()
        written, digests = self._blobs.take_written()
        return {name: one for name, one in frames.items() if one.height}, digests, written

    def rows(self, bucket: int, buckets: int) -> dict[str, pl.DataFrame]:
        """Return the rows of a bucket that the log stores besides those of the tables."""
        rows = {_IN + operator: one.recalled.rows(bucket, buckets) for operator, one in self._rows.items()}
        return {name: one for name, one in rows.items() if one.height}

    def finish(self) -> None:
        """Remove what no head lists any more. Called when the new head was written."""
        self._blobs.files.keep(digest for rows in self._rows.values() for digest in rows.digests())

    def find_evicted(self, logs: Iterable[tuple[int, Mapping[str, pl.DataFrame]]]) -> None:
        """Read the numbers of the cuts in which keys were evicted, so that ``without_evicted`` knows them.

        ``logs``: the frames ``EVICTED`` of each blob of the log, with the number of its cut.
        """
        parts: dict[str, list[pl.DataFrame]] = {}
        for sequence, frames in logs:
            for name, rows in frames.items():
                numbered = rows.select(HASH, pl.lit(sequence, pl.Int64).alias(_CUT))
                parts.setdefault(name.removeprefix(EVICTED), []).append(numbered)
        self._evicted_in = {}
        for operator, found in parts.items():
            evicted = pl.concat(found).sort(HASH)
            hashes, cuts = evicted[HASH].to_numpy(), evicted[_CUT].to_numpy()
            first = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
            self._evicted_in[operator] = hashes[first], np.maximum.reduceat(cuts, first)

    def without_evicted(self, sequence: int, frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        """Return the frames of a blob that this cut wrote, without the rows of keys that later cuts evicted: most of
        what the log has, if memory is small, and loading rows costs more than dropping them. So no loaded key has to
        be forgotten, and the hashes of evicted keys are dropped, too."""
        kept = {}
        for name, rows in frames.items():
            if name.startswith(EVICTED):
                continue
            later = self._evicted_in.get(self._tables.get(_table_name(name), ""))
            if later is None or not rows.height:
                kept[name] = rows
                continue
            evicted, cuts = later
            hashes = rows[HASH].to_numpy()
            order = np.argsort(hashes)  # a search for ascending hashes is several times faster
            hashes = hashes[order]
            places = np.minimum(np.searchsorted(evicted, hashes), len(evicted) - 1)
            stays = np.empty(len(hashes), dtype=bool)
            stays[order] = (evicted[places] != hashes) | (cuts[places] < sequence)
            kept[name] = rows.filter(pl.Series(stays))
        return kept

    def load_frames(self, frames: Mapping[str, pl.DataFrame], table: Callable[[str], StateTable]) -> None:
        """Load the frames of one blob of the log."""
        for prefix in (_ROWS, "", _IN, EVICTED):
            for name, rows in sorted(frames.items(), key=_by_name):
                if rows.height and (name.startswith(prefix) if prefix else not name.startswith((_ROWS, _IN, EVICTED))):
                    self._load_frame(prefix, name.removeprefix(prefix), rows, table)

    def _load_frame(self, prefix: str, name: str, rows: pl.DataFrame, table: Callable[[str], StateTable]) -> None:
        if prefix in ("", _ROWS):
            table(_table_name(prefix + name)).load(rows)
        elif prefix == _IN:
            self._operator(name, table).recalled.load(rows)
        else:
            self._operator(name, table).state.forget(rows[HASH].to_numpy())

    def _operator(self, name: str, table: Callable[[str], StateTable]) -> ColdRows:
        if name not in self._rows:
            table(f"{name}/")  # raises the error of the kernel: no operator has this state
            raise AssertionError(f"a kernel has the table {name}/ and no operator {name}")
        return self._rows[name]

    # --- the head -----------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, object]:
        """Return what the head stores: nothing as long as no key was evicted."""
        return {operator: rows.to_json() for operator, rows in self._rows.items() if rows.is_used}

    def restore(self, stored: Mapping[str, Any], table: Callable[[str], StateTable]) -> None:
        """Take over what a head stores. Called after the last stored row is loaded."""
        for operator, one in stored.items():
            self._operator(operator, table).restore(one)
        if stored:
            self._blobs.files.keep(digest for rows in self._rows.values() for digest in rows.digests())

    # --- rows of savepoints -------------------------------------------------------------------------------------

    def live_rows(self) -> Iterator[dict[str, pl.DataFrame]]:
        """Yield the cold rows by table of the kernel, a part of the keys at a time.

        Forgets the keys in memory. Rows with a version go through the operator, which brings them to its own.
        """
        for operator, rows in self._rows.items():
            rows.state.evict(1.0)
            for frames in rows.live_rows():
                part: Frames = frames
                if get_version(frames):
                    rows.state.recall(frames)
                    part = rows.state.evict(1.0)
                yield {f"{operator}/{table}": one for table, one in part.items()}

    def add(self, frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        """Write the rows of paged tables as cold rows, and return those of the other tables."""
        for operator, rows in self._rows.items():
            own = {
                table: frames[f"{operator}/{table}"] for table in rows.state.tables if f"{operator}/{table}" in frames
            }
            own = {table: one for table, one in own.items() if one.height}
            if own:
                rows.state.count_cold(own)
                rows.add_run(own)
        return {name: one for name, one in frames.items() if name not in self._tables}

    # --- memory -------------------------------------------------------------------------------------------------

    def _evict(self) -> dict[str, UInt64Array]:
        """Evict keys if the tables take more than the shard's share. Return the hashes by operator."""
        if self.settings.memory_bytes is None:
            return {}
        share = self.settings.memory_bytes // max(1, len(_paging))
        total = self.memory_bytes()
        evicted: dict[str, UInt64Array] = {}
        if total > share:
            part = 1 - _AFTER_EVICTION * share / total
            for operator, rows in self._rows.items():
                evicted[operator] = rows.evict(part)
        for operator, rows in self._rows.items():
            count = len(evicted.get(operator, ()))
            self._blobs.remove(operator, rows.compact(count))
        return evicted

    def memory_bytes(self) -> int:
        """Return about how many bytes the paged tables take in memory."""
        return sum(rows.state.memory_bytes() for rows in self._rows.values())

    def sizes(self) -> dict[str, int]:
        """Return the rows and bytes on disk, with those that recalled keys left there until their run is merged, and
        about how many bytes the paged tables take in memory."""
        runs = [run for rows in self._rows.values() for run in rows.runs]
        return {
            "disk_rows": sum(run.rows for run in runs),
            "disk_bytes": sum(run.size for run in runs),
            "memory_bytes": self.memory_bytes(),
        }

    def take_moves(self) -> dict[str, int]:
        """Return how many keys were recalled and evicted since the last call."""
        moves = {
            "recalled": sum(rows.recalled_count for rows in self._rows.values()),
            "evicted": sum(rows.evicted_count for rows in self._rows.values()),
        }
        for rows in self._rows.values():
            rows.recalled_count = rows.evicted_count = 0
        return moves


def _table_name(name: str) -> str:
    """Return the kernel's name of the table of a frame of the log."""
    return name.removeprefix(_ROWS).partition("/")[2] if name.startswith(_ROWS) else name


def _by_name(frame: tuple[str, pl.DataFrame]) -> str:
    return frame[0]
