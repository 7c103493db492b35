"""The state of one keyed function on one shard: its keys, states, timers and broadcast state.

``streamcore.keyed.state_tables`` defines the stored form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import polars as pl

from streamcore.columnar.hash_table import Ints
from streamcore.errors import ConfigError
from streamcore.keyed.broadcast import BroadcastTable
from streamcore.keyed.call_scope import CallScope
from streamcore.keyed.collection_states import CollectionState
from streamcore.keyed.collection_table import CollectionItem, CollectionTable
from streamcore.keyed.key_registry import KeyRegistry
from streamcore.keyed.migration import KeyRow, Row, StateMigration
from streamcore.keyed.states import DeclaredState
from streamcore.keyed.timers import TimerTable
from streamcore.keyed.value_codec import ValueTypeMismatch
from streamcore.keyed.value_state import VALUE, ExpiringValueCell, ValueCell, ValueRows
from streamcore.keyed.value_types import ValueType, is_stored_as
from streamcore.state.row_versions import Versions

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class KeyedLimits:
    """Limits of one keyed function on one shard. A list or map declares its own limit per key (``most``)."""

    #: Most keys that have state or timers; an event of a further key fails.
    keys: int = 5_000_000
    #: Most timers of a key in each time domain; a call that sets a further timer fails.
    timers_per_key: int = 10_000
    #: Most timers of a cut that were set by timers of the same cut; further ones fire in the next cut.
    chained_timers: int = 100_000
    #: Most entries of the broadcast state; a further entry is rejected and counted.
    broadcast_entries: int = 100_000

    def __post_init__(self) -> None:
        for name in ("keys", "timers_per_key", "chained_timers", "broadcast_entries"):
            if getattr(self, name) < 1:
                raise ConfigError(f"KeyedLimits: {name} must be positive, not {getattr(self, name)}")


class KeyedStore:
    """The state of all keys, by key slot (``streamcore.columnar.key_slots``).

    ``function_name`` appears in messages. ``cells``: the single-value states by name. ``collections``: the lists and
    maps by name. ``cold_keys``: how many more keys are on disk; they count towards the limit of keys. ``load_cold``:
    loads them all.
    """

    def __init__(
        self,
        function_name: str,
        key: Mapping[str, pl.DataType],
        states: Mapping[str, DeclaredState],
        versions: Versions[Row],
        limits: KeyedLimits,
    ) -> None:
        self.function_name = function_name
        self.limits = limits
        self.scope = CallScope()
        self.keys = KeyRegistry(key)
        dirty: set[int] = set()
        self.cells = {
            n: _create_cell(s, self.scope, dirty) for n, s in states.items() if not isinstance(s, CollectionState)
        }
        self.collections = {
            n: _create_collection_table(s, self.scope) for n, s in states.items() if isinstance(s, CollectionState)
        }
        self.all_states: list[ValueCell | CollectionTable] = [*self.cells.values(), *self.collections.values()]
        self.values = ValueRows(self.keys, self.cells, dirty)
        self.timers = TimerTable(self.keys, self.scope, limits.timers_per_key)
        self.broadcast = BroadcastTable(self.scope, limits.broadcast_entries)
        self.versions = versions
        self.migration = StateMigration(versions, self._write_migrated)
        self.cold_keys = 0
        self.load_cold: Callable[[], None] = _load_nothing
        self._possibly_unused: set[int] = set()

    def admit(self, rows: pl.DataFrame) -> list[int]:
        """Return the key slot of each row, after giving new keys one. -1 for a new key beyond the limit of keys."""
        key_slots = self.keys.admit(rows, self.limits.keys - self.cold_keys)
        self._possibly_unused.update(self.keys.take_added())
        self.grow()
        return key_slots

    def grow(self) -> None:
        """Make room in every state for all keys of the registry."""
        for storage in self.all_states:
            storage.grow(self.keys.key_slot_count)

    def sweep(self) -> None:
        """Forget the keys that have no state and no timers left, once their tombstones are in the state log.

        Call it between two cuts.
        """
        candidates = self._possibly_unused | self.scope.emptied
        unwritten = self.values.dirty | {key_slot for key_slot, _ in self.timers.unwritten()}
        for collection in self.collections.values():
            unwritten |= {key_slot for key_slot, _ in collection.dirty}
        self._possibly_unused = candidates & unwritten
        self.scope.emptied.clear()
        self.keys.forget(key_slot for key_slot in candidates - unwritten if not self._has_state(key_slot))

    def _has_state(self, key_slot: int) -> bool:
        if self.values.has_values(key_slot) or self.timers.has_timers(key_slot):
            return True
        return any(collection.has_items(key_slot) for collection in self.collections.values())

    def drop(self, key_slots: Ints) -> None:
        """Forget these keys and their state, which is written: ``streamcore.keyed.paging`` moves them to disk."""
        dropped = key_slots.tolist()
        for storage in self.all_states:
            storage.drop(dropped)
        self.timers.forget(dropped)
        self._possibly_unused.difference_update(dropped)
        self._possibly_unused.update(set(self.keys.take_added()).difference(dropped))
        self.scope.emptied.difference_update(dropped)
        self.keys.forget(dropped)

    def on_keys_loaded(self) -> None:
        """Migrate the keys of older versions that were loaded. Call it after the last row of a recall."""
        self.migration.migrate_all()
        self.grow()
        for collection in self.collections.values():
            collection.finish_restore()
        self._possibly_unused.update(self.keys.take_added())

    def live_key_slots(self) -> list[int]:
        """Return the key slots of the keys that have unexpired state or a timer, in an order of the keys alone."""
        return [
            key_slot
            for key_slot in self.keys.in_order()
            if self.timers.has_timers(key_slot) or any(state.is_live(key_slot) for state in self.all_states)
        ]

    def recall_all(self) -> None:
        """Load all keys that are on disk, in a cut in which a function is applied to all keys."""
        if self.cold_keys:
            self.load_cold()
            self.start_expiry()

    def start_expiry(self) -> None:
        """Start the time to live of loaded values that were stored without one. Call it when the times are known."""
        for storage in self.all_states:
            storage.start_expiry()

    # --- loading ------------------------------------------------------------------------------------------------

    def on_state_loaded(self) -> None:
        """Migrate the keys of older versions, and forget empty keys. Call it after the last stored row."""
        self.on_keys_loaded()
        self.broadcast.on_state_loaded()
        self.sweep()

    def key_slots_for(self, rows: pl.DataFrame) -> list[int]:
        """Return the key slots of stored rows."""
        key_slots = self.keys.restore(rows, self.function_name)
        self.grow()
        return key_slots

    def _write_migrated(self, key_slot: int, row: KeyRow) -> None:
        """Write the state of one key that a migration returned."""
        for name, item in row.values.items():
            cell = self._find_declared(self.cells, name, "a single value")
            cell.restore(key_slot, self.coerce_stored(name, cell.value_type, item.value), item.refreshed_ms)
        for is_list, states in ((True, row.lists), (False, row.maps)):
            for name, items in states.items():
                table = self._find_declared(self.collections, name, "a list" if is_list else "a map")
                for user_key, item in items.items():
                    self.restore(table, key_slot, user_key if table.user_key_type else None, item)

    def restore(self, table: CollectionTable, key_slot: int, map_key: object, item: CollectionItem) -> None:
        """Load a stored item of a map, or of a list (``map_key`` is None).

        Raise ``ConfigError`` if the state's declaration changed in a way that needs a migration.
        """
        if (table.user_key_type is None) is not (map_key is None):
            raise ConfigError(
                f"{self.function_name}: state {table.name} was a list and is a map, or the other way round"
            )
        value = self.coerce_stored(table.name, table.value_type, item.value)
        user_key = (
            item.order if table.user_key_type is None else self.coerce_stored(table.name, table.user_key_type, map_key)
        )
        table.restore(key_slot, user_key, item._replace(value=value))

    def coerce_stored(self, name: str, value_type: ValueType, value: object) -> object:
        """Return a stored plain value as a read of the state returns it; ``ConfigError`` if it does not fit."""
        try:
            return value_type.coerce(value_type.unpack(value))
        except (ValueTypeMismatch, TypeError) as error:
            raise ConfigError(
                f"{self.function_name}: stored state {name} does not fit its declaration: {error}; raise "
                "the function's version and give a migration"
            ) from None

    def _find_declared(self, states: Mapping[str, S], name: str, kind: str) -> S:
        if name not in states:
            raise ConfigError(
                f"{self.function_name}: there is stored state for {name!r}, {kind}, and no such state in version "
                f"{self.versions.current}; declare it, or raise the version and drop it in a migration"
            )
        return states[name]

    def declared_collection(self, name: str) -> CollectionTable:
        """Return the list or map of that name; ``ConfigError`` if the function declares none."""
        return self._find_declared(self.collections, name, "a list or map")

    def check_columns(self, rows: pl.DataFrame) -> None:
        """Raise ``ConfigError`` if stored single values do not have the declared types."""
        for column in rows.columns:
            if column.startswith(VALUE):
                name = column.removeprefix(VALUE)
                declared = self._find_declared(self.cells, name, "a single value").value_type.dtype
                if not is_stored_as(rows[column].dtype, declared):
                    raise ConfigError(
                        f"{self.function_name}: state {name} is stored as {rows[column].dtype} and declared as "
                        f"{declared}; raise the function's version and give a migration"
                    )


def _load_nothing() -> None:
    """Do nothing: no key is on disk."""


def _create_cell(state: DeclaredState, scope: CallScope, dirty: set[int]) -> ValueCell:
    if state.ttl is None:
        return ValueCell(state.name, state.value_type, None, scope, dirty)
    return ExpiringValueCell(state.name, state.value_type, state.ttl, scope, dirty)


def _create_collection_table(state: CollectionState, scope: CallScope) -> CollectionTable:
    return CollectionTable(
        state.name, state.value_type, state.user_key_type, state.most, state.when_full, state.ttl, scope
    )
