"""The keys of a keyed function on one shard. Each key has a key slot: the index at which all of its state is kept.

Keys are admitted in order of arrival up to a limit, and forgotten when they have no state left. This module does not
know the state.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import polars as pl

from streamcore.columnar.hash_table import Ints
from streamcore.columnar.key_slots import KeySlots
from streamcore.errors import ConfigError
from streamcore.hashing import UInt64Array
from streamcore.keyed.value_types import is_stored_as
from streamcore.state.table import HASH


class KeyRegistry:
    """``KeySlots`` with a limit. ``keys``: by key slot, the key; a tuple if it has several columns."""

    def __init__(self, dtypes: Mapping[str, pl.DataType]) -> None:
        self.dtypes = dict(dtypes)
        self.keys: list[object] = []
        self._key_slots = KeySlots(dtypes)
        self._added: list[int] = []

    def __len__(self) -> int:
        return len(self._key_slots)

    @property
    def key_slot_count(self) -> int:
        """Return the number of key slots, used or free: the length of anything that is indexed by key slot."""
        return len(self.keys)

    def take_added(self) -> list[int]:
        """Return the key slots of the keys added since the last call."""
        added, self._added = self._added, []
        return added

    def admit(self, rows: pl.DataFrame, max_keys: int) -> list[int]:
        """Return the key slot of every row, after giving new keys one. -1 for a new key beyond ``max_keys``."""
        key_slots = self._key_slots.assign(rows)
        added = self._key_slots.take_added()
        if added.size:
            excess = self._latest_added(key_slots, added, len(self._key_slots) - max_keys)
            added = np.setdiff1d(added, excess)
            self._store_keys(added)
            self._key_slots.forget(excess)
            key_slots[np.isin(key_slots, excess)] = -1
        key_slot_list: list[int] = key_slots.tolist()
        return key_slot_list

    def forget(self, key_slots: Iterable[int]) -> None:
        """Forget the keys of these key slots, which must have no state. Their key slots are given to new keys."""
        forgotten = np.fromiter(key_slots, np.int64)
        self._key_slots.forget(forgotten)
        for key_slot in forgotten.tolist():
            self.keys[key_slot] = None

    def in_bucket(self, bucket: int, buckets: int) -> list[int]:
        """Return the key slots of the keys in one bucket of the state log, in one comparison per key."""
        used = self._key_slots.used()
        key_slots: list[int] = used[self._key_slots.in_bucket(used, bucket, buckets)].tolist()
        return key_slots

    def used(self) -> Ints:
        """Return the key slots that have a key, in ascending order."""
        return self._key_slots.used()

    def hashes(self, key_slots: Ints) -> UInt64Array:
        """Return the hashes of these keys."""
        return self._key_slots.hashes[key_slots]

    def track_use(self) -> None:
        """Record from now on when keys are admitted."""
        self._key_slots.track_use()

    def least_used(self, share: float) -> Ints:
        """Return the key slots of this share of the keys, those that were admitted least recently."""
        return self._key_slots.least_used(share)

    def in_order(self) -> list[int]:
        """Return the key slots of all keys by the hash of the key and then the key, as in every process."""
        used = self._key_slots.used()
        columns = [pl.Series(HASH, self._key_slots.hashes[used], dtype=pl.UInt64)]
        keys = pl.DataFrame([*columns, *self._key_slots.frame(used).get_columns()])
        order = keys.select(pl.arg_sort_by(*keys.columns))
        key_slots: list[int] = used[order.to_series().to_numpy()].tolist()
        return key_slots

    def stored_columns(self, key_slots: Sequence[int]) -> list[pl.Series]:
        """Return the hash column and the key columns of these keys: the first columns of every table."""
        indexes = np.asarray(key_slots, dtype=np.int64)
        hashes = pl.Series(HASH, self._key_slots.hashes[indexes], dtype=pl.UInt64)
        return [hashes, *self._key_slots.frame(indexes).get_columns()]

    def restore(self, rows: pl.DataFrame, function_name: str) -> list[int]:
        """Return the key slots of stored rows; ``ConfigError`` if they were stored with other key columns."""
        if missing := [name for name in self.dtypes if name not in rows.columns]:
            raise ConfigError(
                f"{function_name}: state was stored without the key columns {missing}; a key cannot change"
            )
        for name, dtype in self.dtypes.items():
            if not is_stored_as(rows[name].dtype, dtype):
                raise ConfigError(
                    f"{function_name}: key column {name} was stored as {rows[name].dtype}; a key cannot change"
                )
        return self.admit(rows.with_columns(rows[n].cast(t) for n, t in self.dtypes.items()), sys.maxsize)

    def _store_keys(self, added: Ints) -> None:
        frame = self._key_slots.frame(added)
        keys = frame.to_series().to_list() if len(self.dtypes) == 1 else frame.rows() or [()] * len(added)
        self.keys += [None] * (self._key_slots.size - len(self.keys))
        for key_slot, key in zip(added.tolist(), keys, strict=True):
            self.keys[key_slot] = key
        self._added += added.tolist()

    def _latest_added(self, key_slots: Ints, added: Ints, count: int) -> Ints:
        """Return ``count`` of the added key slots: those that appear last in the rows."""
        if count <= 0:
            return added[:0]
        first = np.full(self._key_slots.size, len(key_slots))
        np.minimum.at(first, key_slots, np.arange(len(key_slots)))
        return added[np.argsort(first[added])[-count:]]
