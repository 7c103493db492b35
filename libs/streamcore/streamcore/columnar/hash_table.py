"""A hash table from 64-bit numbers to small numbers, a column at a time.

Open addressing with linear probing (Knuth, The Art of Computer Programming 3, 6.4): every pass looks at one place of
every number that is still open, so a column needs as many passes as its longest probe, and most of it needs one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_FREE = -1
_GONE = -2
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio: neighbours end up far from each other
_LEAST_BITS = 6


class HashTable:
    """A dictionary from uint64 to int64 >= 0."""

    def __init__(self) -> None:
        self._live = 0
        self._reset(_LEAST_BITS)

    def __len__(self) -> int:
        return self._live

    def find(self, numbers: Hashes) -> Ints:
        """Return the value of each number, -1 where it has none."""
        return self._look(numbers, places=False)

    def add(self, numbers: Hashes, values: Ints) -> None:
        """Add numbers that are distinct and not there; the values are distinct too."""
        if 5 * (self._used + len(numbers)) > 3 * len(self._values):
            self._grow(self._live + len(numbers))
        self._live += len(numbers)
        self._used += len(numbers)
        self._put(numbers, values)

    def remove(self, numbers: Hashes) -> None:
        """Remove distinct numbers that are there."""
        self._values[self._look(numbers, places=True)] = _GONE
        self._live -= len(numbers)

    def _home(self, numbers: Hashes) -> Ints:
        with np.errstate(over="ignore"):
            return ((numbers * _SPREAD) >> self._shift).astype(np.int64)

    def _look(self, numbers: Hashes, *, places: bool) -> Ints:
        """Return, for each number, its value, or the place where it is; -1 where it is not."""
        at = self._home(numbers)
        value = self._values[at]
        found = (self._numbers[at] == numbers) & (value >= 0)
        result = np.where(found, at if places else value, np.int64(-1))
        rows = np.flatnonzero(~found & (value != _FREE))
        at = at[rows]
        while rows.size:
            at = (at + 1) & self._mask
            value = self._values[at]
            found = (self._numbers[at] == numbers[rows]) & (value >= 0)
            result[rows[found]] = (at if places else value)[found]
            on = ~found & (value != _FREE)
            rows, at = rows[on], at[on]
        return result

    def _put(self, numbers: Hashes, values: Ints) -> None:
        """Claim a free place for each: of those that want the same one the last to write has it, the others go on."""
        at, rows = self._home(numbers), np.arange(len(numbers))
        while rows.size:
            free = self._values[at] < 0
            claimed, at_claimed = rows[free], at[free]
            self._values[at_claimed] = values[claimed]
            won = self._values[at_claimed] == values[claimed]
            self._numbers[at_claimed[won]] = numbers[claimed[won]]
            rows = np.concatenate([rows[~free], claimed[~won]])
            at = (np.concatenate([at[~free], at_claimed[~won]]) + 1) & self._mask

    def items(self) -> tuple[Hashes, Ints]:
        """Return all numbers and their values, in any order."""
        held = self._values >= 0
        return self._numbers[held], self._values[held].astype(np.int64)

    def _grow(self, wanted: int) -> None:
        numbers, values = self.items()
        self._reset(max(_LEAST_BITS, int(3 * wanted - 1).bit_length()))
        self._used = len(numbers)
        self._put(numbers, values)

    def _reset(self, bits: int) -> None:
        self._used = 0
        self._mask = (1 << bits) - 1
        self._shift = np.uint64(64 - bits)
        self._numbers = np.zeros(1 << bits, dtype=np.uint64)
        self._values = np.full(1 << bits, _FREE, dtype=np.int32)
