"""Broadcast state: values that control records set for all keys. Every shard gets all of them and keeps the same.

Only ``process_control`` writes; events and timers read. Entries come in the order in which they were last written.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

import polars as pl

from streamcore.keyed.call_scope import CallScope
from streamcore.keyed.value_codec import ValueTypeMismatch, check_value, decode, encode
from streamcore.state.key_value_table import KeyValueTable


class BroadcastState(MutableMapping[object, object]):
    """A mapping of plain values to plain values."""

    def __init__(self, scope: CallScope, most: int) -> None:
        self._scope = scope
        self._most = most
        self._values: dict[object, object] = {}
        self._orders: dict[object, int] = {}
        self._next_order = 0
        self._table = KeyValueTable()

    def __getitem__(self, entry: object) -> object:
        return self._values[entry]

    def __iter__(self) -> Iterator[object]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __setitem__(self, entry: object, value: object) -> None:
        entry = self._may_write(entry)
        if value is None:
            raise ValueTypeMismatch("broadcast state: None is no value; delete the entry instead")
        value = check_value(value)
        if entry not in self._values and len(self._values) >= self._most:
            self._scope.count("broadcast_refused")
            return
        self._remember(entry)
        self._place(entry, value, self._next_order)
        self._next_order += 1

    def __delitem__(self, entry: object) -> None:
        entry = self._may_write(entry)
        if entry not in self._values:
            raise KeyError(entry)
        self._remember(entry)
        self._drop(entry)

    def _may_write(self, entry: object) -> object:
        if not self._scope.in_control:
            raise PermissionError("broadcast state is written by process_control only: other shards would not see it")
        return check_value(entry)

    def _remember(self, entry: object) -> None:
        """Journal whole copies: control records are few, and a copy keeps the order."""
        self._scope.journal.append((self._restore, dict(self._values), dict(self._orders), entry))

    def _restore(self, values: dict[object, object], orders: dict[object, int], entry: object) -> None:
        self._values, self._orders = values, orders
        blob = encode((orders[entry], values[entry])) if entry in values else None
        self._table.put(_name(entry), blob)

    def _place(self, entry: object, value: object, order: int) -> None:
        self._values.pop(entry, None)
        self._values[entry] = value
        self._orders[entry] = order
        self._table.put(_name(entry), encode((order, value)))

    def _drop(self, entry: object) -> None:
        del self._values[entry], self._orders[entry]
        self._table.put(_name(entry), None)

    # --- StateTable ---------------------------------------------------------------------------------------------

    def changes(self) -> pl.DataFrame:
        return self._table.changes()

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        return self._table.rows(bucket, buckets)

    def load(self, rows: pl.DataFrame) -> None:
        self._table.load(rows)

    def on_state_loaded(self) -> None:
        """Read the entries from the table after the last ``load``."""
        self._values, self._orders = {}, {}
        found = []
        for name, blob in self._table:
            stored = decode(blob)
            assert isinstance(stored, tuple), "stored as order and value"
            found.append((stored[0], decode(bytes.fromhex(name)), stored[1]))
        for order, entry, value in sorted(found, key=lambda one: one[0]):
            self._values[entry], self._orders[entry] = value, order
            self._next_order = order + 1


def _name(entry: object) -> str:
    return encode(entry).hex()
