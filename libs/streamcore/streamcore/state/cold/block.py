"""A block of a sorted run: the cold rows whose spread hash begins with certain bits, of all tables of an operator.

The rows of each table are one Arrow record batch, sorted by the spread hash of their key (``paged_state.spread``), so
that a column of keys is found by one binary search and only the rows that are wanted are read from the memory-mapped
file. Strings are stored with offsets and not as views: reading views would visit every row.

A block has two more frames: the deadlines of its keys by event time and by the clock, sorted by time, and the keys
without rows. Such a key was in memory and vanished there, while an older run still has rows of it (a tombstone).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl
import pyarrow as pa

from streamcore.columnar.grouping import expand_counts
from streamcore.hashing import UInt64Array
from streamcore.state.cold.paged_state import Deadlines, Frames, Ints, gather, spread
from streamcore.state.frame_codec import to_bytes
from streamcore.state.row_versions import VERSION
from streamcore.state.table import HASH

_SPREAD = "__spread"
_TIME = "__time"
_EVENT, _CLOCK, _GONE = "\x00event", "\x00clock", "\x00gone"
_ALIGN = 64
_AS_INT64 = pl.col(pl.Int8, pl.Int16, pl.Int32).cast(pl.Int64)

Mask = npt.NDArray[np.bool_]


def sort_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with a column ``HASH`` sorted by its spread value, which takes its place. The sort is stable."""
    spread_hashes = spread(rows[HASH].to_numpy())
    order = np.argsort(spread_hashes, kind="stable")
    return rows.with_columns(pl.Series(HASH, spread_hashes))[order].rename({HASH: _SPREAD})


def sorted_keys(rows: pl.DataFrame) -> UInt64Array:
    """Return the spread hashes of rows that ``sort_rows`` returned."""
    return rows[_SPREAD].to_numpy()


