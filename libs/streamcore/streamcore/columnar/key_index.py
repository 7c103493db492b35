"""Keys to small numbers: arrays are indexed by slot, so that per-key state needs no object per key.

NULL is a key like any other, as in SQL's GROUP BY. Slots are private to one process: what is stored holds the key
itself and its stable hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.hashing import hash_columns

Slots = npt.NDArray[np.int64]
_FEW = 1_000  # values


class KeyIndex:
    """A dictionary from key to slot, filled column-wise. ``dtypes``: the key's columns, in order."""

    def __init__(self, dtypes: Mapping[str, pl.DataType]) -> None:
        self.dtypes = dict(dtypes)
        self.keys: list[object] = []
        self.hashes = np.empty(0, dtype=np.uint64)
        self._slots: dict[object, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._slots)

    def assign(self, frame: pl.DataFrame) -> Slots:
        """Return the slot of every row's key; keys not seen before get one."""
        if not self.dtypes:
            return np.full(frame.height, self._only_key(), dtype=np.int64)
        columns = frame.select(list(self.dtypes))
        codes, distinct = _distinct(columns)
        slots = np.fromiter(map(self._slots.get, _keys(distinct), repeat(-1)), np.int64, distinct.height)
        missing = np.flatnonzero(slots < 0)
        if missing.size:
            slots[missing] = self._add(distinct[missing])
        return slots[codes]

    def frame(self, slots: Slots) -> pl.DataFrame:
        """Return the key columns of these slots."""
        keys = [self.keys[s] for s in slots.tolist()]
        if len(self.dtypes) == 1:
            ((name, dtype),) = self.dtypes.items()
            return pl.DataFrame({name: pl.Series(name, keys, dtype=dtype)})
        rows = zip(*keys, strict=True) if keys else [()] * len(self.dtypes)
        return pl.DataFrame(
            [pl.Series(n, list(v), dtype=t) for (n, t), v in zip(self.dtypes.items(), rows, strict=True)]
        )

    def keep(self, used: Slots) -> None:
        """Forget every key but those of these slots; their slots are given out again."""
        gone = np.ones(len(self.keys), dtype=bool)
        gone[used] = False
        gone[self._free] = False
        for slot in np.flatnonzero(gone).tolist():
            del self._slots[self.keys[slot]]
            self.keys[slot] = None
            self._free.append(slot)

    def _only_key(self) -> int:
        """Return the slot of the empty key: grouping by nothing."""
        if () not in self._slots:
            self._add(pl.DataFrame(), [()])
        return self._slots[()]

    def _add(self, distinct: pl.DataFrame, keys: list[object] | None = None) -> Slots:
        keys = _keys(distinct) if keys is None else keys
        slots = [self._free.pop() if self._free else self._grow() for _ in keys]
        self._slots.update(zip(keys, slots, strict=True))
        for slot, key in zip(slots, keys, strict=True):
            self.keys[slot] = key
        if len(self.hashes) < len(self.keys):
            self.hashes = np.resize(self.hashes, max(64, 2 * len(self.keys)))
        result = np.asarray(slots, dtype=np.int64)
        self.hashes[result] = hash_columns(distinct.get_columns(), len(keys))
        return result

    def _grow(self) -> int:
        self.keys.append(None)
        return len(self.keys) - 1


def _keys(frame: pl.DataFrame) -> list[object]:
    """Return a single column's values, or a tuple a row."""
    columns = [c.to_list() for c in frame.get_columns()]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _distinct(columns: pl.DataFrame) -> tuple[npt.NDArray[np.int64], pl.DataFrame]:
    """Return, for every row, the number of its key among the distinct ones, and the distinct ones."""
    codes = np.zeros(columns.height, dtype=np.int64)
    for column in columns.get_columns():
        numbers, count = _number_values(column)
        codes = codes * (count + 1) + numbers
        codes = np.unique(codes, return_inverse=True)[1]  # dense again, so that the next column cannot overflow
    _, first = np.unique(codes, return_index=True)
    return codes, columns[first]


def _number_values(column: pl.Series) -> tuple[npt.NDArray[np.int64], int]:
    """Return each value's number in order of first appearance, null too, and how many there are.

    Few values go through a dictionary of Python's: Arrow's functions take a twentieth of a second to load, which is
    much for a command that explains one alert. Doubles go through Arrow, where one NaN is the other.
    """
    if len(column) <= _FEW and not column.dtype.is_float():
        places: dict[object, int] = {}
        numbers = [places.setdefault(value, len(places)) for value in column.to_list()]
        return np.array(numbers, np.int64), len(places)
    encoded = column.to_arrow(compat_level=pl.CompatLevel.oldest()).dictionary_encode("encode")
    return encoded.indices.to_numpy(zero_copy_only=False), len(encoded.dictionary)
