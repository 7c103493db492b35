"""Broadcast state: values that control records set for all keys. Every shard has the same values.

Only ``process_control`` writes; events and timers read. Iteration is in the order in which entries were last written.
A function declares each broadcast state on its class::

    class Limits(ProcessFunction):
        limits = BroadcastState(str, Decimal)       # self.limits["FR"] = Decimal(50); "FR" in self.limits
        closed = BroadcastState(str, datetime)

``context.broadcast`` is a mapping of plain values that needs no declaration.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Generic, TypeVar, cast, overload

import polars as pl

from streamcore.keyed.call_scope import CallScope
from streamcore.keyed.value_codec import ValueTypeMismatch, check_value, decode, encode
from streamcore.keyed.value_types import ColumnType, value_type_for_state
from streamcore.state.key_value_table import KeyValueTable
from streamcore.state.scope import REPLICATED

K = TypeVar("K")
T = TypeVar("T")

#: The name of ``context.broadcast`` among the broadcast states. No attribute has it.
UNDECLARED = ""


class BroadcastState(Generic[K, T]):
    """The declaration of a broadcast state: a class attribute. ``by``, ``of``: the types of its keys and values.

    Without a type, any plain value (``streamcore.keyed.value_codec``).
    """

    def __init__(self, by: type[K] | None = None, of: type[T] | ColumnType | None = None) -> None:
        self.key_type = value_type_for_state(by)
        self.value_type = value_type_for_state(of)
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def attach(self, function: object, table: BroadcastTable) -> None:
        """Connect the state of a function instance to the stored entries."""
        vars(function)[self.name] = BroadcastView(self, table)

    @overload
    def __get__(self, function: None, owner: type) -> BroadcastState[K, T]: ...
    @overload
    def __get__(self, function: object, owner: type) -> BroadcastView[K, T]: ...
    def __get__(self, function: object | None, owner: type) -> BroadcastState[K, T] | BroadcastView[K, T]:
        if function is None:
            return self
        try:
            return cast("BroadcastView[K, T]", function.__dict__[self.name])
        except KeyError:
            raise LookupError(f"state {self.name} can be used only in methods that an operator calls") from None

    def __set__(self, function: object, value: object) -> None:
        raise AttributeError(f"state {self.name} takes entries by self.{self.name}[key] = value")


def declared_broadcast_states(function: type) -> dict[str, BroadcastState[object, object]]:
    """Return the broadcast states that a class declares and inherits, by name."""
    attributes = {name: getattr(function, name, None) for name in sorted(dir(function))}
    return {name: state for name, state in attributes.items() if isinstance(state, BroadcastState)}


class BroadcastView(MutableMapping[K, T]):
    """A declared broadcast state, for the methods of the function."""

    __slots__ = ("_state", "_table")

    def __init__(self, state: BroadcastState[K, T], table: BroadcastTable) -> None:
        self._state = state
        self._table = table

    def __getitem__(self, key: K) -> T:
        return cast("T", self._state.value_type.unpack(self._table.read(self._state.name, self._packed_key(key))))

    def __setitem__(self, key: K, value: T) -> None:
        key_type, value_type = self._state.key_type, self._state.value_type
        try:
            packed_key = key_type.pack(key_type.coerce(key))
            packed = None if value is None else value_type.pack(value_type.coerce(value))
        except ValueTypeMismatch as error:
            raise ValueTypeMismatch(f"broadcast state {self._state.name}: {error}") from None
        self._table.write(self._state.name, packed_key, packed)

    def __delitem__(self, key: K) -> None:
        self._table.delete(self._state.name, self._packed_key(key))

    def __iter__(self) -> Iterator[K]:
        return map(self._state.key_type.unpack, self._table.list_keys(self._state.name))

    def __len__(self) -> int:
        return len(self._table.list_keys(self._state.name))

    def _packed_key(self, key: K) -> object:
        return self._state.key_type.pack(key)


class BroadcastTable(MutableMapping[object, object]):
    """The entries of all broadcast states of a function, at most ``max_entries``, and their state table.

    As a mapping it has the entries of ``UNDECLARED``, of plain values.
    """

    scope = REPLICATED

    def __init__(self, scope: CallScope, max_entries: int) -> None:
        self._scope = scope
        self._max_entries = max_entries
        self._values: dict[str, dict[object, object]] = {UNDECLARED: {}}
        self._orders: dict[tuple[str, object], int] = {}
        self._next_order = 0
        self._table = KeyValueTable()

    def __getitem__(self, key: object) -> object:
        return self.read(UNDECLARED, key)

    def __iter__(self) -> Iterator[object]:
        return iter(self.list_keys(UNDECLARED))

    def __len__(self) -> int:
        return len(self.list_keys(UNDECLARED))

    def __setitem__(self, key: object, value: object) -> None:
        self.write(UNDECLARED, check_value(key), check_value(value))

    def __delitem__(self, key: object) -> None:
        self.delete(UNDECLARED, key)

    def list_keys(self, state: str) -> list[object]:
        """Return the keys of a broadcast state in the order in which their entries were last written."""
        return list(self._values.get(state, ()))

    def read(self, state: str, key: object) -> object:
        """Return the value of an entry; ``KeyError`` if there is none."""
        values = self._values.get(state)
        if values is None:
            raise KeyError(key)
        return values[key]

    def write(self, state: str, key: object, value: object) -> None:
        """Write a plain value as the newest entry. A further entry than ``max_entries`` is rejected and counted."""
        self._check_write()
        if value is None:
            raise ValueTypeMismatch("broadcast state: None cannot be stored; delete the entry instead")
        if (state, key) not in self._orders and len(self._orders) >= self._max_entries:
            self._scope.count("broadcast_rejected")
            return
        self._journal_undo(state, key)
        values = self._values.setdefault(state, {})
        values.pop(key, None)
        values[key] = value
        self._orders[state, key] = self._next_order
        self._table.put(_table_key(state, key), encode((self._next_order, value)))
        self._next_order += 1

    def delete(self, state: str, key: object) -> None:
        """Delete an entry; ``KeyError`` if there is none."""
        self._check_write()
        if (state, key) not in self._orders:
            raise KeyError(key)
        self._journal_undo(state, key)
        del self._values[state][key], self._orders[state, key]
        self._table.put(_table_key(state, key), None)

    def _check_write(self) -> None:
        if not self._scope.in_control:
            raise PermissionError(
                "only process_control may write broadcast state: other shards would not see this change"
            )

    def _journal_undo(self, state: str, key: object) -> None:
        """Append to the journal the restoring of a copy: control records are few, and a copy keeps the order."""
        values, order = dict(self._values.get(state, {})), self._orders.get((state, key))
        self._scope.journal.append((self._restore, state, key, values, order))

    def _restore(self, state: str, key: object, values: dict[object, object], order: int | None) -> None:
        self._values[state] = values
        if order is None:
            self._orders.pop((state, key), None)
        else:
            self._orders[state, key] = order
        self._table.put(_table_key(state, key), None if order is None else encode((order, values[key])))

    # --- StateTable ---------------------------------------------------------------------------------------------

    def changes(self) -> pl.DataFrame:
        return self._table.changes()

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        return self._table.rows(bucket, buckets)

    def load(self, rows: pl.DataFrame) -> None:
        self._table.load(rows)

    def on_state_loaded(self) -> None:
        """Read the entries from the table. Call it after the last ``load``."""
        self._values, self._orders = {UNDECLARED: {}}, {}
        entries = []
        for table_key, blob in self._table:
            entry, stored = decode(bytes.fromhex(table_key)), decode(blob)
            assert isinstance(entry, tuple), "an entry is stored under its state and key"
            assert isinstance(stored, tuple), "an entry is stored as a tuple of order and value"
            entries.append((stored[0], str(entry[0]), entry[1], stored[1]))
        for order, state, key, value in sorted(entries, key=lambda entry: entry[0]):
            self._values.setdefault(state, {})[key] = value
            self._orders[state, key] = order
            self._next_order = order + 1


def _table_key(state: str, key: object) -> str:
    return encode((state, key)).hex()
