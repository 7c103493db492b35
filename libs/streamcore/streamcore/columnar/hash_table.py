"""A hash table from 64-bit numbers to small numbers, a column at a time.

Open addressing with linear probing (Knuth, The Art of Computer Programming 3, 6.4). Each pass examines one position for
every unresolved number, so a column needs as many passes as its longest probe; most numbers need one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_FREE = -1
_REMOVED = -2
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio: spreads neighbouring numbers
_MIN_BITS = 6


class HashTable:
    """A dictionary from uint64 numbers to values from 0 to 2**31 - 1, for arrays of numbers."""

    def __init__(self) -> None:
        self._live = 0
        self._reset(_MIN_BITS)

    def __len__(self) -> int:
        return self._live

    def find(self, numbers: Hashes) -> Ints:
        """Return the value of each number, -1 if it has none."""
        return self._probe(numbers, return_positions=False)

    def add(self, numbers: Hashes, values: Ints) -> None:
        """Add distinct numbers that are not in the table, with distinct values."""
        if 5 * (self._used + len(numbers)) > 3 * len(self._values):
            self._grow(self._live + len(numbers))
        self._live += len(numbers)
        self._used += len(numbers)
        self._insert(numbers, values)

    def remove(self, numbers: Hashes) -> None:
        """Remove distinct numbers that are in the table."""
        self._values[self._probe(numbers, return_positions=True)] = _REMOVED
        self._live -= len(numbers)

    def _first_position(self, numbers: Hashes) -> Ints:
        with np.errstate(over="ignore"):
            return ((numbers * _SPREAD) >> self._shift).astype(np.int64)

    def _probe(self, numbers: Hashes, *, return_positions: bool) -> Ints:
        """Return the value, or the position, of each number; -1 if it is not in the table."""
        position = self._first_position(numbers)
        value = self._values[position]
        found = (self._numbers[position] == numbers) & (value >= 0)
        result = np.where(found, position if return_positions else value, np.int64(-1))
        rows = np.flatnonzero(~found & (value != _FREE))
        position = position[rows]
        while rows.size:
            position = (position + 1) & self._mask
            value = self._values[position]
            found = (self._numbers[position] == numbers[rows]) & (value >= 0)
            result[rows[found]] = (position if return_positions else value)[found]
            unresolved = ~found & (value != _FREE)
            rows, position = rows[unresolved], position[unresolved]
        return result

    def _insert(self, numbers: Hashes, values: Ints) -> None:
        """Store each number at a free position. If several claim one, the last writer keeps it."""
        position, rows = self._first_position(numbers), np.arange(len(numbers))
        while rows.size:
            free = self._values[position] < 0
            claimed, at_claimed = rows[free], position[free]
            self._values[at_claimed] = values[claimed]
            is_stored = self._values[at_claimed] == values[claimed]
            self._numbers[at_claimed[is_stored]] = numbers[claimed[is_stored]]
            rows = np.concatenate([rows[~free], claimed[~is_stored]])
            position = (np.concatenate([position[~free], at_claimed[~is_stored]]) + 1) & self._mask

    def items(self) -> tuple[Hashes, Ints]:
        """Return all numbers and their values, in any order."""
        held = self._values >= 0
        return self._numbers[held], self._values[held].astype(np.int64)

    def _grow(self, min_count: int) -> None:
        numbers, values = self.items()
        self._reset(max(_MIN_BITS, int(3 * min_count - 1).bit_length()))
        self._used = len(numbers)
        self._insert(numbers, values)

    def _reset(self, bits: int) -> None:
        self._used = 0
        self._mask = (1 << bits) - 1
        self._shift = np.uint64(64 - bits)
        self._numbers = np.zeros(1 << bits, dtype=np.uint64)
        self._values = np.full(1 << bits, _FREE, dtype=np.int32)
