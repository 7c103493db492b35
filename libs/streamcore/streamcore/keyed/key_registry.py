"""The keys of one shard: each has a slot, and everything kept for it is found under that number.

Keys are admitted in order of arrival up to a limit, and forgotten when nothing is kept for them any more. Refuses to
know the kept values.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, repeat
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.columnar.key_index import KeyIndex, Slots
from streamcore.errors import ConfigError
from streamcore.hashing import bucket_for
from streamcore.keyed.value_types import is_stored_as
from streamcore.state.table import HASH

#: Stands for a bucket where a slot has no key.
_FREE = -1


class KeyRegistry(KeyIndex):
    """A ``KeyIndex`` with a limit, whose keys come and go one by one."""

    def __init__(self, dtypes: Mapping[str, pl.DataType]) -> None:
        super().__init__(dtypes)
        self._added: list[int] = []
        self._buckets = 0
        self._bucket = np.empty(0, dtype=np.int32)  # of each slot, as far as it has been asked for

    @property
    def slots(self) -> int:
        """Return how many slots were ever given out: the length of anything that is indexed by slot."""
        return len(self.keys)

    def take_added(self) -> list[int]:
        """Return the slots given out since the last call."""
        added, self._added = self._added, []
        return added

    def admit(self, columns: Sequence[list[object]], height: int, most: int) -> list[int]:
        """Return the slot of every row's key; -1 for a new key that would be one too many. ``columns``: of the key."""
        keys = self._keys(columns, height)
        slots = list(map(self._slots.get, keys, repeat(-1)))
        if -1 not in slots:
            return slots
        missing = [row for row, slot in enumerate(slots) if slot < 0]
        fresh = dict(zip((keys[row] for row in reversed(missing)), reversed(missing), strict=True))
        fresh = dict(sorted(fresh.items(), key=itemgetter(1)))  # each with its first row, in order of arrival
        admitted = dict(islice(fresh.items(), max(0, most - len(self))))
        if admitted:
            self._add(self._frame(list(admitted)), list(admitted))
        for row in missing:
            slots[row] = self._slots.get(keys[row], -1)
        return slots

    def forget(self, slots: Iterable[int]) -> None:
        """Give these slots away; nothing may be kept under them."""
        for slot in slots:
            del self._slots[self.keys[slot]]
            self.keys[slot] = None
            self._free.append(slot)
            if slot < len(self._bucket):
                self._bucket[slot] = _FREE

    def in_bucket(self, bucket: int, buckets: int) -> list[int]:
        """Return the slots of one bucket. Costs one comparison of numbers a slot."""
        there: list[int] = np.flatnonzero(self._numbers(buckets) == bucket).tolist()
        return there

    def stored(self, slots: Sequence[int]) -> list[pl.Series]:
        """Return the hash column and the key columns of these slots, as every table begins."""
        places = np.asarray(slots, dtype=np.int64)
        return [pl.Series(HASH, self.hashes[places], dtype=pl.UInt64), *self._key_columns(places)]

    def restore(self, rows: pl.DataFrame, what: str) -> list[int]:
        """Return the slots of stored rows; ``ConfigError`` where they were stored under another key."""
        if missing := [name for name in self.dtypes if name not in rows.columns]:
            raise ConfigError(f"{what}: state was stored without the key columns {missing}; a key cannot change")
        for name, dtype in self.dtypes.items():
            if not is_stored_as(rows[name].dtype, dtype):
                raise ConfigError(f"{what}: key column {name} was stored as {rows[name].dtype}; a key cannot change")
        return self.admit([rows[name].to_list() for name in self.dtypes], rows.height, sys.maxsize)

    def _key_columns(self, places: Slots) -> list[pl.Series]:
        return self.frame(places).get_columns() if self.dtypes else []

    def _numbers(self, buckets: int) -> npt.NDArray[np.int32]:
        """Return the bucket numbers of all slots, computed for new slots only."""
        if buckets != self._buckets or len(self._bucket) != len(self.hashes):
            self._buckets, self._bucket = buckets, bucket_for(self.hashes, buckets)
            self._bucket[self._free] = _FREE
        return self._bucket[: self.slots]

    def _add(self, distinct: pl.DataFrame, keys: list[object] | None = None) -> Slots:
        added = super()._add(distinct, keys)
        self._added += added.tolist()
        if self._buckets and len(self._bucket) == len(self.hashes):
            self._bucket[added] = bucket_for(self.hashes[added], self._buckets)
        return added

    def _frame(self, keys: list[object]) -> pl.DataFrame:
        columns = [keys] if len(self.dtypes) == 1 else zip(*keys, strict=True)
        pairs = zip(self.dtypes.items(), columns, strict=True) if self.dtypes else ()
        return pl.DataFrame([pl.Series(name, list(values), dtype=dtype) for (name, dtype), values in pairs])

    @staticmethod
    def _keys(columns: Sequence[list[object]], height: int) -> list[object]:
        """Return a single column's values, or a tuple a row."""
        if len(columns) == 1:
            return columns[0]
        return list(zip(*columns, strict=True)) if columns else [()] * height
