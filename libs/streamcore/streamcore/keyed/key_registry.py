"""The keys of one shard: each has a slot, and everything kept for it is found under that number.

Keys are admitted in order of arrival up to a limit, and forgotten when nothing is kept for them any more. Refuses to
know the kept values.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import polars as pl

from streamcore.columnar.hash_table import Ints
from streamcore.columnar.key_slots import KeySlots
from streamcore.errors import ConfigError
from streamcore.keyed.value_types import is_stored_as
from streamcore.state.table import HASH


class KeyRegistry:
    """``KeySlots`` with a limit. ``keys``: by slot, the key as a function sees it: a value, or a tuple of several."""

    def __init__(self, dtypes: Mapping[str, pl.DataType]) -> None:
        self.dtypes = dict(dtypes)
        self.keys: list[object] = []
        self._slots = KeySlots(dtypes)
        self._added: list[int] = []

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def slots(self) -> int:
        """Return how many slots were ever given out: the length of anything that is indexed by slot."""
        return len(self.keys)

    def take_added(self) -> list[int]:
        """Return the slots given out since the last call."""
        added, self._added = self._added, []
        return added

    def admit(self, rows: pl.DataFrame, most: int) -> list[int]:
        """Return the slot of every row's key; -1 for a new key that would be one too many."""
        slots = self._slots.assign(rows)
        added = self._slots.take_added()
        if added.size:
            excess = self._latest(slots, added, len(self._slots) - most)
            added = np.setdiff1d(added, excess)
            self._enter(added)
            self._slots.forget(excess)
            slots[np.isin(slots, excess)] = -1
        found: list[int] = slots.tolist()
        return found

    def forget(self, slots: Iterable[int]) -> None:
        """Give these slots away; nothing may be kept under them."""
        gone = np.fromiter(slots, np.int64)
        self._slots.forget(gone)
        for slot in gone.tolist():
            self.keys[slot] = None

    def in_bucket(self, bucket: int, buckets: int) -> list[int]:
        """Return the slots of one bucket. Costs one comparison of numbers a slot."""
        used = self._slots.used()
        there: list[int] = used[self._slots.in_bucket(used, bucket, buckets)].tolist()
        return there

    def stored_columns(self, slots: Sequence[int]) -> list[pl.Series]:
        """Return the hash column and the key columns of these slots, as every table begins."""
        places = np.asarray(slots, dtype=np.int64)
        hashes = pl.Series(HASH, self._slots.hashes[places], dtype=pl.UInt64)
        return [hashes, *self._slots.frame(places).get_columns()]

    def restore(self, rows: pl.DataFrame, what: str) -> list[int]:
        """Return the slots of stored rows; ``ConfigError`` where they were stored under another key."""
        if missing := [name for name in self.dtypes if name not in rows.columns]:
            raise ConfigError(f"{what}: state was stored without the key columns {missing}; a key cannot change")
        for name, dtype in self.dtypes.items():
            if not is_stored_as(rows[name].dtype, dtype):
                raise ConfigError(f"{what}: key column {name} was stored as {rows[name].dtype}; a key cannot change")
        return self.admit(rows.with_columns(rows[n].cast(t) for n, t in self.dtypes.items()), sys.maxsize)

    def _enter(self, added: Ints) -> None:
        frame = self._slots.frame(added)
        keys = frame.to_series().to_list() if len(self.dtypes) == 1 else frame.rows() or [()] * len(added)
        self.keys += [None] * (self._slots.size - len(self.keys))
        for slot, key in zip(added.tolist(), keys, strict=True):
            self.keys[slot] = key
        self._added += added.tolist()

    def _latest(self, slots: Ints, added: Ints, number: int) -> Ints:
        """Return so many of the added slots, those whose first row is the latest."""
        if number <= 0:
            return added[:0]
        first = np.full(self._slots.size, len(slots))
        np.minimum.at(first, slots, np.arange(len(slots)))
        return added[np.argsort(first[added])[-number:]]
