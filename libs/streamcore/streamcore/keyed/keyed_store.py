"""All that is kept for the keys of one function: its states, timers and broadcast state.

``streamcore.keyed.state_tables`` defines its durable form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import polars as pl

from streamcore.errors import ConfigError
from streamcore.keyed.broadcast import BroadcastState
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
    """Bounds on one shard.

    ``keys``: keys with anything kept; an event of one more fails. ``timers_per_key``: in each time domain; setting one
    more fails the call. ``chained_timers``: firings in one cut of timers that were set by timers of the same cut; the
    rest fire in the next. ``broadcast_entries``: one more is refused. (A list or map declares its own limit of entries
    for a key.)
    """

    keys: int = 5_000_000
    timers_per_key: int = 10_000
    chained_timers: int = 100_000
    broadcast_entries: int = 100_000

    def __post_init__(self) -> None:
        for name in ("keys", "timers_per_key", "chained_timers", "broadcast_entries"):
            if getattr(self, name) < 1:
                raise ConfigError(f"KeyedLimits: {name} must be positive, not {getattr(self, name)}")


class KeyedStore:
    """The kept values, by slot of the key. ``what`` names the function in messages."""

    def __init__(
        self,
        what: str,
        key: Mapping[str, pl.DataType],
        states: Mapping[str, DeclaredState],
        versions: Versions[Row],
        limits: KeyedLimits,
    ) -> None:
        self.what = what
        self.limits = limits
        self.scope = CallScope()
        self.keys = KeyRegistry(key)
        dirty: set[int] = set()
        self.cells = {n: _cell(s, self.scope, dirty) for n, s in states.items() if not isinstance(s, CollectionState)}
        self.entries = {n: _entries(s, self.scope) for n, s in states.items() if isinstance(s, CollectionState)}
        self.all_states: list[ValueCell | CollectionTable] = [*self.cells.values(), *self.entries.values()]
        self.values = ValueRows(self.keys, self.cells, dirty)
        self.timers = TimerTable(self.keys, self.scope, limits.timers_per_key)
        self.broadcast = BroadcastState(self.scope, limits.broadcast_entries)
        self.versions = versions
        self.migration = StateMigration(versions, self._write)
        self._unused: set[int] = set()

    def admit(self, rows: pl.DataFrame) -> list[int]:
        """Return the slot of each row's key; -1 where there are too many keys."""
        slots = self.keys.admit(rows, self.limits.keys)
        self._unused.update(self.keys.take_added())
        self.grow()
        return slots

    def grow(self) -> None:
        """Make room for all keys."""
        for storage in self.all_states:
            storage.grow(self.keys.slots)

    def sweep(self) -> None:
        """Forget, between two cuts, the keys that have nothing left, as soon as that has been written."""
        candidates = self._unused | self.scope.emptied
        waiting = {slot for slot, _ in self.timers.unwritten()} | {s for e in self.entries.values() for s, _ in e.dirty}
        waiting |= self.values.dirty
        self._unused = candidates & waiting
        self.scope.emptied.clear()
        self.keys.forget(slot for slot in candidates - waiting if not self._holds(slot))

    def _holds(self, slot: int) -> bool:
        return self.values.holds(slot) or any(e.holds(slot) for e in self.entries.values()) or self.timers.holds(slot)

    def start_expiry(self) -> None:
        """Begin to measure the time of values that came without one, when there is a time."""
        for storage in self.all_states:
            storage.start_expiry()

    # --- durable ------------------------------------------------------------------------------------------------

    def on_state_loaded(self) -> None:
        """Complete loading after the last stored row."""
        self.migration.migrate_all()
        self.grow()
        for entries in self.entries.values():
            entries.finish()
        self.broadcast.on_state_loaded()
        self._unused.update(self.keys.take_added())
        self.sweep()

    def slots_for(self, rows: pl.DataFrame) -> list[int]:
        """Return the slots of stored rows."""
        slots = self.keys.restore(rows, self.what)
        self.grow()
        return slots

    def _write(self, slot: int, row: KeyRow) -> None:
        """Write the state that a migration made of a key."""
        for name, item in row.values.items():
            cell = self._find_declared(self.cells, name, "a single value")
            cell.restore(slot, self.coerce_stored(name, cell.value_type, item.value), item.stamp)
        for of_list, states in ((True, row.lists), (False, row.maps)):
            for name, items in states.items():
                entries = self._find_declared(self.entries, name, "a list" if of_list else "a map")
                for entry, item in items.items():
                    self.restore(entries, slot, entry if entries.entry_type else None, item)

    def restore(self, entries: CollectionTable, slot: int, entry: object, item: CollectionItem) -> None:
        """Return a stored entry of a map, or element of a list (``entry`` None)."""
        if (entries.entry_type is None) is not (entry is None):
            raise ConfigError(f"{self.what}: state {entries.name} was a list and is a map, or the other way round")
        value = self.coerce_stored(entries.name, entries.value_type, item.value)
        found_by = (
            item.order if entries.entry_type is None else self.coerce_stored(entries.name, entries.entry_type, entry)
        )
        entries.restore(slot, found_by, item._replace(value=value))

    def coerce_stored(self, name: str, value_type: ValueType, value: object) -> object:
        """Return a plain value as the state holds it; ``ConfigError`` if it does not take it."""
        try:
            return value_type.coerce(value_type.unpack(value))
        except (ValueTypeMismatch, TypeError) as error:
            raise ConfigError(
                f"{self.what}: stored state {name} does not fit its declaration: {error}; raise the function's version "
                "and give a migration"
            ) from None

    def _find_declared(self, states: Mapping[str, S], name: str, what: str) -> S:
        if name not in states:
            raise ConfigError(
                f"{self.what}: there is stored state for {name!r}, {what}, and no such state in version "
                f"{self.versions.current}; declare it, or raise the version and drop it in a migration"
            )
        return states[name]

    def declared_entries(self, name: str) -> CollectionTable:
        """Return the list or map of that name."""
        return self._find_declared(self.entries, name, "a list or map")

    def check_columns(self, rows: pl.DataFrame) -> None:
        """Raise ``ConfigError`` if stored values differ from the declaration."""
        for column in rows.columns:
            if column.startswith(VALUE):
                name = column.removeprefix(VALUE)
                wanted = self._find_declared(self.cells, name, "a single value").value_type.dtype
                if not is_stored_as(rows[column].dtype, wanted):
                    raise ConfigError(
                        f"{self.what}: state {name} is stored as {rows[column].dtype} and declared as {wanted}; raise "
                        "the function's version and give a migration"
                    )


def _cell(state: DeclaredState, scope: CallScope, dirty: set[int]) -> ValueCell:
    if state.ttl is None:
        return ValueCell(state.name, state.value_type, None, scope, dirty)
    return ExpiringValueCell(state.name, state.value_type, state.ttl, scope, dirty)


def _entries(state: CollectionState, scope: CallScope) -> CollectionTable:
    return CollectionTable(
        state.name, state.value_type, state.entry_type, state.most, state.when_full, state.ttl, scope
    )
