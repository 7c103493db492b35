"""Broadcast state: values that control records set for all keys. Every shard has the same values.

Only ``process_control`` writes; events and timers read. Iteration is in the order in which entries were last written.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

import polars as pl

from streamcore.keyed.call_scope import CallScope
from streamcore.keyed.value_codec import ValueTypeMismatch, check_value, decode, encode
from streamcore.state.key_value_table import KeyValueTable
from streamcore.state.scope import REPLICATED


class BroadcastState(MutableMapping[object, object]):
    """A mapping of plain values to plain values (``streamcore.keyed.value_codec``), with at most ``max_entries``."""

    scope = REPLICATED

    def __init__(self, scope: CallScope, max_entries: int) -> None:
        self._scope = scope
        self._max_entries = max_entries
        self._values: dict[object, object] = {}
        self._orders: dict[object, int] = {}
        self._next_order = 0
        self._table = KeyValueTable()

    def __getitem__(self, key: object) -> object:
        return self._values[key]

    def __iter__(self) -> Iterator[object]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __setitem__(self, key: object, value: object) -> None:
        key = self._check_write(key)
        if value is None:
            raise ValueTypeMismatch("broadcast state: None cannot be stored; delete the entry instead")
        value = check_value(value)
        if key not in self._values and len(self._values) >= self._max_entries:
            self._scope.count("broadcast_rejected")
            return
        self._journal_undo(key)
        self._store(key, value, self._next_order)
        self._next_order += 1

    def __delitem__(self, key: object) -> None:
        key = self._check_write(key)
        if key not in self._values:
            raise KeyError(key)
        self._journal_undo(key)
        self._delete(key)

    def _check_write(self, key: object) -> object:
        if not self._scope.in_control:
            raise PermissionError(
                "only process_control may write broadcast state: other shards would not see this change"
            )
        return check_value(key)

    def _journal_undo(self, key: object) -> None:
        """Append to the journal the restoring of copies: control records are few, and copies keep the order."""
        self._scope.journal.append((self._restore, dict(self._values), dict(self._orders), key))

    def _restore(self, values: dict[object, object], orders: dict[object, int], key: object) -> None:
        self._values, self._orders = values, orders
        blob = encode((orders[key], values[key])) if key in values else None
        self._table.put(_table_key(key), blob)

    def _store(self, key: object, value: object, order: int) -> None:
        self._values.pop(key, None)
        self._values[key] = value
        self._orders[key] = order
        self._table.put(_table_key(key), encode((order, value)))

    def _delete(self, key: object) -> None:
        del self._values[key], self._orders[key]
        self._table.put(_table_key(key), None)

    # --- StateTable ---------------------------------------------------------------------------------------------

    def changes(self) -> pl.DataFrame:
        return self._table.changes()

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        return self._table.rows(bucket, buckets)

    def load(self, rows: pl.DataFrame) -> None:
        self._table.load(rows)

    def on_state_loaded(self) -> None:
        """Read the entries from the table. Call it after the last ``load``."""
        self._values, self._orders = {}, {}
        stored_entries = []
        for table_key, blob in self._table:
            stored = decode(blob)
            assert isinstance(stored, tuple), "an entry is stored as a tuple of order and value"
            stored_entries.append((stored[0], decode(bytes.fromhex(table_key)), stored[1]))
        for order, key, value in sorted(stored_entries, key=lambda entry: entry[0]):
            self._values[key], self._orders[key] = value, order
            self._next_order = order + 1


def _table_key(key: object) -> str:
    return encode(key).hex()
