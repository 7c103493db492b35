"""The protocol by which a shard moves the keys of an operator between memory and disk.

A key is identified by the hash of its rows (``HASH``): keys that share a hash move together. All rows of a key in all
paged tables move together, so a key is either in memory or cold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.hashing import UInt64Array

Ints = npt.NDArray[np.int64]

#: Rows by table, as ``StateTable.rows`` returns them.
Frames = Mapping[str, pl.DataFrame]

_NO_HASHES, _NO_TIMES = np.empty(0, np.uint64), np.empty(0, np.int64)


class Deadlines(NamedTuple):
    """Times at which keys must be in memory, in epoch milliseconds. A key can have several."""

    hashes: UInt64Array = _NO_HASHES
    times: Ints = _NO_TIMES


class ColdTimes(NamedTuple):
    """The times of some cold rows.

    ``event``, ``clock``: when the keys must be in memory again, by event time and by the clock: a timer, the end of a
    window. ``newest_ms``: the rows have no effect once ``PagedState.is_expired`` is true of this time; None: they
    always have.
    """

    event: Deadlines = Deadlines()
    clock: Deadlines = Deadlines()
    newest_ms: int | None = None


@runtime_checkable
class PagedState(Protocol):
    """The state of one operator that can be moved to disk by key. All rows are of tables that it declares."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the names of the paged tables of the operator. Others stay in memory."""
        ...

    def memory_bytes(self) -> int:
        """Return about how many bytes the paged tables take in memory. Called in every cut."""
        ...

    def hashes(self) -> UInt64Array:
        """Return the hashes of all keys in memory."""
        ...

    def start_paging(self) -> None:
        """Begin to record which keys are used. Called once, before the first row is loaded."""
        ...

    def evict(self, share: float) -> Frames:
        """Forget this share of the keys in memory, those least recently used, and return their live rows by table.

        Called when no change is unwritten. ``share``: above 0, up to 1.
        """
        ...

    def forget(self, hashes: UInt64Array) -> None:
        """Forget these keys while stored rows are loaded: they were evicted after their rows were written."""
        ...

    def recall(self, frames: Frames) -> None:
        """Load the rows of keys that were evicted."""
        ...

    def times(self, frames: Frames) -> ColdTimes:
        """Return the times of these rows."""
        ...

    def is_expired(self, newest_ms: int) -> bool:
        """Return whether rows up to this time have no effect any more. Once true, it stays true."""
        ...

    def without_expired(self, frames: Frames) -> Frames:
        """Return the rows that may still have an effect."""
        ...

    def count_cold(self, frames: Frames) -> None:
        """Count these rows as cold: a restore writes them to disk without loading them. ``evict`` counts by itself."""
        ...

    def cold_summary(self) -> Mapping[str, object]:
        """Return what the operator must know about its cold rows (such as their number), as a JSON-able value."""
        ...

    def restore_summary(self, summary: Mapping[str, object]) -> None:
        """Take over a stored summary. Called after the last stored row is loaded."""
        ...


@runtime_checkable
class RecallsAll(Protocol):
    """A paged state whose operator may need all keys in the middle of a cut."""

    def set_load_all(self, load_all: Callable[[], None]) -> None:
        """Take the function that loads all cold keys."""
        ...


@runtime_checkable
class PagedOperator(Protocol):
    """An operator whose state can be moved to disk by key."""

    paged_state: PagedState


def is_member(hashes: UInt64Array, members: UInt64Array) -> npt.NDArray[np.bool_]:
    """Return a mask of the hashes that are among the members. A bitmap of a few bits a member decides most of them."""
    if not len(members) or not len(hashes):
        return np.zeros(len(hashes), dtype=bool)
    bits = np.uint64(max(8 * len(members) - 1, 63).bit_length())
    shift = np.uint64(64) - bits
    bitmap = np.zeros(1 << int(bits), dtype=bool)
    bitmap[spread(members) >> shift] = True
    mask: npt.NDArray[np.bool_] = bitmap[spread(hashes) >> shift]
    possible = np.flatnonzero(mask)
    mask[possible] = np.isin(hashes[possible], members)
    return mask


_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_INVERSE = np.uint64(pow(int(_SPREAD), -1, 1 << 64))


def spread(hashes: UInt64Array) -> UInt64Array:
    """Return numbers whose upper bits are uniform, also for the hashes of one shard, which share a key group.

    A multiplication by an odd number modulo 2**64: ``gather`` is its inverse.
    """
    with np.errstate(over="ignore"):
        return hashes * _SPREAD


def gather(spread_hashes: UInt64Array) -> UInt64Array:
    """Return the hashes of which ``spread`` returned these numbers."""
    with np.errstate(over="ignore"):
        return spread_hashes * _INVERSE