def unsorted_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the column ``HASH`` again."""
    return rows.with_columns(pl.Series(_SPREAD, gather(rows[_SPREAD].to_numpy()))).rename({_SPREAD: HASH})


def slice_by_prefix(keys: UInt64Array, bits: int) -> list[tuple[int, int]]:
    """Return start and end, in sorted spread hashes, of each of the ``2**bits`` prefixes."""
    if not bits:
        return [(0, len(keys))]
    edges = np.arange(1, 1 << bits, dtype=np.uint64) << np.uint64(64 - bits)
    places = [0, *np.searchsorted(keys, edges).tolist(), len(keys)]
    return [*pairwise(places)]


def encode_block(frames: Frames, event: Deadlines, clock: Deadlines, gone: UInt64Array) -> bytes:
    """Encode a block. ``frames``: as ``sort_rows`` returns them. ``gone``: sorted spread hashes of keys without rows.
    The hashes of the deadlines are hashes of keys, not spread."""
    parts = {name: rows for name, rows in frames.items() if rows.height}
    for name, deadlines in ((_EVENT, event), (_CLOCK, clock)):
        if len(deadlines.times):
            order = np.argsort(deadlines.times, kind="stable")
            parts[name] = pl.DataFrame({_SPREAD: spread(deadlines.hashes[order]), _TIME: deadlines.times[order]})
    if len(gone):
        parts[_GONE] = pl.DataFrame({_SPREAD: gone})
    blobs = {name: to_bytes(rows.rechunk()) for name, rows in parts.items()}
    entries, offset = [], 0
    for name, blob in blobs.items():
        entries.append([name, offset, len(blob)])
        offset += _padded(len(blob))
    header = orjson.dumps(entries)
    head = len(header).to_bytes(8, "little") + header
    return b"".join([_pad(head), *map(_pad, blobs.values())])


def _padded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _pad(blob: bytes) -> bytes:
    return blob + bytes(_padded(len(blob)) - len(blob))


class Block:
    """A block in memory or in a memory-mapped file."""

    def __init__(self, buffer: pa.Buffer) -> None:
        size = int.from_bytes(buffer.slice(0, 8).to_pybytes(), "little")
        start = _padded(8 + size)
        self._batches: dict[str, pa.RecordBatch] = {}
        for name, offset, length in orjson.loads(buffer.slice(8, size).to_pybytes()):
            self._batches[name] = pa.ipc.open_stream(buffer.slice(start + offset, length)).read_next_batch()

    def find(self, keys: UInt64Array) -> tuple[Mask, dict[str, pl.DataFrame]]:
        """Return which of these keys (sorted spread hashes) the block has, and their rows by table."""
        found = np.zeros(len(keys), dtype=bool)
        frames: dict[str, pl.DataFrame] = {}
        for name, batch in self._batches.items():
            if name not in (_EVENT, _CLOCK):
                stored = _spread_hashes(batch)
                first, end = np.searchsorted(stored, keys), np.searchsorted(stored, keys, "right")
                found |= end > first
                rows = expand_counts(first, end - first)
                if name != _GONE and rows.size:
                    frames[name] = unsorted_rows(_to_frame(batch.take(pa.array(rows))))
        return found, frames

    def rows(self, first: int, end: int) -> dict[str, pl.DataFrame]:
        """Return the rows with spread hashes from ``first`` to before ``end``, as ``sort_rows`` returns them."""
        frames = {}
        for name, batch in self._batches.items():
            if not name.startswith("\x00"):
                low, high = _bounds(_spread_hashes(batch), first, end)
                if high > low:
                    frames[name] = _to_frame(batch.slice(low, high - low))
        return frames

    def gone(self, first: int, end: int) -> UInt64Array:
        """Return the keys without rows, as sorted spread hashes."""
        batch = self._batches.get(_GONE)
        if batch is None:
            return np.empty(0, np.uint64)
        keys = _spread_hashes(batch)
        low, high = _bounds(keys, first, end)
        return keys[low:high]

    def due(self, *, clock: bool, after_ms: int, until_ms: int) -> tuple[UInt64Array, int | None]:
        """Return the hashes with a deadline after ``after_ms`` and up to ``until_ms``, and the next later deadline."""
        batch = self._batches.get(_CLOCK if clock else _EVENT)
        if batch is None:
            return np.empty(0, np.uint64), None
        times = _ints(batch.column(_TIME))
        low, high = np.searchsorted(times, [after_ms, until_ms], "right")
        return gather(_spread_hashes(batch)[low:high]), int(times[high]) if high < len(times) else None


def _bounds(keys: UInt64Array, first: int, end: int) -> tuple[int, int]:
    low = int(np.searchsorted(keys, np.uint64(first)))
    return low, len(keys) if end >= 1 << 64 else int(np.searchsorted(keys, np.uint64(end)))


def _spread_hashes(batch: pa.RecordBatch) -> UInt64Array:
    keys: UInt64Array = batch.column(_SPREAD).to_numpy(zero_copy_only=True)
    return keys


def _ints(column: pa.Array) -> Ints:
    numbers: Ints = column.to_numpy(zero_copy_only=True).astype(np.int64, copy=False)
    return numbers


def _to_frame(batch: pa.RecordBatch) -> pl.DataFrame:
    frame = pl.from_arrow(batch)
    assert isinstance(frame, pl.DataFrame), "a record batch becomes a frame"
    return frame.with_columns(_AS_INT64)


def get_version(frames: Frames) -> int:
    """Return the version of rows (``row_versions``), which is the same in all of a part; 0 without one."""
    versions = [rows[VERSION].max() for rows in frames.values() if rows.height and VERSION in rows.columns]
    return max((version for version in versions if isinstance(version, int)), default=0)


def concat_tables(parts: Sequence[Mapping[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    """Return the rows of several parts by table. Columns may differ: nulls only, or of an older version."""
    by_table: dict[str, list[pl.DataFrame]] = {}
    for part in parts:
        for name, rows in part.items():
            by_table.setdefault(name, []).append(rows)
    return {
        name: frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal_relaxed", rechunk=True)
        for name, frames in by_table.items()
    }
